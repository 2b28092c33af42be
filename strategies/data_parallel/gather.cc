// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/data_parallel/gather.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::strategies {
namespace {

std::string At(const std::string& path) { return path.empty() ? "" : absl::StrCat(" at ", path); }

[[noreturn]] void RefuseTensors(const std::string& path, size_t piece, const Tensor& first,
                                const Tensor& other, int64_t dim) {
  throw InvalidArgumentError(absl::StrCat(
      "Gather: outputs", At(path), " of replicas 0 and ", piece, " differ: ", first.DebugString(),
      " and ", other.DebugString(), "; only sizes along dimension ", dim, " may"));
}

Tensor GatherTensors(const std::string& path, absl::Span<const Tensor> pieces, Device device,
                     int64_t dim) {
  const Tensor& first = pieces[0];
  const bool scalars = first.rank() == 0;
  if (!scalars) {
    dim = NormalizeDim(dim, first.rank(),
                       absl::StrCat("Gather: output", At(path), " (", first.DebugString(), ")"));
  }
  std::vector<Tensor> moved;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Shape expected = first.shape();
    const bool same_rank = pieces[i].rank() == first.rank();
    if (same_rank && !scalars) expected[static_cast<size_t>(dim)] = pieces[i].size(dim);
    if (!same_rank || pieces[i].dtype() != first.dtype() || pieces[i].shape() != expected) {
      RefuseTensors(path, i, first, pieces[i], dim);
    }
    moved.push_back(To(scalars ? Unsqueeze(pieces[i], 0) : pieces[i], device));
  }
  return moved.size() == 1 ? moved[0] : Concat(moved, scalars ? 0 : dim);
}

using Pieces = std::vector<const TensorTree*>;

// The same child of every piece.
template <typename Child>
Pieces Children(const Pieces& pieces, Child child) {
  Pieces children;
  for (const TensorTree* piece : pieces) children.push_back(&child(*piece));
  return children;
}

void CheckSameKind(const std::string& path, const Pieces& pieces) {
  const TensorTree& first = *pieces[0];
  for (size_t i = 1; i < pieces.size(); ++i) {
    if (pieces[i]->Kind() != first.Kind()) {
      throw InvalidArgumentError(absl::StrCat("Gather: outputs", At(path), " of replicas 0 and ", i,
                                              " differ in structure: ", first.Kind(), " and ",
                                              pieces[i]->Kind(),
                                              "; return the same structure on each"));
    }
    if (first.is_plain() && !first.SamePlainValue(*pieces[i])) {
      throw InvalidArgumentError(absl::StrCat(
          "Gather: outputs", At(path), " of replicas 0 and ", i, " differ: ", first.DebugString(),
          " and ", pieces[i]->DebugString(), "; return what differs as a tensor"));
    }
  }
}

TensorTree GatherTrees(const std::string& path, const Pieces& pieces, Device device, int64_t dim) {
  CheckSameKind(path, pieces);
  const TensorTree& first = *pieces[0];
  if (first.is_tensor()) {
    std::vector<Tensor> tensors;
    for (const TensorTree* piece : pieces) tensors.push_back(piece->tensor());
    return TensorTree(GatherTensors(path, tensors, device, dim));
  }
  if (first.is_list()) {
    TensorTree::List list;
    for (size_t i = 0; i < first.size(); ++i) {
      const auto child = [i](const TensorTree& tree) -> const TensorTree& { return tree[i]; };
      list.push_back(
          GatherTrees(absl::StrCat(path, "[", i, "]"), Children(pieces, child), device, dim));
    }
    return TensorTree(std::move(list));
  }
  if (first.is_dict()) {
    TensorTree::Dict dict;
    for (size_t i = 0; i < first.size(); ++i) {
      const std::string& name = first.dict()[i].first;
      const auto child = [i](const TensorTree& tree) -> const TensorTree& {
        return tree.dict()[i].second;
      };
      const std::string child_path = path.empty() ? name : absl::StrCat(path, ".", name);
      dict.emplace_back(name, GatherTrees(child_path, Children(pieces, child), device, dim));
    }
    return TensorTree(std::move(dict));
  }
  return first;
}

}  // namespace

Tensor Gather(absl::Span<const Tensor> pieces, Device device, int64_t dim) {
  std::vector<TensorTree> trees;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].defined()) {
      throw InvalidArgumentError(absl::StrCat("Gather: piece ", i, " is undefined"));
    }
    trees.emplace_back(pieces[i]);
  }
  return Gather(absl::MakeConstSpan(trees), device, dim).tensor();
}

TensorTree Gather(absl::Span<const TensorTree> outputs, Device device, int64_t dim) {
  if (outputs.empty()) throw InvalidArgumentError("Gather: no pieces; give at least one");
  Pieces pieces;
  for (const TensorTree& output : outputs) pieces.push_back(&output);
  return GatherTrees("", pieces, device, dim);
}

}  // namespace lockstep::strategies
