// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which modules become units, whose parameters are gathered and let go together.
//
//   options.wrap_policy = WrapByType<models::Gpt2Block>();
//   options.wrap_policy = WrapBySize({.min_elements = 1'000'000});
//   options.wrap_policy = WrapModules({model->encoder().get(), model->decoder().get()});
//   options.wrap_policy = WrapIf([](const std::string& name, nn::Module& module) {
//     std::optional<UnitOptions> unit;
//     if (name.starts_with("layers.")) unit = UnitOptions{.param_dtype = DType::kFloat32};
//     return unit;
//   });
//
// A unit has the parameters of its module and of those below that are in no unit of their own
// (unit_plan.h). Small units gather often, large ones hold much memory at once.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_WRAP_POLICY_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_WRAP_POLICY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"

namespace lockstep::strategies {

// What a module's unit has of its own; absent: it is none.
using UnitChoice =
    std::function<std::optional<UnitOptions>(const std::string& name, nn::Module& module)>;

// Each module that `choose` chooses. Throws InvalidArgument when it is empty.
WrapPolicy WrapIf(UnitChoice choose);

// Modules of type T (or derived from it).
template <typename T>
WrapPolicy WrapByType(const UnitOptions& options = {}) {
  return WrapIf([options](const std::string&, nn::Module& module) {
    return dynamic_cast<T*>(&module) != nullptr ? std::optional<UnitOptions>(options)
                                                : std::nullopt;
  });
}

struct WrapBySizeOptions {
  // A module becomes a unit when it has so many elements of parameters beside those of the units
  // below it, which are chosen first.
  int64_t min_elements = 100'000'000;
  // Modules that become none, nor what is in them: they belong to the unit around them. Null:
  // attention.
  std::function<bool(nn::Module& module)> is_leaf = nullptr;
};
// Lists of modules, which are not called, never become one. Throws InvalidArgument for
// min_elements below 1.
WrapPolicy WrapBySize(const WrapBySizeOptions& options = {});

// These modules, which are in the tree below the root: else InvalidArgument at construction.
WrapPolicy WrapModules(std::vector<nn::Module*> modules);

// What any of the policies chooses; the first one's options count. Throws InvalidArgument when one
// is empty.
WrapPolicy WrapAny(std::vector<WrapPolicy> policies);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_WRAP_POLICY_H_
