// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/data_parallel/data_parallel.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/data_parallel/device_list.h"
#include "lockstep/strategies/data_parallel/gather.h"
#include "lockstep/strategies/data_parallel/scatter.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/substitution.h"

namespace lockstep::strategies {
namespace {

// The weight of each replica's mean, by its rows.
Tensor ShareOfRows(int64_t rows, int64_t devices, const Tensor& losses) {
  std::vector<double> shares;
  for (const int64_t size : ScatterSizes(rows, devices)) {
    // No rows have no mean: one piece, whose own loss it is.
    shares.push_back(rows == 0 ? 1.0 : static_cast<double>(size) / static_cast<double>(rows));
  }
  const int64_t count = static_cast<int64_t>(shares.size());
  return FromVector<double>(shares, {count}, {losses.dtype(), losses.device()});
}

}  // namespace

DataParallel::DataParallel(std::shared_ptr<nn::Module> module, DataParallelOptions options)
    : module_(std::move(module)), options_(std::move(options)), replicas_(options_.devices) {
  if (module_ == nullptr) throw InvalidArgumentError("DataParallel: no module given");
  if (options_.threads_per_device < 0) {
    throw InvalidArgumentError(absl::StrCat("DataParallel: threads_per_device is ",
                                            options_.threads_per_device,
                                            "; give at least 1, or 0 to divide the caller's"));
  }
  if (!options_.output_device) options_.output_device = options_.devices[0];
  const Device output[] = {*options_.output_device};
  CheckDevices(output, "DataParallel: output_device");
  ModuleTensors();
}

NamedTensors DataParallel::ModuleTensors() const {
  const Device source = options_.devices[0];
  NamedTensors all = module_->NamedParameters();
  for (const auto& [name, buffer] : module_->NamedBuffers()) all.Insert(name, buffer);
  if (all.empty()) {
    throw InvalidArgumentError(
        "DataParallel: the module has no parameters and no buffers; there is nothing to replicate");
  }
  const auto& [first_name, first] = all[0];
  for (const auto& [name, tensor] : all) {
    if (tensor.device() == first.device()) continue;
    throw InvalidArgumentError(absl::StrCat(
        "DataParallel: the module is on several devices: ", first_name, " on ",
        ToString(first.device()), " and ", name, " on ", ToString(tensor.device()),
        "; move it to one with To(device), or use DistributedDataParallel over its parts"));
  }
  if (first.device() != source) {
    throw InvalidArgumentError(
        absl::StrCat("DataParallel: the module is on ", ToString(first.device()), " (", first_name,
                     ") and the first device is ", ToString(source), "; call To(", ToString(source),
                     ") or give its device first"));
  }
  return all;
}

std::vector<ReplicaFunction> DataParallel::Functions(const ReplicaFunction& fn,
                                                     TensorSpan originals, size_t count) {
  const std::vector<std::vector<Tensor>> copies = replicas_.Update(originals, count);
  std::vector<ReplicaFunction> functions = {fn};  // replica 0 is the module itself
  for (size_t k = 1; k < count; ++k) {
    Substitution substitution;
    for (size_t i = 0; i < originals.size(); ++i) substitution.Add(originals[i], copies[k][i]);
    functions.push_back([&fn, shared = std::make_shared<const Substitution>(
                                  std::move(substitution))](const TensorTree& input) {
      const SubstitutionScope scope(shared);
      return fn(input);
    });
  }
  return functions;
}

TensorTree DataParallel::Run(const ReplicaFunction& fn, const TensorTree& inputs) {
  if (fn == nullptr) throw InvalidArgumentError("DataParallel: no function given");
  if (InSubstitution()) {
    throw FailedPreconditionError(
        "DataParallel: called on a replica of a DataParallel; wrap the outer module only");
  }
  const std::vector<Tensor> originals = ModuleTensors().Tensors();
  const std::vector<TensorTree> pieces = Scatter(inputs, options_.devices, options_.dim);
  const std::vector<Device> devices(options_.devices.begin(),
                                    options_.devices.begin() + static_cast<int64_t>(pieces.size()));
  std::vector<TensorTree> outputs =
      ParallelApply(Functions(fn, originals, pieces.size()), pieces, devices,
                    {.threads_per_device = options_.threads_per_device});
  return Gather(absl::MakeConstSpan(outputs), *options_.output_device, options_.dim);
}

Tensor DataParallel::operator()(const Tensor& x) {
  auto* unary = dynamic_cast<nn::UnaryModule*>(module_.get());
  if (unary == nullptr) {
    throw FailedPreconditionError(
        absl::StrCat("DataParallel: ", module_->Description(),
                     " is no UnaryModule; call Run() with a function that calls the module"));
  }
  const auto call = [unary](const TensorTree& input) {
    return TensorTree((*unary)(input.tensor()));
  };
  return Run(call, TensorTree(x)).tensor();
}

Tensor DataParallel::MeanLoss(const ReplicaFunction& fn, const TensorTree& inputs) {
  const TensorTree output = Run(fn, inputs);
  if (!output.is_tensor() || output.tensor().rank() != 1) {
    throw InvalidArgumentError(absl::StrCat("DataParallel: MeanLoss: the function's results are ",
                                            output.DebugString(),
                                            " together; return one tensor without dimensions"));
  }
  const Tensor& losses = output.tensor();
  const Tensor shares = ShareOfRows(ScatterRows(inputs, options_.dim),
                                    static_cast<int64_t>(options_.devices.size()), losses);
  if (losses.numel() != shares.numel()) {
    throw InvalidArgumentError(absl::StrCat("DataParallel: MeanLoss: ", losses.numel(),
                                            " losses of ", shares.numel(),
                                            " replicas; return one tensor without dimensions"));
  }
  return Sum(losses * shares);
}

TensorTree RunDataParallel(std::shared_ptr<nn::Module> module, const ReplicaFunction& fn,
                           const TensorTree& inputs, const DataParallelOptions& options) {
  return DataParallel(std::move(module), options).Run(fn, inputs);
}

}  // namespace lockstep::strategies
