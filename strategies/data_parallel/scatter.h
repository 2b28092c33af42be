// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Scatter: the rows of a batch, divided over devices.
//
//   std::vector<Tensor> pieces = Scatter(x, CpuDevices(3));         // x: 7 rows -> 3, 2, 2
//   std::vector<TensorTree> inputs = Scatter({ids, targets}, CpuDevices(3));
//
// Pieces are as equal as can be, the first ones one row larger, and none is empty: with fewer rows
// than devices there are as many pieces as rows, on the first devices. (torch.chunk, which PyTorch
// scatters with, cuts 5 rows for 4 devices into 2, 2, 1, and leaves a device without work.)
//
// Differentiable: the gradient is the pieces' gradients joined on the tensor's device. A piece on
// the tensor's own device is a view of it.
#ifndef LOCKSTEP_STRATEGIES_DATA_PARALLEL_SCATTER_H_
#define LOCKSTEP_STRATEGIES_DATA_PARALLEL_SCATTER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_tree.h"

namespace lockstep::strategies {

// Rows of each piece: 7 over 3 -> {3, 2, 2}; 2 over 3 -> {1, 1}; 0 -> {0}. Throws InvalidArgument
// for a negative size or a count below 1.
std::vector<int64_t> ScatterSizes(int64_t size, int64_t count);

// Rows of `inputs` along `dim`, which may be negative. Throws InvalidArgument when there is no
// tensor, when tensors have different numbers of rows (both named), and for a tensor without
// dimensions; OutOfRange when `dim` is none of a tensor's.
int64_t ScatterRows(const TensorTree& inputs, int64_t dim);

// Piece i is on devices[i]. Throws as ScatterRows and CheckDevices (device_list.h) do, and
// InvalidArgument for an undefined tensor.
std::vector<Tensor> Scatter(const Tensor& x, absl::Span<const Device> devices, int64_t dim = 0);
// The same of every tensor of a tree; plain values go to every device.
std::vector<TensorTree> Scatter(const TensorTree& inputs, absl::Span<const Device> devices,
                                int64_t dim = 0);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_DATA_PARALLEL_SCATTER_H_
