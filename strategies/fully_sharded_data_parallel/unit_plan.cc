// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/unit_plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

bool IsIgnored(const std::string& name, const std::vector<std::string>& ignored) {
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& entry) {
    return name == entry || absl::StartsWith(name, absl::StrCat(entry, "."));
  });
}

void CheckIgnored(nn::Module& root, const std::vector<std::string>& ignored) {
  std::set<std::string> known;
  for (const auto& [name, module] : root.NamedModules()) known.insert(name);
  for (const std::string& name : root.NamedParameters().Names()) known.insert(name);
  for (const std::string& name : ignored) {
    if (!name.empty() && known.count(name) > 0) continue;
    throw InvalidArgumentError(absl::StrCat(
        "FullyShardedDataParallel: ignored names \"", name,
        "\", which is neither a parameter nor a module below the root (a shared parameter has the "
        "first of its names)"));
  }
}

void CheckDType(const WrappedModule& wrapped, const char* field, std::optional<DType> dtype) {
  if (!dtype.has_value() || IsFloatingPoint(*dtype)) return;
  throw InvalidArgumentError(absl::StrCat("FullyShardedDataParallel: ", field, " of unit \"",
                                          wrapped.name, "\" is ", DTypeName(*dtype),
                                          "; give a floating-point dtype"));
}

void CheckWrapped(nn::Module& root, const WrappedModule& wrapped) {
  if (wrapped.module == nullptr) {
    throw InvalidArgumentError("FullyShardedDataParallel: wrap_policy gives a null module");
  }
  const auto all = root.NamedModules();
  if (std::none_of(all.begin(), all.end(),
                   [&](const auto& entry) { return entry.second == wrapped.module; })) {
    throw InvalidArgumentError(absl::StrCat("FullyShardedDataParallel: wrap_policy gives \"",
                                            wrapped.name, "\", a ", wrapped.module->Description(),
                                            " that is not in the tree below the root"));
  }
  if (wrapped.module != &root && wrapped.module->Description() == "ModuleList") {
    throw InvalidArgumentError(absl::StrCat(
        "FullyShardedDataParallel: wrap_policy gives \"", wrapped.name,
        "\", a ModuleList, which is never called: its parameters would not be gathered; give the "
        "modules in it"));
  }
  CheckDType(wrapped, "param_dtype", wrapped.options.param_dtype);
  CheckDType(wrapped, "reduce_dtype", wrapped.options.reduce_dtype);
}

// The modules that are units, root first, in the order of NamedModules().
std::vector<UnitPlan> ChooseUnits(nn::Module& root,
                                  const FullyShardedDataParallelOptions& options) {
  absl::flat_hash_map<const nn::Module*, UnitPlan> chosen;
  const auto& precise = options.mixed_precision.keep_full_precision;
  if (options.wrap_policy) {
    for (const WrappedModule& wrapped : options.wrap_policy(root)) {
      CheckWrapped(root, wrapped);
      const auto [entry, is_new] = chosen.try_emplace(wrapped.module);
      if (!is_new && !(entry->second.options == wrapped.options)) {
        throw InvalidArgumentError(absl::StrCat("FullyShardedDataParallel: wrap_policy gives \"",
                                                wrapped.name,
                                                "\" twice, with different options; give it once"));
      }
      entry->second.options = wrapped.options;
    }
  }
  std::vector<UnitPlan> units;
  for (const auto& [name, module] : root.NamedModules()) {
    const bool full_precision = precise && precise(name, *module);
    if (full_precision) chosen[module].full_precision = true;
    const auto found = chosen.find(module);
    if (module != &root && found == chosen.end()) continue;
    UnitPlan unit = found == chosen.end() ? UnitPlan{} : std::move(found->second);
    unit.name = name;
    unit.module = module;
    if (unit.full_precision && (unit.options.param_dtype || unit.options.reduce_dtype)) {
      throw InvalidArgumentError(absl::StrCat(
          "FullyShardedDataParallel: unit \"", name,
          "\" has a dtype of its own and is chosen by keep_full_precision; give one of the two"));
    }
    units.push_back(std::move(unit));
  }
  return units;
}

// Finds, for each parameter, the chain of units from the root to the module that has it; of several
// chains, what they have in common.
class UnitSearch {
 public:
  explicit UnitSearch(const std::vector<UnitPlan>& units) {
    for (size_t i = 0; i < units.size(); ++i) index_[units[i].module] = i;
  }

  absl::flat_hash_map<const TensorImpl*, size_t> Run(nn::Module& root) {
    Visit(root);
    absl::flat_hash_map<const TensorImpl*, size_t> unit_of;
    for (const auto& [tensor, chain] : chains_) unit_of[tensor] = chain.back();
    return unit_of;
  }

 private:
  void Visit(nn::Module& module) {
    const auto found = index_.find(&module);
    if (found != index_.end()) chain_.push_back(found->second);
    // A module's own parameters are those that none of its children has under its own name.
    for (const auto& [name, parameter] : module.NamedParameters()) {
      if (absl::StrContains(name, ".")) continue;
      Meet(parameter);
    }
    for (const auto& [name, child] : module.children()) Visit(*child);
    if (found != index_.end()) chain_.pop_back();
  }

  void Meet(const Tensor& parameter) {
    auto [entry, is_new] = chains_.try_emplace(&parameter.impl(), chain_);
    if (is_new) return;
    std::vector<size_t>& common = entry->second;
    size_t same = 0;
    while (same < common.size() && same < chain_.size() && common[same] == chain_[same]) ++same;
    common.resize(same);
  }

  absl::flat_hash_map<const nn::Module*, size_t> index_;
  std::vector<size_t> chain_;
  absl::flat_hash_map<const TensorImpl*, std::vector<size_t>> chains_;
};

void AddToUnit(UnitPlan& unit, const std::string& name, const Tensor& parameter) {
  const bool trainable = autograd::RequiresGrad(parameter);
  for (FlatPlan& flat : unit.flats) {
    if (flat.dtype != parameter.dtype() || flat.device != parameter.device() ||
        flat.trainable != trainable) {
      continue;
    }
    flat.parameters.Insert(name, parameter);
    return;
  }
  unit.flats.push_back({{{name, parameter}}, parameter.dtype(), parameter.device(), trainable});
}

}  // namespace

std::vector<UnitPlan> PlanUnits(nn::Module& root, const FullyShardedDataParallelOptions& options) {
  CheckIgnored(root, options.ignored);
  std::vector<UnitPlan> units = ChooseUnits(root, options);
  const auto unit_of = UnitSearch(units).Run(root);
  bool any = false;
  for (const auto& [name, parameter] : root.NamedParameters()) {
    if (IsIgnored(name, options.ignored)) continue;
    AddToUnit(units[unit_of.at(&parameter.impl())], name, parameter);
    any = true;
  }
  if (!any) {
    throw InvalidArgumentError(
        absl::StrCat("FullyShardedDataParallel: nothing to shard: the module has ",
                     root.NamedParameters().size(), " parameters, and ", options.ignored.size(),
                     " names are ignored; use the module itself"));
  }
  std::erase_if(units,
                [&](const UnitPlan& unit) { return unit.module != &root && unit.flats.empty(); });
  return units;
}

}  // namespace lockstep::strategies
