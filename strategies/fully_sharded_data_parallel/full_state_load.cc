// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/full_state_load.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::strategies {
namespace {

using Given = std::map<std::string, const state::TensorDescription*>;

// Why the tensor of this description cannot become one of `shape` and `dtype`, or "".
std::string Mismatch(const state::TensorDescription& given, const Shape& shape, DType dtype) {
  const bool converts = given.dtype == dtype ||
                        (IsFloatingPoint(given.dtype) && IsFloatingPoint(dtype)) ||
                        (IsIntegral(given.dtype) && IsIntegral(dtype));
  if (given.shape != shape) {
    return absl::StrCat(given.name, " is ", DTypeName(given.dtype), ToString(given.shape),
                        " and not of shape ", ToString(shape));
  }
  if (!converts) {
    return absl::StrCat(given.name, " is ", DTypeName(given.dtype), ", which does not convert to ",
                        DTypeName(dtype));
  }
  return "";
}

// NaN counts as equal to NaN.
bool SameValues(const Tensor& a, const Tensor& b) {
  if (a.numel() == 0 || (a.storage() == b.storage() && a.offset() == b.offset())) return true;
  // The host device holds tensors and computes nothing.
  const Tensor x = To(a, CurrentDevice());
  const Tensor y = To(To(b, CurrentDevice()), a.dtype());
  const Tensor both_nan = LogicalAnd(NotEqual(x, x), NotEqual(y, y));
  return All(LogicalOr(Equal(x, y), both_nan)).Item<bool>();
}

// The names in the source of each tensor of the module; what is wrong is added to `wrong`.
std::vector<std::string> NamesInSource(const std::vector<std::string>& names, const Shape& shape,
                                       DType dtype, const Given& given,
                                       std::vector<std::string>& wrong) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const auto it = given.find(name);
    if (it == given.end()) continue;
    const std::string why = Mismatch(*it->second, shape, dtype);
    if (!why.empty()) wrong.push_back(why);
    found.push_back(name);
  }
  if (found.empty()) wrong.push_back(absl::StrCat(names.front(), " is missing"));
  return found;
}

}  // namespace

FullStateLoad::FullStateLoad(absl::string_view call, const std::vector<ShardedPiece>& pieces,
                             const NamedTensors& state_tensors, const state::TensorSource& source)
    : source_(source) {
  const autograd::NoGradScope no_grad;
  Given given;
  for (const state::TensorDescription& tensor : source.tensors()) given[tensor.name] = &tensor;
  std::map<const TensorImpl*, const ShardedPiece*> piece_of;
  for (const ShardedPiece& piece : pieces) piece_of[&piece.tensor.impl()] = &piece;
  std::map<const TensorImpl*, std::vector<std::string>> names_of;
  for (const auto& [name, tensor] : state_tensors) names_of[&tensor.impl()].push_back(name);

  std::vector<std::string> wrong;
  std::set<const TensorImpl*> seen;
  std::vector<std::pair<std::string, size_t>> repeated;  // a further name of copy number ...
  for (const auto& [first_name, tensor] : state_tensors) {
    if (!seen.insert(&tensor.impl()).second) continue;
    const auto found = piece_of.find(&tensor.impl());
    const ShardedPiece* const piece = found == piece_of.end() ? nullptr : found->second;
    const std::vector<std::string> names =
        NamesInSource(names_of.at(&tensor.impl()), piece != nullptr ? piece->shape : tensor.shape(),
                      tensor.dtype(), given, wrong);
    if (names.empty()) continue;
    for (size_t i = 1; i < names.size(); ++i) repeated.emplace_back(names[i], copies_.size());
    copies_.push_back({names[0], piece != nullptr ? piece->begin : 0,
                       piece != nullptr ? piece->end : tensor.numel(), tensor});
  }
  for (const auto& [name, description] : given) {
    if (!state_tensors.Contains(name)) wrong.push_back(absl::StrCat(name, " is not in the module"));
  }
  if (wrong.empty()) {
    for (const auto& [name, number] : repeated) {
      const Copy& copy = copies_[number];
      if (SameValues(source.LoadRange(copy.name, copy.begin, copy.end),
                     source.LoadRange(name, copy.begin, copy.end))) {
        continue;
      }
      wrong.push_back(absl::StrCat(name, " and ", copy.name,
                                   " are one tensor here and have different values there"));
    }
  }
  if (wrong.empty()) return;
  throw InvalidArgumentError(
      absl::StrCat(call, ": the state does not fit:\n  ", absl::StrJoin(wrong, "\n  ")));
}

void FullStateLoad::Run() const {
  const autograd::NoGradScope no_grad;
  for (const Copy& copy : copies_) {
    if (copy.begin == copy.end) continue;
    const Tensor part = source_.LoadRange(copy.name, copy.begin, copy.end);
    CopyInto(copy.into,
             To(To(Reshape(part, copy.into.shape()), copy.into.dtype()), copy.into.device()));
  }
}

}  // namespace lockstep::strategies
