// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/wrap_policy.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/attention.h"

namespace lockstep::strategies {
namespace {

// The walk of WrapBySize.
class SizeWalk {
 public:
  explicit SizeWalk(const WrapBySizeOptions& options) : options_(options) {}

  std::vector<WrappedModule> Run(nn::Module& root) {
    for (const auto& [name, child] : root.children()) Visit(name, *child);
    return std::move(chosen_);
  }

 private:
  bool IsLeaf(nn::Module& module) const {
    if (options_.is_leaf) return options_.is_leaf(module);
    return dynamic_cast<nn::CausalSelfAttention*>(&module) != nullptr;
  }

  // The elements at and below `module` that are in no unit.
  int64_t Visit(const std::string& name, nn::Module& module) {
    const auto known = left_.find(&module);
    if (known != left_.end()) return known->second;
    const int64_t left = Choose(name, module);
    left_[&module] = left;
    return left;
  }

  int64_t Choose(const std::string& name, nn::Module& module) {
    int64_t elements = module.ParameterCount();
    if (elements < options_.min_elements || IsLeaf(module)) return elements;
    for (const auto& [child_name, child] : module.children()) {
      const int64_t all = child->ParameterCount();
      elements -= all - Visit(absl::StrCat(name, ".", child_name), *child);
    }
    if (elements < options_.min_elements || module.Description() == "ModuleList") return elements;
    chosen_.push_back({name, &module, {}});
    return 0;
  }

  const WrapBySizeOptions& options_;
  absl::flat_hash_map<const nn::Module*, int64_t> left_;
  std::vector<WrappedModule> chosen_;
};

}  // namespace

WrapPolicy WrapIf(UnitChoice choose) {
  if (!choose) throw InvalidArgumentError("WrapIf: the choice is empty; give a function");
  return [choose = std::move(choose)](nn::Module& root) {
    std::vector<WrappedModule> chosen;
    for (const auto& [name, module] : root.NamedModules()) {
      if (module == &root) continue;
      if (std::optional<UnitOptions> unit = choose(name, *module)) {
        chosen.push_back({name, module, *unit});
      }
    }
    return chosen;
  };
}

WrapPolicy WrapBySize(const WrapBySizeOptions& options) {
  if (options.min_elements < 1) {
    throw InvalidArgumentError(
        absl::StrCat("WrapBySize: min_elements is ", options.min_elements, "; give at least 1"));
  }
  return [options](nn::Module& root) { return SizeWalk(options).Run(root); };
}

WrapPolicy WrapModules(std::vector<nn::Module*> modules) {
  return [modules = std::move(modules)](nn::Module& root) {
    std::vector<WrappedModule> chosen;
    const auto all = root.NamedModules();
    for (size_t i = 0; i < modules.size(); ++i) {
      const auto found = std::find_if(
          all.begin(), all.end(), [&](const auto& entry) { return entry.second == modules[i]; });
      if (found == all.end()) {
        throw InvalidArgumentError(
            absl::StrCat("WrapModules: number ", i, " of ", modules.size(),
                         " is not a module of the tree that is wrapped; give modules below it"));
      }
      if (modules[i] != &root) chosen.push_back({found->first, modules[i], {}});
    }
    return chosen;
  };
}

WrapPolicy WrapAny(std::vector<WrapPolicy> policies) {
  for (size_t i = 0; i < policies.size(); ++i) {
    if (policies[i]) continue;
    throw InvalidArgumentError(
        absl::StrCat("WrapAny: policy ", i, " of ", policies.size(), " is empty; give functions"));
  }
  return [policies = std::move(policies)](nn::Module& root) {
    std::vector<WrappedModule> chosen;
    absl::flat_hash_set<const nn::Module*> seen;
    for (const WrapPolicy& policy : policies) {
      for (WrappedModule& wrapped : policy(root)) {
        if (seen.insert(wrapped.module).second) chosen.push_back(std::move(wrapped));
      }
    }
    return chosen;
  };
}

}  // namespace lockstep::strategies
