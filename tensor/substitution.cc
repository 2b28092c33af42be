// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/substitution.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

class SubstitutionLayer : public UserLayer {
 public:
  explicit SubstitutionLayer(std::shared_ptr<const Substitution> substitution)
      : substitution_(std::move(substitution)) {
    if (substitution_ == nullptr) {
      throw InvalidArgumentError("SubstitutionScope: no substitution given");
    }
  }

  const Substitution& substitution() const { return *substitution_; }

  TensorList Run(const OpCall& call, Below below) const override {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (substitution_->Find(call.inputs[i]) != nullptr) return RunSubstituted(call, i, below);
    }
    return below(call);
  }

 private:
  TensorList RunSubstituted(const OpCall& call, size_t first, Below below) const {
    TensorList inputs(call.inputs.begin(), call.inputs.end());
    for (size_t i = first; i < inputs.size(); ++i) {
      if (const Tensor* replacement = substitution_->Find(inputs[i])) inputs[i] = *replacement;
    }
    return below({call.op, inputs, call.scalars, call.attributes, call.in_place});
  }

  std::shared_ptr<const Substitution> substitution_;
};

const SubstitutionLayer* CurrentSubstitution() {
  const UserLayer* layer = FindUserLayer([](const UserLayer& candidate) {
    return dynamic_cast<const SubstitutionLayer*>(&candidate) != nullptr;
  });
  return static_cast<const SubstitutionLayer*>(layer);
}

}  // namespace

void Substitution::Add(const Tensor& original, Tensor replacement) {
  if (!original.defined() || !replacement.defined()) {
    throw InvalidArgumentError(absl::StrCat("Substitution: ", replacement.DebugString(), " for ",
                                            original.DebugString(), "; give defined tensors"));
  }
  if (original.shape() != replacement.shape() || original.dtype() != replacement.dtype()) {
    throw InvalidArgumentError(absl::StrCat("Substitution: ", replacement.DebugString(), " for ",
                                            original.DebugString(),
                                            "; give one of the same shape and dtype"));
  }
  const TensorImpl* const key = original.impl_ptr().get();
  if (!entries_.try_emplace(key, Entry{original, std::move(replacement)}).second) {
    throw InvalidArgumentError(absl::StrCat("Substitution: ", original.DebugString(),
                                            " was added before; add each tensor once"));
  }
}

const Tensor* Substitution::Find(const Tensor& tensor) const {
  const auto found = entries_.find(tensor.impl_ptr().get());
  return found == entries_.end() ? nullptr : &found->second.replacement;
}

SubstitutionScope::SubstitutionScope(std::shared_ptr<const Substitution> substitution)
    : scope_(std::make_shared<SubstitutionLayer>(std::move(substitution))) {}

bool InSubstitution() { return CurrentSubstitution() != nullptr; }

Tensor Substituted(const Tensor& tensor) {
  const SubstitutionLayer* layer = CurrentSubstitution();
  if (layer == nullptr || !tensor.defined()) return tensor;
  const Tensor* replacement = layer->substitution().Find(tensor);
  return replacement == nullptr ? tensor : *replacement;
}

}  // namespace lockstep
