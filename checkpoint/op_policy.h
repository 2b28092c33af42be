// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Selective checkpointing: which op calls of a checkpointed region keep their results and which run
// again.
//
//   CheckpointOptions options{.policy = SaveContractions()};
//   options.policy = SaveContractionsExcept(WeightsOf(model, "c_attn"));
//   options.policy = [](const OpContext& call) {
//     return call.op() == OpId::kSoftmax ? OpDecision::kMustSave : OpDecision::kPreferRecompute;
//   };
//
// A policy is asked for every op call of the region, once when the region runs and once when it is
// recomputed, and has to give the same answer both times. It is not asked about views, which cost
// nothing, and about calls that write to their inputs and casts that autocast makes, which always
// run again.
#ifndef LOCKSTEP_CHECKPOINT_OP_POLICY_H_
#define LOCKSTEP_CHECKPOINT_OP_POLICY_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/op.h"

namespace lockstep::checkpoint {

enum class OpDecision : uint8_t {
  // The results are kept, and count in autograd::SavedBytes(). Changing them in place afterwards is
  // an error (FailedPrecondition) in the backward.
  kMustSave,
  // The same; but where the first pass kept nothing (it had decided otherwise), the op runs again
  // instead of an error.
  kPreferSave,
  // Nothing is kept. Where the first pass kept the results (it had decided otherwise), they are
  // used.
  kPreferRecompute,
  // Nothing is kept, and the op runs again whatever there is.
  kMustRecompute,
};

// One op call, as a policy sees it. Valid during the call of the policy.
class OpContext {
 public:
  OpContext(const OpCall& call, bool is_recompute) : call_(call), is_recompute_(is_recompute) {}

  OpId op() const { return call_.op; }
  const OpInfo& info() const { return GetOpInfo(call_.op); }  // name, kind, ...
  // An optional input that is absent is an undefined tensor. A parameter is the parameter itself.
  TensorSpan inputs() const { return call_.inputs; }
  const Attributes& attributes() const { return call_.attributes; }
  bool is_recompute() const { return is_recompute_; }
  // Bytes of all results, by the op's shape rule (before autocast changes a dtype).
  int64_t OutputBytes() const;

 private:
  const OpCall& call_;
  bool is_recompute_;
};

using OpPolicy = std::function<OpDecision(const OpContext& call)>;

// Saves the results of these ops, and prefers to recompute everything else. Throws InvalidArgument
// when the list is empty.
OpPolicy SaveOps(std::vector<OpId> ops);

// Saves what costs most to compute: MatMul, Linear and ScaledDotProductAttention.
OpPolicy SaveContractions();

// The same, but recomputes those with one of `weights` among their inputs: layers whose result is
// large for what it costs, as the joined projection to queries, keys and values. The weights are
// told by identity and kept alive. Throws InvalidArgument for an undefined weight or none.
OpPolicy SaveContractionsExcept(std::vector<Tensor> weights);

// `policy`, but recomputes the calls for which `excepted` is true. Throws InvalidArgument for an
// empty function.
OpPolicy Except(OpPolicy policy, std::function<bool(const OpContext& call)> excepted);

// The parameters of more than one dimension of every module in the tree whose name is `name` or
// ends with "." and `name` ("c_attn", "attn.c_proj"). Throws NotFound when there is none, listing
// the names of leaf modules.
std::vector<Tensor> WeightsOf(nn::Module& model, absl::string_view name);

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_OP_POLICY_H_
