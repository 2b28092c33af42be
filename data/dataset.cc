// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::data {
namespace {

// Streams of samples start here, away from those of parameters, data order and dropout.
constexpr uint64_t kSampleStreamBase = uint64_t{1} << 40;

void CheckSameRow(const NamedTensors& first, const NamedTensors& row, size_t position) {
  if (row.size() != first.size()) {
    throw InvalidArgumentError(absl::StrCat("StackRows: row ", position, " has ", row.size(),
                                            " tensors, row 0 has ", first.size()));
  }
  for (const auto& [name, tensor] : first) {
    const Tensor* other = row.Find(name);
    if (other == nullptr) {
      throw InvalidArgumentError(absl::StrCat("StackRows: row ", position, " has no '", name, "'"));
    }
    if (other->shape() != tensor.shape() || other->dtype() != tensor.dtype()) {
      throw InvalidArgumentError(absl::StrCat(
          "StackRows: '", name, "' is ", other->DebugString(), " in row ", position, " and ",
          tensor.DebugString(), " in row 0; give the loader a collate function that pads them"));
    }
  }
}

// Copies the elements of `row`, however strided, to `out` in row-major order.
void CopyElements(const Tensor& row, char* out) {
  const int64_t item = ItemSize(row.dtype());
  if (row.is_contiguous()) {
    if (row.numel() > 0) std::memcpy(out, RawData(row), static_cast<size_t>(row.bytes()));
    return;
  }
  const char* data = static_cast<const char*>(RawData(row));
  Shape index(row.shape().size(), 0);
  for (int64_t i = 0; i < row.numel(); ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * row.strides()[d];
    std::memcpy(out + i * item, data + offset * item, static_cast<size_t>(item));
    for (size_t d = index.size(); d-- > 0 && ++index[d] == row.shape()[d];) index[d] = 0;
  }
}

}  // namespace

// Not the Stack op: a batch is data, not a step of a graph, and loader threads must not record one.
NamedTensors StackRows(absl::Span<const NamedTensors> rows) {
  if (rows.empty()) throw InvalidArgumentError("StackRows: no rows; give at least one");
  for (size_t i = 1; i < rows.size(); ++i) CheckSameRow(rows[0], rows[i], i);
  CategoryScope category(MemoryCategory::kData);
  NamedTensors batch;
  for (const auto& [name, first] : rows[0]) {
    Shape shape(first.shape());
    shape.insert(shape.begin(), static_cast<int64_t>(rows.size()));
    Tensor stacked = Empty(shape, {.dtype = first.dtype(), .device = first.device()});
    char* out = static_cast<char*>(MutableRawData(stacked));
    for (const NamedTensors& row : rows) {
      CopyElements(row.At(name), out);
      out += first.bytes();
    }
    batch.Insert(name, std::move(stacked));
  }
  return batch;
}

TensorDataset::TensorDataset(NamedTensors columns) : columns_(std::move(columns)) {
  if (columns_.empty()) throw InvalidArgumentError("TensorDataset: no tensors given");
  for (const auto& [name, tensor] : columns_) {
    if (tensor.rank() == 0) {
      throw InvalidArgumentError(
          absl::StrCat("TensorDataset: '", name, "' has no dimensions; the first one counts rows"));
    }
    if (tensor.size(0) != columns_[0].second.size(0)) {
      throw InvalidArgumentError(absl::StrCat(
          "TensorDataset: '", name, "' has ", tensor.size(0), " rows and '", columns_[0].first,
          "' has ", columns_[0].second.size(0), "; the first dimensions must agree"));
    }
  }
  size_ = columns_[0].second.size(0);
}

NamedTensors TensorDataset::Get(int64_t index, SampleContext&) const {
  if (index < 0 || index >= size_) {
    throw OutOfRangeError(absl::StrCat("TensorDataset: row ", index, " of ", size_));
  }
  NamedTensors row;
  for (const auto& [name, tensor] : columns_) {
    const TensorImpl& impl = tensor.impl();
    row.Insert(name, Tensor(MakeRef<TensorImpl>(impl.storage, ShapeSpan(impl.shape).subspan(1),
                                                ShapeSpan(impl.strides).subspan(1),
                                                impl.offset + index * impl.strides[0], impl.dtype,
                                                impl.device)));
  }
  return row;
}

Generator SampleGenerator(uint64_t seed, int64_t epoch, int64_t index) {
  // Streams have 64 bits and (epoch, index) may need more: hash the pair with the seed as key.
  const auto words = Philox4x32(seed, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index));
  Generator generator;
  generator.key.seed = seed ^ (static_cast<uint64_t>(words[0]) << 32 | words[1]);
  generator.key.stream = kSampleStreamBase + (static_cast<uint64_t>(words[2]) << 8);
  return generator;
}

}  // namespace lockstep::data
