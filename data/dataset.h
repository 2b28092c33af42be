// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Map-style datasets: rows of named tensors, found by index, and how rows become a batch.
//
//   // Rows you already have: inputs [N, 4] and labels [N].
//   auto dataset = std::make_shared<data::TensorDataset>(
//       NamedTensors{{"inputs", inputs}, {"labels", labels}});
//
//   // Rows made on demand:
//   class Squares : public data::Dataset {
//    public:
//     int64_t size() const override { return 1000; }
//     NamedTensors Get(int64_t index, data::SampleContext&) const override {
//       return {{"x", FromVector<float>({float(index)}, {1})},
//               {"y", FromVector<float>({float(index * index)}, {1})}};
//     }
//   };
#ifndef LOCKSTEP_DATA_DATASET_H_
#define LOCKSTEP_DATA_DATASET_H_

#include <cstdint>
#include <functional>

#include "absl/types/span.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::data {

// What a row may depend on besides its index. The generator is keyed by (seed, epoch, index), so
// that augmentation does not depend on loader threads, their timing or the number of ranks.
struct SampleContext {
  int64_t epoch = 0;
  Generator generator;
};

// Thread-safe: loader threads call Get concurrently.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  // The row at `index`, 0 <= index < size(). Every row has the same names.
  virtual NamedTensors Get(int64_t index, SampleContext& context) const = 0;
};

// Makes a batch of rows, at least one. Runs on loader threads.
using CollateFunction = std::function<NamedTensors(absl::Span<const NamedTensors> rows)>;

// Stacks each named tensor along a new first dimension: rows of [C] become [B, C]. Throws
// InvalidArgument naming the row and tensor when names, shapes or dtypes differ.
NamedTensors StackRows(absl::Span<const NamedTensors> rows);

// Rows of tensors that share their first dimension.
class TensorDataset : public Dataset {
 public:
  // Throws InvalidArgument without tensors, for a zero-dimensional one, or when first sizes differ.
  explicit TensorDataset(NamedTensors columns);
  int64_t size() const override { return size_; }
  // Views into the columns. Throws OutOfRange.
  NamedTensors Get(int64_t index, SampleContext& context) const override;

 private:
  NamedTensors columns_;
  int64_t size_ = 0;
};

// The key of SampleContext::generator.
Generator SampleGenerator(uint64_t seed, int64_t epoch, int64_t index);

}  // namespace lockstep::data

#endif  // LOCKSTEP_DATA_DATASET_H_
