# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Inputs of the op goldens; inputs.cc makes the same ones.

An input is [profile, shape, layout] or [profile, shape, layout, dtype]. The profile says which
values, the layout how the tensor lies in memory. Values come from exact arithmetic on 24-bit
uniform numbers, so that both sides get the same bits in every dtype.
"""

import os
import sys

import numpy as np
import torch

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import philox  # noqa: E402

DTYPES = {
    "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
    "float64": torch.float64, "int64": torch.int64, "int32": torch.int32, "uint8": torch.uint8,
    "bool": torch.bool,
}

# Least and largest exponent of normal numbers, bits of the fraction.
FORMATS = {"float32": (-126, 127, 23), "bfloat16": (-126, 127, 7), "float16": (-14, 15, 10),
           "float64": (-1022, 1023, 52)}

INTEGER_LIMITS = {"int64": (-2**63, 2**63 - 1), "int32": (-2**31, 2**31 - 1), "uint8": (0, 255),
                  "bool": (0, 1)}

# A short mantissa times this uses 52 bits: float64 inputs are not float32 numbers.
STRETCH = 1 + 2.0**-28


def special_floats(dtype):
    low, high, bits = FORMATS[dtype]
    denormal, largest = 2.0**(low - bits), (2 - 2.0**-bits) * 2.0**high
    return [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, denormal, -denormal,
            2.0**low - denormal, 2.0**low, largest, -largest, 1.0, -1.0]


def special_integers(dtype):
    low, high = INTEGER_LIMITS[dtype]
    return [0, 1, high, low, 7, 2] if low == 0 else [0, 1, -1, high, low, 7, -7]


def _floats(profile, count, dtype, u):
    if profile == "unit":
        return (4 * u - 2) * STRETCH
    if profile == "positive":
        return (3 * u + 0.25) * STRETCH
    if profile == "grid":
        return np.floor(7 * u) - 3
    if profile == "small":
        return np.floor(4 * u)
    if profile == "each":
        special = special_floats(dtype)
        return np.array([special[i % len(special)] for i in range(count)], dtype=np.float64)
    if profile == "nonfinite":
        values = (4 * u - 2) * STRETCH
        for i in range(3, count, 7):
            values[i] = (float("nan"), float("inf"), float("-inf"))[i // 7 % 3]
        return values
    if profile == "wide":
        low, high, _ = FORMATS[dtype]
        words = (u * 2**24).astype(np.int64)
        exponent = low + ((words >> 1) % 1024) * (high - low) // 1024
        values = np.ldexp(1 + (words >> 11) * 2.0**-13, exponent.astype(np.int32))
        return np.where(words % 2 == 1, -values, values)
    raise ValueError(profile)


def _integers(profile, count, dtype, u):
    unsigned = INTEGER_LIMITS[dtype][0] == 0
    if profile == "first_column":  # true there whatever comes after it
        mask = (u < 0.5).astype(np.int64)
        mask[::6] = 1
        return mask
    if dtype == "bool" and profile != "each":
        return (u < 0.5).astype(np.int64)
    if profile == "unit":
        return np.floor(10 * u if unsigned else 19 * u - 9).astype(np.int64)
    if profile == "positive":
        return np.floor(5 * u + 1).astype(np.int64)
    if profile == "grid":
        return np.floor(4 * u if unsigned else 7 * u - 3).astype(np.int64)
    if profile == "small":
        return np.floor(4 * u).astype(np.int64)
    if profile == "each":
        special = special_integers(dtype)
        return np.array([special[i % len(special)] for i in range(count)], dtype=np.int64)
    if profile.startswith("index:"):
        return np.floor(int(profile[6:]) * u).astype(np.int64)
    raise ValueError(profile)


def draw(profile, shape, dtype, seed, stream):
    """A row-major tensor."""
    count = int(np.prod(shape, dtype=np.int64))
    u = philox.Generator(seed, stream).uniform((count,)).astype(np.float64)
    if dtype not in FORMATS:
        values = torch.from_numpy(_integers(profile, count, dtype, u))
        return values.to(DTYPES[dtype]).reshape(shape)
    values = torch.from_numpy(np.asarray(_floats(profile, count, dtype, u), dtype=np.float64))
    if dtype != "float64":
        values = values.float().to(DTYPES[dtype])
    return values.reshape(shape)


def stored_shape(shape, layout):
    """Of the row-major tensor that the input is a view of."""
    shape = list(shape)
    if layout == "transposed":
        shape[-2:] = shape[:-3:-1]
    elif layout == "reversed":
        shape.reverse()
    elif layout == "sliced":
        shape[-1] = 2 * shape[-1] + 1
    elif layout == "offset":
        shape[0] += 2
    elif layout == "expanded":
        shape[0] = 1
    return shape


def view(stored, shape, layout):
    if layout == "transposed":
        return stored.transpose(-1, -2)
    if layout == "reversed":
        return stored.permute(*reversed(range(len(shape))))
    if layout == "sliced":
        return stored[..., 1::2]
    if layout == "offset":
        return stored[2:]
    if layout == "expanded":
        return stored.expand(shape)
    assert layout == "dense", layout
    return stored
