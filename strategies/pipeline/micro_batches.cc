// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/micro_batches.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::pipeline {

std::vector<int64_t> RowsOfMicroBatches(int64_t rows, int micro_batches) {
  if (micro_batches < 1 || rows < micro_batches) {
    throw InvalidArgumentError(absl::StrCat(
        "pipeline: a batch of ", rows, " rows cannot be split into ", micro_batches,
        " micro-batches of at least one row; give more rows or a schedule of fewer micro-batches"));
  }
  std::vector<int64_t> counts(static_cast<size_t>(micro_batches), rows / micro_batches);
  for (int64_t i = 0; i < rows % micro_batches; ++i) ++counts[static_cast<size_t>(i)];
  return counts;
}

int64_t RowCount(TensorSpan tensors) {
  for (const Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.rank() > 0) return tensor.size(0);
  }
  return 0;
}

std::vector<std::vector<Tensor>> SplitRows(TensorSpan tensors, int micro_batches,
                                           absl::string_view what) {
  std::vector<std::vector<Tensor>> result(static_cast<size_t>(micro_batches));
  for (auto& micro_batch : result) micro_batch.resize(tensors.size());
  const int64_t rows = RowCount(tensors);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const Tensor& tensor = tensors[t];
    if (!tensor.defined()) continue;
    if (tensor.rank() == 0 || tensor.size(0) != rows) {
      throw InvalidArgumentError(absl::StrCat("pipeline: ", what, "[", t, "] is ",
                                              tensor.DebugString(), " where the batch has ", rows,
                                              " rows; dimension 0 of each is the batch"));
    }
    const std::vector<int64_t> counts = RowsOfMicroBatches(rows, micro_batches);
    int64_t begin = 0;
    for (size_t m = 0; m < result.size(); ++m) {
      result[m][t] = Slice(tensor, 0, begin, begin + counts[m]);
      begin += counts[m];
    }
  }
  return result;
}

std::vector<Tensor> MergeRows(absl::Span<const std::vector<Tensor>> micro_batches) {
  if (micro_batches.empty()) return {};
  std::vector<Tensor> result;
  for (size_t t = 0; t < micro_batches[0].size(); ++t) {
    std::vector<Tensor> pieces;
    for (const std::vector<Tensor>& micro_batch : micro_batches) {
      if (micro_batch.size() != micro_batches[0].size()) {
        throw InvalidArgumentError(
            absl::StrCat("pipeline: the last stage has ", micro_batches[0].size(),
                         " outputs of micro-batch 0 and ", micro_batch.size(), " of another"));
      }
      const Tensor& piece = micro_batch[t];
      pieces.push_back(piece.rank() == 0 ? Unsqueeze(piece, 0) : piece);
    }
    result.push_back(pieces.size() == 1 && micro_batches[0][t].rank() > 0 ? pieces[0]
                                                                          : Concat(pieces, 0));
  }
  return result;
}

}  // namespace lockstep::pipeline
