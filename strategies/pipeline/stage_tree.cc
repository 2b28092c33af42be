// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/stage_tree.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline {

void StageTree::Add(absl::string_view path, std::shared_ptr<nn::Module> module) {
  if (module == nullptr) {
    throw InvalidArgumentError(absl::StrCat("pipeline: the module of \"", path, "\" is null"));
  }
  AddBelow(path, path, std::move(module));
}

void StageTree::AddBelow(absl::string_view whole, absl::string_view rest,
                         std::shared_ptr<nn::Module> module) {
  const size_t dot = rest.find('.');
  const std::string name(rest.substr(0, dot));
  if (name.empty()) {
    throw InvalidArgumentError(absl::StrCat(
        "pipeline: the path \"", whole,
        "\" of a part has an empty name; give the path that it has in the unsplit model"));
  }
  std::shared_ptr<nn::Module> there;
  for (const auto& [child_name, child] : children()) {
    if (child_name == name) there = child;
  }
  auto* const below = dynamic_cast<StageTree*>(there.get());
  if (there != nullptr && (below == nullptr || dot == absl::string_view::npos)) {
    throw InvalidArgumentError(
        absl::StrCat("pipeline: the path \"", whole, "\" meets another part's path at \"", name,
                     "\"; each part has a path of its own, and none is part of another. A tied "
                     "copy has another name and stands in PipelineOptions::tied"));
  }
  if (dot == absl::string_view::npos) {
    RegisterModule(name, std::move(module));
    return;
  }
  const absl::string_view deeper = rest.substr(dot + 1);
  if (below != nullptr) return below->AddBelow(whole, deeper, std::move(module));
  auto tree = std::make_shared<StageTree>();
  tree->AddBelow(whole, deeper, std::move(module));
  RegisterModule(name, std::move(tree));
}

}  // namespace lockstep::pipeline
