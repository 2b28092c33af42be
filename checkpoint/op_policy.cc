// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/op_policy.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::checkpoint {

int64_t OpContext::OutputBytes() const {
  int64_t bytes = 0;
  for (const TensorSpec& spec : InferOutputs(call_)) {
    int64_t count = 1;
    for (const int64_t size : spec.shape) count *= size;
    bytes += count * ItemSize(spec.dtype);
  }
  return bytes;
}

OpPolicy SaveOps(std::vector<OpId> ops) {
  if (ops.empty()) {
    throw InvalidArgumentError(
        "SaveOps: no ops given; leave CheckpointOptions::policy empty to recompute everything");
  }
  return [ops = std::move(ops)](const OpContext& call) {
    return std::find(ops.begin(), ops.end(), call.op()) != ops.end() ? OpDecision::kMustSave
                                                                     : OpDecision::kPreferRecompute;
  };
}

OpPolicy SaveContractions() {
  return SaveOps({OpId::kMatMul, OpId::kLinear, OpId::kScaledDotProductAttention});
}

OpPolicy SaveContractionsExcept(std::vector<Tensor> weights) {
  if (weights.empty()) {
    throw InvalidArgumentError("SaveContractionsExcept: no weights; use SaveContractions()");
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].defined()) continue;
    throw InvalidArgumentError(absl::StrCat("SaveContractionsExcept: weight ", i, " is undefined"));
  }
  return Except(SaveContractions(), [weights = std::move(weights)](const OpContext& call) {
    for (const Tensor& input : call.inputs()) {
      for (const Tensor& weight : weights) {
        if (input.IsSame(weight)) return true;
      }
    }
    return false;
  });
}

OpPolicy Except(OpPolicy policy, std::function<bool(const OpContext& call)> excepted) {
  if (!policy || !excepted) {
    throw InvalidArgumentError("Except: an empty function; give a policy and a condition");
  }
  return [policy = std::move(policy), excepted = std::move(excepted)](const OpContext& call) {
    return excepted(call) ? OpDecision::kPreferRecompute : policy(call);
  };
}

std::vector<Tensor> WeightsOf(nn::Module& model, absl::string_view name) {
  std::vector<Tensor> weights;
  std::vector<std::string> leaves;
  absl::flat_hash_set<const TensorImpl*> seen;
  for (const auto& [path, module] : model.NamedModules()) {
    if (module->children().empty()) leaves.push_back(path);
    if (path != name && !absl::EndsWith(path, absl::StrCat(".", name))) continue;
    for (const Tensor& parameter : module->Parameters()) {
      if (parameter.rank() > 1 && seen.insert(&parameter.impl()).second) {
        weights.push_back(parameter);
      }
    }
  }
  if (weights.empty()) {
    throw NotFoundError(absl::StrCat("WeightsOf: no module \"", name,
                                     "\" with weights; the tree has ",
                                     absl::StrJoin(leaves, ", ")));
  }
  return weights;
}

}  // namespace lockstep::checkpoint
