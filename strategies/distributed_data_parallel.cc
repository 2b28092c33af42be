// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/distributed_data_parallel.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/replica_agreement.h"

namespace lockstep::strategies {
namespace {

constexpr absl::string_view kCall = "DistributedDataParallel";

void CheckOptions(const DistributedDataParallelOptions& options,
                  const std::shared_ptr<comm::Communicator>& group) {
  if (group == nullptr) throw InvalidArgumentError(absl::StrCat(kCall, ": the group is null"));
  if (options.bucket_cap_bytes < 1 || options.first_bucket_bytes < 1) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": bucket_cap_bytes ", options.bucket_cap_bytes,
                                            " and first_bucket_bytes ", options.first_bucket_bytes,
                                            " must be positive"));
  }
  if (options.source_rank < 0 || options.source_rank >= group->size()) {
    throw InvalidArgumentError(absl::StrCat(kCall, ": source_rank ", options.source_rank,
                                            " is not in [0, ", group->size(), ")"));
  }
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(nn::Module& module,
                                                 std::shared_ptr<comm::Communicator> group,
                                                 const DistributedDataParallelOptions& options)
    : module_(module), group_(std::move(group)) {
  CheckOptions(options, group_);
  const NamedTensors parameters = module.NamedParameters();
  const NamedTensors buffers = module.NamedBuffers();
  CheckReplicasAgree(kCall, *group_, parameters, buffers);
  const NamedTensors trainable = parameters.Filter(
      [](const std::string&, const Tensor& tensor) { return autograd::RequiresGrad(tensor); });
  if (trainable.empty()) {
    throw InvalidArgumentError(absl::StrCat(
        kCall, ": none of the ", parameters.size(),
        " parameters requires a gradient: there is nothing to reduce; use the module itself"));
  }
  std::vector<Tensor> state = parameters.Tensors();
  for (const auto& [name, buffer] : buffers) state.push_back(buffer);
  BroadcastTensors(*group_, state, options.source_rank);

  std::vector<ParameterSpec> specs;
  for (const auto& [name, tensor] : trainable) {
    specs.push_back({tensor.numel(), tensor.dtype(), tensor.device()});
  }
  reducer_ = GradientReducer::Create(
      group_, trainable, PlanBuckets(specs, options.first_bucket_bytes, options.bucket_cap_bytes),
      options.record_events);
}

DistributedDataParallel::~DistributedDataParallel() {
  if (reducer_ != nullptr) reducer_->RemoveHooks();
}

}  // namespace lockstep::strategies
