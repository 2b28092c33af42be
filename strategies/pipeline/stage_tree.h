// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// StageTree: the parts of stages as one module with the names of the unsplit model.
//
//   StageTree tree;
//   tree.Add("transformer.h.3", block);
//   tree.StateDict();                        // "transformer.h.3.ln_1.weight", ...
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_STAGE_TREE_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_STAGE_TREE_H_

#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/nn/module.h"

namespace lockstep::pipeline {

class StageTree : public nn::Module {
 public:
  // Throws InvalidArgument for a null module, a path that is empty or has an empty component, and a
  // path that is taken, or is part of another.
  void Add(absl::string_view path, std::shared_ptr<nn::Module> module);
  std::string Description() const override { return "StageTree"; }

 private:
  void AddBelow(absl::string_view whole, absl::string_view rest,
                std::shared_ptr<nn::Module> module);
};

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_STAGE_TREE_H_
