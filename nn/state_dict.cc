// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Module's state dictionary.

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::nn {
namespace {

// Why `source` cannot be copied into `target`; empty when it can.
std::string Mismatch(const Tensor& target, const Tensor& source) {
  if (target.shape() != source.shape()) {
    return absl::StrCat("has shape ", ToString(source.shape()), " instead of ",
                        ToString(target.shape()));
  }
  const bool convertible = target.dtype() == source.dtype() ||
                           (IsFloatingPoint(target.dtype()) && IsFloatingPoint(source.dtype())) ||
                           (IsIntegral(target.dtype()) && IsIntegral(source.dtype()));
  if (!convertible) {
    return absl::StrCat("is ", DTypeName(source.dtype()), ", which does not convert to ",
                        DTypeName(target.dtype()));
  }
  if (source.device().type == DeviceType::kMeta) return "is on the meta device and has no values";
  if (target.device().type == DeviceType::kMeta) {
    return "belongs to a part of the module on the meta device, which holds no values";
  }
  return "";
}

// NaN counts as equal to NaN.
bool SameValues(const Tensor& a, const Tensor& b) {
  if (a.IsSame(b)) return true;
  const Tensor c = To(To(b, a.dtype()), a.device());
  const Tensor both_nan = LogicalAnd(NotEqual(a, a), NotEqual(c, c));
  return All(LogicalOr(Equal(a, c), both_nan)).Item<bool>();
}

std::string Listed(absl::string_view what, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  return absl::StrCat("\n  ", lines.size(), " ", what, ":\n    ", absl::StrJoin(lines, "\n    "));
}

}  // namespace

NamedTensors Module::StateTensors() const {
  NamedTensors state;
  for (const auto& [name, slot] : AllSlots()) {
    if (slot->persistent) state.Insert(name, *slot->tensor);
  }
  return state;
}

NamedTensors Module::StateDict() const {
  NamedTensors state;
  for (const auto& [name, tensor] : StateTensors()) state.Insert(name, Detach(tensor));
  return state;
}

LoadResult Module::LoadStateDict(const NamedTensors& state, const LoadOptions& options) {
  autograd::NoGradScope no_grad;
  LoadResult result;
  std::vector<std::string> wrong;
  std::vector<std::pair<Tensor, Tensor>> copies;  // target, source
  NamedTensors expected;
  // The name and values that a shared tensor was given first.
  absl::flat_hash_map<const TensorImpl*, std::pair<std::string, Tensor>> given;
  for (const auto& [name, slot] : AllSlots()) {
    if (!slot->persistent) continue;
    const Tensor& target = *slot->tensor;
    expected.Insert(name, target);
    const Tensor* source = state.Find(name);
    if (source == nullptr) {
      result.missing.push_back(name);
      continue;
    }
    if (std::string why = Mismatch(target, *source); !why.empty()) {
      wrong.push_back(absl::StrCat(name, " ", why));
      continue;
    }
    const auto [it, first] = given.try_emplace(&target.impl(), name, *source);
    if (first) {
      copies.emplace_back(target, *source);
    } else if (!SameValues(it->second.second, *source)) {
      wrong.push_back(absl::StrCat(name, " and ", it->second.first,
                                   " are one tensor here and have different values there"));
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!expected.Contains(name)) result.unexpected.push_back(name);
  }
  const bool names_differ = !result.missing.empty() || !result.unexpected.empty();
  if (!wrong.empty() || (options.strict && names_differ)) {
    std::string message = "Module::LoadStateDict: the state does not fit; nothing was loaded";
    if (options.strict) {
      absl::StrAppend(&message, Listed("missing", result.missing),
                      Listed("unexpected", result.unexpected));
    }
    throw InvalidArgumentError(absl::StrCat(message, Listed("that do not fit", wrong)));
  }
  // What can run out of memory comes before the first write.
  for (auto& [target, source] : copies) {
    source = lockstep::To(Detach(source), target.device());
  }
  for (const auto& [target, source] : copies) CopyInto(target, source);
  return result;
}

}  // namespace lockstep::nn
