// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/checkpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/region.h"

namespace lockstep::checkpoint {
namespace {

using UnaryFunction = std::function<Tensor(const Tensor&)>;

void CheckOptions(const CheckpointOptions& options) {
  for (const Generator* generator : options.generators) {
    if (generator == nullptr) throw InvalidArgumentError("Checkpoint: a null generator");
  }
}

}  // namespace

TensorList Checkpoint(CheckpointFunction fn, TensorSpan inputs, const CheckpointOptions& options) {
  if (!fn) throw InvalidArgumentError("Checkpoint: an empty function");
  CheckOptions(options);
  if (!autograd::GradEnabled()) return fn(inputs);
  return std::make_shared<internal::Region>(std::move(fn), inputs, options)->Run(inputs);
}

Tensor Checkpoint(UnaryFunction fn, const Tensor& input, const CheckpointOptions& options) {
  if (!fn) throw InvalidArgumentError("Checkpoint: an empty function");
  return Checkpoint(
      [fn = std::move(fn)](TensorSpan inputs) -> TensorList { return {fn(inputs[0])}; },
      absl::MakeConstSpan(&input, 1), options)[0];
}

Tensor CheckpointSequential(const std::vector<UnaryFunction>& functions, int64_t segments,
                            const Tensor& input, const CheckpointOptions& options) {
  const int64_t count = static_cast<int64_t>(functions.size());
  if (segments < 1 || segments > count) {
    throw InvalidArgumentError(absl::StrCat("CheckpointSequential: ", segments, " segments of ",
                                            count, " functions; give 1 to ", count));
  }
  for (int64_t i = 0; i < count; ++i) {
    if (functions[i]) continue;
    throw InvalidArgumentError(absl::StrCat("CheckpointSequential: function ", i, " is empty"));
  }
  Tensor x = input;
  auto next = functions.begin();
  for (int64_t segment = 0; segment < segments; ++segment) {
    const int64_t length = count / segments + (segment < count % segments ? 1 : 0);
    const std::vector<UnaryFunction> part(next, next + length);
    next += length;
    x = Checkpoint(
        [part](const Tensor& in) {
          Tensor out = in;
          for (const UnaryFunction& function : part) out = function(out);
          return out;
        },
        x, options);
  }
  return x;
}

Tensor CheckpointSequential(const std::vector<std::shared_ptr<nn::UnaryModule>>& modules,
                            int64_t segments, const Tensor& input,
                            const CheckpointOptions& options) {
  std::vector<UnaryFunction> functions;
  for (const auto& module : modules) {
    if (module == nullptr) {
      functions.emplace_back();  // refused below, with its number
    } else {
      functions.push_back([module](const Tensor& x) { return (*module)(x); });
    }
  }
  return CheckpointSequential(functions, segments, input, options);
}

Tensor CheckpointSequential(const nn::Sequential& modules, int64_t segments, const Tensor& input,
                            const CheckpointOptions& options) {
  std::vector<std::shared_ptr<nn::UnaryModule>> list;
  for (size_t i = 0; i < modules.size(); ++i) list.push_back(modules[i]);
  return CheckpointSequential(list, segments, input, options);
}

}  // namespace lockstep::checkpoint
