# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""The random numbers of lockstep/tensor/random.h in NumPy.

Goldens hold outputs only: weights and inputs are drawn on both sides, here and in the C++ tests.
"""

import numpy as np

_MASK = np.uint64(0xFFFFFFFF)


def philox4x32(seed, stream, blocks):
    """The four words of each block: uint32 [len(blocks), 4]."""
    block = np.asarray(blocks, dtype=np.uint64)
    shift = np.uint64(32)
    c0, c1 = block & _MASK, block >> shift
    c2 = np.full_like(block, stream & 0xFFFFFFFF)
    c3 = np.full_like(block, stream >> 32)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = ((p1 >> shift) ^ c1 ^ np.uint64(k0), p1 & _MASK,
                          (p0 >> shift) ^ c3 ^ np.uint64(k1), p0 & _MASK)
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


class Generator:
    """A position in a random stream, as lockstep::Generator."""

    def __init__(self, seed, stream=0):
        self.seed, self.stream, self.offset = seed, stream, 0

    def words(self, count):
        blocks = (count + 3) // 4
        first = self.offset // 4
        self.offset += 4 * blocks
        return philox4x32(self.seed, self.stream,
                          np.arange(first, first + blocks)).reshape(-1)[:4 * blocks]

    def uniform(self, shape):
        """float32 in [0, 1), as RandomUniform(shape)."""
        count = int(np.prod(shape))
        return ((self.words(count)[:count] >> 8).astype(np.float32) * np.float32(2.0**-24)).reshape(shape)

    def normal(self, shape, mean=0.0, std=1.0):
        """float32, as RandomNormal(shape, mean, std)."""
        count = int(np.prod(shape))
        pairs = self.words(count).reshape(-1, 2).astype(np.float64)
        radius = np.sqrt(-2.0 * np.log((pairs[:, 0] + 0.5) * 2.0**-32))
        angle = 2.0 * np.pi * ((pairs[:, 1] + 0.5) * 2.0**-32)
        values = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)
        return (mean + std * values[:count]).astype(np.float32).reshape(shape)


def _check_known_answer():
    # Random123's known answers for philox4x32-10, whose counter and key are all zeros or ones.
    zeros = philox4x32(0, 0, [0])[0]
    assert [hex(w) for w in zeros] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"], zeros
    ones = philox4x32(2**64 - 1, 2**64 - 1, [2**64 - 1])[0]
    assert [hex(w) for w in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"], ones


_check_known_answer()
