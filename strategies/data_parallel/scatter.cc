// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/data_parallel/scatter.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::strategies {
namespace {

// "input [0] (int64[4, 8] on cpu:0)".
std::string Describe(const std::string& path, const Tensor& tensor) {
  return absl::StrCat("input ", path.empty() ? "" : path + " ", "(", tensor.DebugString(), ")");
}

int64_t RowsOf(const std::string& path, const Tensor& tensor, int64_t dim) {
  if (tensor.rank() == 0) {
    throw InvalidArgumentError(
        absl::StrCat("Scatter: ", Describe(path, tensor),
                     " has no dimension to divide; give it as a number, which every replica gets, "
                     "or let the function take it with To(x, CurrentDevice())"));
  }
  return tensor.size(NormalizeDim(dim, tensor.rank(), "Scatter: " + Describe(path, tensor)));
}

std::vector<Tensor> ScatterPieces(const Tensor& x, absl::Span<const Device> devices, int64_t dim,
                                  const std::vector<int64_t>& sizes) {
  std::vector<Tensor> pieces =
      sizes.size() == 1 ? std::vector<Tensor>{x} : Split(x, Shape(sizes.begin(), sizes.end()), dim);
  for (size_t i = 0; i < pieces.size(); ++i) pieces[i] = To(pieces[i], devices[i]);
  return pieces;
}

}  // namespace

std::vector<int64_t> ScatterSizes(int64_t size, int64_t count) {
  if (size < 0 || count < 1) {
    throw InvalidArgumentError(absl::StrCat("ScatterSizes: ", size, " rows over ", count,
                                            " devices; give at least 0 rows and 1 device"));
  }
  const int64_t pieces = std::max<int64_t>(1, std::min(size, count));
  std::vector<int64_t> sizes(static_cast<size_t>(pieces), size / pieces);
  for (int64_t i = 0; i < size % pieces; ++i) ++sizes[static_cast<size_t>(i)];
  return sizes;
}

int64_t ScatterRows(const TensorTree& inputs, int64_t dim) {
  int64_t rows = -1;
  std::string first;
  inputs.ForEachTensor([&](const std::string& path, const Tensor& tensor) {
    const int64_t here = RowsOf(path, tensor, dim);
    if (rows < 0) {
      rows = here;
      first = Describe(path, tensor);
    }
    if (here != rows) {
      throw InvalidArgumentError(
          absl::StrCat("Scatter: ", first, " and ", Describe(path, tensor), " have ", rows, " and ",
                       here, " rows along dimension ", dim, "; inputs are divided together"));
    }
  });
  if (rows < 0) {
    throw InvalidArgumentError(absl::StrCat("Scatter: no tensor to divide in ",
                                            inputs.DebugString(), "; give at least one"));
  }
  return rows;
}

std::vector<Tensor> Scatter(const Tensor& x, absl::Span<const Device> devices, int64_t dim) {
  std::vector<Tensor> pieces;
  for (const TensorTree& piece : Scatter(TensorTree(x), devices, dim)) {
    pieces.push_back(piece.tensor());
  }
  return pieces;
}

std::vector<TensorTree> Scatter(const TensorTree& inputs, absl::Span<const Device> devices,
                                int64_t dim) {
  CheckDevices(devices, "Scatter");
  const std::vector<int64_t> sizes =
      ScatterSizes(ScatterRows(inputs, dim), static_cast<int64_t>(devices.size()));
  std::vector<std::vector<Tensor>> all;
  inputs.ForEachTensor([&](const std::string&, const Tensor& tensor) {
    all.push_back(ScatterPieces(tensor, devices, dim, sizes));
  });
  std::vector<TensorTree> trees;
  for (size_t piece = 0; piece < sizes.size(); ++piece) {
    size_t next = 0;
    trees.push_back(
        inputs.Map([&](const std::string&, const Tensor&) { return all[next++][piece]; }));
  }
  return trees;
}

}  // namespace lockstep::strategies
