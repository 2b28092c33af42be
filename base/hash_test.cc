// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/hash.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

std::string Pattern(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 7 + 3) % 256);
  return bytes;
}

// From xxHash's own library, version 0.8.1.
struct Known {
  size_t size;
  uint64_t seed0;
  uint64_t seeded;
};
constexpr uint64_t kSeed = 0x9E3779B97F4A7C15;
constexpr Known kKnown[] = {
    {0, 0xef46db3751d8e999, 0xc4349fc93c010000},   {1, 0x1f25c8d0bc1f4bb6, 0x79826bcd749d267a},
    {3, 0x31d2363f52e564c9, 0x78efd77575e26575},   {4, 0x9bb64b7d66ee9fda, 0x6f0a6c97d68bf353},
    {5, 0xc7608efddb7051fe, 0xa677b535c22b67a5},   {8, 0xdab99d95c6f90092, 0xa2f1e28437a78a1b},
    {12, 0xd52e407833af5133, 0xbcc9f0d616ff9a7b},  {31, 0xa2aa5f33cc4a6119, 0x755437271d1d0a84},
    {32, 0x23c3c17ef790fd97, 0xbf624b932c090428},  {33, 0x50a7cfc7ba588784, 0x7aceaf1e9d34ea35},
    {63, 0x5e3e54b431c7493c, 0x2c8ddce5c85d0d9d},  {64, 0x0eb64b3ef6eeb01f, 0x4af341f14e3a6fc9},
    {100, 0xa61f8d4c170fe531, 0xf6d8f65c625abb4f}, {199, 0xf7efd3430a01de39, 0x3f5874e936d1719f},
};

TEST(HashTest, KnownValues) {
  EXPECT_EQ(Hash64("abc"), 0x44bc2cf5ad770999u);
  for (const Known& known : kKnown) {
    const std::string bytes = Pattern(known.size);
    EXPECT_EQ(Hash64(bytes), known.seed0) << known.size;
    EXPECT_EQ(Hash64(bytes, kSeed), known.seeded) << known.size;
    EXPECT_EQ(Hash64(bytes.data(), bytes.size()), known.seed0) << known.size;
  }
}

TEST(HashTest, PiecesGiveTheSameAsTheWhole) {
  const std::string bytes = Pattern(199);
  for (const size_t piece : {1, 3, 5, 31, 32, 33, 64, 150}) {
    Hasher64 hasher(kSeed);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      hasher.Update(absl::string_view(bytes).substr(at, piece)).Update("");
      EXPECT_EQ(hasher.Finish(), Hash64(absl::string_view(bytes).substr(0, at + piece), kSeed));
    }
  }
}

TEST(HashTest, UnalignedInputGivesTheSame) {
  const std::string bytes = Pattern(100);
  const std::string shifted = "x" + bytes;
  EXPECT_EQ(Hash64(shifted.data() + 1, bytes.size()), Hash64(bytes));
}

TEST(HashTest, EveryBitMatters) {
  for (const size_t size : {3, 13, 45}) {
    std::string bytes = Pattern(size);
    std::set<uint64_t> hashes = {Hash64(bytes)};
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
      hashes.insert(Hash64(bytes));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    }
    EXPECT_EQ(hashes.size(), 8 * size + 1);
  }
  EXPECT_NE(Hash64(Pattern(5)), Hash64(Pattern(5), 1));
  EXPECT_NE(Hash64(std::string(3, '\0')), Hash64(std::string(4, '\0')));
}

}  // namespace
}  // namespace lockstep
