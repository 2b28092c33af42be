// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/sharded_stage.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/module.h"
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::pipeline {
namespace {

using strategies::FullyShardedDataParallel;

std::shared_ptr<StageTree> TreeOf(const Stage& stage) {
  auto tree = std::make_shared<StageTree>();
  for (const auto& [path, module] : stage.parts) tree->Add(path, module);
  return tree;
}

// The module that has the parameter, and it alone.
nn::Module* OwnerOf(StageTree& tree, const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  const absl::string_view path =
      dot == std::string::npos ? "" : absl::string_view(parameter).substr(0, dot);
  for (const auto& [name, module] : tree.NamedModules()) {
    if (name != path || !tree.NamedParameters().Contains(parameter)) continue;
    const size_t others = module->NamedParameters().size() - 1;
    if (path.empty() || others > 0) {
      throw InvalidArgumentError(absl::StrCat(
          "ShardedStage: \"", parameter, "\" is tied and its module has ", others,
          " other parameters; put it into a module of its own, so that all copies are cut alike"));
    }
    return module;
  }
  throw InvalidArgumentError(absl::StrCat("ShardedStage: the tied \"", parameter,
                                          "\" is no parameter of this stage; give the names that "
                                          "its parts have in the unsplit model"));
}

}  // namespace

ShardedStage::ShardedStage(Stage stage, std::shared_ptr<comm::Communicator> group,
                           const ShardedStageOptions& options)
    : whole_(std::move(stage)), tree_(TreeOf(whole_)) {
  fsdp_ = std::make_unique<FullyShardedDataParallel>(tree_, std::move(group), Sharding(options));
}

ShardedStage::ShardedStage(Stage stage, const comm::DeviceMesh& mesh,
                           const ShardedStageOptions& options)
    : whole_(std::move(stage)), tree_(TreeOf(whole_)) {
  fsdp_ = std::make_unique<FullyShardedDataParallel>(tree_, mesh, Sharding(options));
}

strategies::FullyShardedDataParallelOptions ShardedStage::Sharding(
    const ShardedStageOptions& options) const {
  strategies::FullyShardedDataParallelOptions sharding = options.sharding;
  if (options.tied.empty()) return sharding;
  std::vector<nn::Module*> owners;
  for (const std::string& name : options.tied) owners.push_back(OwnerOf(*tree_, name));
  strategies::WrapPolicy tied = strategies::WrapModules(std::move(owners));
  sharding.wrap_policy = sharding.wrap_policy == nullptr
                             ? std::move(tied)
                             : strategies::WrapAny({std::move(tied), sharding.wrap_policy});
  return sharding;
}

Stage ShardedStage::stage() {
  Stage stage;
  stage.parts = whole_.parts;
  stage.forward = [this](TensorSpan inputs) {
    return fsdp_->CallMethod(*tree_, TensorList(inputs.begin(), inputs.end()), whole_.forward);
  };
  stage.first_element = [this](const std::string& name) {
    const Tensor parameter = tree_->NamedParameters().At(name);
    for (const FullyShardedDataParallel::Piece& piece : fsdp_->Pieces()) {
      if (piece.tensor.IsSame(parameter)) return piece.begin;
    }
    return int64_t{0};
  };
  return stage;
}

std::shared_ptr<void> ShardedStage::NoSync() {
  return std::make_shared<FullyShardedDataParallel::NoSync>(*fsdp_);
}

}  // namespace lockstep::pipeline
