// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows of a batch as micro-batches, and back.
//
//   SplitRows({x, y}, 3, "inputs");   // of 8 rows: views of rows 0-2, 3-5, 6-7 of each
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_MICRO_BATCHES_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_MICRO_BATCHES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::pipeline {

// How many of `rows` each micro-batch has: the same, and the first ones one more while a rest
// lasts. (Tensor chunks of 5 rows in 4 would be 2, 2 and 1: a micro-batch would have none.) Throws
// InvalidArgument with the numbers when there are fewer rows than micro-batches.
std::vector<int64_t> RowsOfMicroBatches(int64_t rows, int micro_batches);

// Views of the rows (dimension 0): [micro-batch][tensor]. Undefined tensors stay undefined. `what`
// names the tensors in messages ("inputs"). Throws InvalidArgument for a tensor without dimensions,
// for tensors of differing numbers of rows, and as RowsOfMicroBatches.
std::vector<std::vector<Tensor>> SplitRows(TensorSpan tensors, int micro_batches,
                                           absl::string_view what);

// The number of rows of the first defined tensor; 0 without one.
int64_t RowCount(TensorSpan tensors);

// The inverse of SplitRows. Tensors without dimensions (a count, a mean) have no rows to be joined
// and are stacked: [micro-batches]. Empty without micro-batches. Throws InvalidArgument when
// micro-batches have differing numbers of tensors.
std::vector<Tensor> MergeRows(absl::Span<const std::vector<Tensor>> micro_batches);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_MICRO_BATCHES_H_
