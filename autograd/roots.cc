// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/roots.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/tensor_meta.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/creation.h"

namespace lockstep::autograd::internal {
namespace {

Tensor SeedGradient(const Tensor& output, const Tensor& given, size_t index, const char* call) {
  if (given.defined()) {
    const TensorMeta meta(output);
    if (!meta.Matches(given)) {
      throw InvalidArgumentError(absl::StrCat(call, ": the gradient of output ", index, " is ",
                                              given.DebugString(), " but the output is ",
                                              output.DebugString(), "; give the same kind"));
    }
    return given;
  }
  if (output.numel() != 1) {
    throw InvalidArgumentError(
        absl::StrCat(call, ": output ", index, " (", output.DebugString(), ") has ", output.numel(),
                     " elements; give its gradient, or reduce it to one element, e.g. with Sum"));
  }
  NoGradScope no_grad;
  CategoryScope category(MemoryCategory::kBackward);
  return OnesLike(output);
}

}  // namespace

std::vector<Seed> MakeSeeds(TensorSpan outputs, const std::vector<Tensor>& gradients,
                            const char* call) {
  if (!gradients.empty() && gradients.size() != outputs.size()) {
    throw InvalidArgumentError(absl::StrCat(call, ": ", gradients.size(), " gradients for ",
                                            outputs.size(), " outputs; give one for each"));
  }
  std::vector<Seed> seeds;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& output = outputs[i];
    if (!output.defined()) {
      throw InvalidArgumentError(absl::StrCat(call, ": output ", i, " is undefined"));
    }
    Edge edge = EdgeOf(output);
    if (!edge.valid()) {
      throw FailedPreconditionError(absl::StrCat(
          call, ": output ", i, " (", output.DebugString(),
          ") does not require a gradient: no input of its ops did (SetRequiresGrad), or they ran "
          "under NoGradScope"));
    }
    if (MetaOf(output)->IsStaleView()) {
      throw FailedPreconditionError(absl::StrCat(
          call, ": output ", i, " (", output.DebugString(),
          ") is a view made before its base was changed in place; make the view again"));
    }
    seeds.push_back({std::move(edge),
                     SeedGradient(output, gradients.empty() ? Tensor() : gradients[i], i, call)});
  }
  return seeds;
}

std::vector<Edge> MakeTargets(TensorSpan inputs, const char* call) {
  std::vector<Edge> targets;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Edge edge = inputs[i].defined() ? EdgeOf(inputs[i]) : Edge();
    if (!edge.valid()) {
      throw InvalidArgumentError(absl::StrCat(call, ": input ", i, " (", inputs[i].DebugString(),
                                              ") does not require a gradient; call "
                                              "SetRequiresGrad before the forward pass"));
    }
    targets.push_back(std::move(edge));
  }
  return targets;
}

}  // namespace lockstep::autograd::internal
