// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/cpu/kernel_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "lockstep/base/philox.h"
#include "lockstep/base/ref_counted.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

// Without ops, so that tests of the copying kernels do not rest on themselves.
Tensor WithStrides(const Tensor& packed, const Strides& strides) {
  int64_t elements = 1;
  for (size_t i = 0; i < strides.size(); ++i) {
    elements += std::max<int64_t>(0, packed.shape()[i] - 1) * strides[i];
  }
  const int64_t item_size = ItemSize(packed.dtype());
  const int64_t offset = 3;
  auto storage = Storage::Allocate(packed.device(), (elements + offset) * item_size);
  std::memset(storage->data(), 0x5a, static_cast<size_t>(storage->bytes()));
  Tensor result(MakeRef<TensorImpl>(storage, packed.shape(), strides, offset, packed.dtype(),
                                    packed.device()));
  const char* in = static_cast<const char*>(RawData(packed));
  char* out = static_cast<char*>(MutableRawData(result));
  for (int64_t i = 0; i < packed.numel(); ++i) {
    int64_t rest = i;
    int64_t at = 0;
    for (size_t d = strides.size(); d-- > 0;) {
      at += rest % packed.shape()[d] * strides[d];
      rest /= packed.shape()[d];
    }
    std::memcpy(out + at * item_size, in + i * item_size, static_cast<size_t>(item_size));
  }
  return result;
}

}  // namespace

std::vector<Tensor> Layouts(const Tensor& packed) {
  Strides reversed(packed.shape().size());
  int64_t stride = 1;
  for (size_t i = 0; i < reversed.size(); ++i) {
    reversed[i] = stride;
    stride *= std::max<int64_t>(1, packed.shape()[i]);
  }
  Strides spaced = ContiguousStrides(packed.shape());
  for (int64_t& s : spaced) s *= 2;
  return {packed, WithStrides(packed, reversed), WithStrides(packed, spaced)};
}

std::vector<double> Numbers(int64_t count, double low, double high, uint64_t seed) {
  std::vector<double> result(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const auto words = Philox4x32(seed, 7, static_cast<uint64_t>(i));
    result[i] = low + (high - low) * UniformDouble(words[0], words[1]);
  }
  return result;
}

Tensor MakeTensor(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return FromVector<double>(values, shape, {.dtype = dtype});
}

std::vector<uint64_t> Bits(const Tensor& tensor) {
  const int64_t item_size = ItemSize(tensor.dtype());
  std::vector<uint64_t> result(static_cast<size_t>(tensor.numel()));
  const char* data = tensor.numel() == 0 ? nullptr : static_cast<const char*>(RawData(tensor));
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    int64_t rest = i;
    int64_t at = 0;
    for (size_t d = tensor.shape().size(); d-- > 0;) {
      at += rest % tensor.shape()[d] * tensor.strides()[d];
      rest /= tensor.shape()[d];
    }
    std::memcpy(&result[i], data + at * item_size, static_cast<size_t>(item_size));
  }
  return result;
}

double RoundingUnit(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return 0x1p-24;
    case DType::kBFloat16:
      return 0x1p-8;
    case DType::kFloat16:
      return 0x1p-11;
    case DType::kFloat64:
      return 0x1p-53;
    default:
      return 0;
  }
}

void ExpectClose(const Tensor& actual, const std::vector<double>& expected, double tolerance,
                 const std::string& what, double floor) {
  ASSERT_EQ(actual.numel(), static_cast<int64_t>(expected.size())) << what;
  const std::vector<double> values = actual.ToVector<double>();
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i];
    const bool same = std::isnan(e) ? std::isnan(values[i])
                      : std::isinf(e)
                          ? values[i] == e
                          : std::abs(values[i] - e) <= tolerance * std::max(std::abs(e), floor);
    if (same) continue;
    FAIL() << what << " " << actual.DebugString() << " element " << i << ": " << values[i]
           << " instead of " << e;
  }
}

void ExpectSameForThreads(const std::string& what, const std::function<Tensor()>& function) {
  std::vector<uint64_t> first;
  for (const int threads : {1, 2, 3}) {
    SetIntraOpThreads(threads);
    const std::vector<uint64_t> bits = Bits(function());
    if (threads == 1) first = bits;
    EXPECT_TRUE(bits == first) << what << " with " << threads << " threads";
  }
  SetIntraOpThreads(0);
}

}  // namespace lockstep::cpu
