// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/distributed_data_parallel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/distributed_data_parallel/parameter_sync.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

// The parameters that require gradients.
NamedTensors Trainable(const NamedTensors& parameters) {
  NamedTensors trainable = parameters.Filter(
      [](const std::string&, const Tensor& t) { return autograd::RequiresGrad(t); });
  if (trainable.empty()) {
    throw InvalidArgumentError(absl::StrCat(
        "DistributedDataParallel: none of the module's ", parameters.size(),
        " parameters requires a gradient; there is nothing to reduce, use the module itself"));
  }
  const auto& [first_name, first] = trainable[0];
  for (const auto& [name, parameter] : trainable) {
    if (parameter.device() != first.device()) {
      throw InvalidArgumentError(absl::StrCat("DistributedDataParallel: parameter ", first_name,
                                              " is on ", ToString(first.device()), " and ", name,
                                              " on ", ToString(parameter.device()),
                                              "; move the module to one device with To(device)"));
    }
  }
  return trainable;
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<nn::Module> module,
                                                 std::shared_ptr<comm::Communicator> group,
                                                 const DistributedDataParallelOptions& options)
    : module_(std::move(module)), group_(std::move(group)) {
  if (!module_ || !group_) {
    throw InvalidArgumentError(absl::StrCat("DistributedDataParallel: the ",
                                            module_ ? "process group" : "module", " is null"));
  }
  const NamedTensors parameters = module_->NamedParameters();
  NamedTensors all = parameters;
  all.InsertAll(module_->NamedBuffers());
  // Before checks of this rank alone: a rank that fails one must not leave the others waiting, and
  // ranks that agree fail it together.
  VerifySameTensors(all, *group_);
  const ReducerOptions reducer_options{
      .buckets = {.bucket_cap_bytes = options.bucket_cap_bytes,
                  .first_bucket_bytes = options.first_bucket_bytes},
      .find_unused_parameters = options.find_unused_parameters};
  reducer_ = std::make_shared<Reducer>(Trainable(parameters), group_, reducer_options);
  BroadcastTensors(all, *group_);
  reducer_->InstallHooks();
}

void DistributedDataParallel::BroadcastBuffers() {
  BroadcastTensors(module_->NamedBuffers(), *group_);
}

DistributedDataParallel::NoSync::NoSync(DistributedDataParallel& ddp) : reducer_(ddp.reducer_) {
  reducer_->ChangeNoSyncDepth(1);
}
DistributedDataParallel::NoSync::~NoSync() { reducer_->ChangeNoSyncDepth(-1); }

}  // namespace lockstep::strategies
