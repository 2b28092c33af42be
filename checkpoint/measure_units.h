// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The costs of a model's blocks for budget.h, measured, and a plan applied to them.
//
//   auto blocks = UnitsOf(model.transformer()->h());
//   UnitMeasurement m = MeasureUnits(blocks, [&] { return model.Loss(ids, targets); });
//   BudgetPlan plan = PlanBudget(m.costs, 512 << 20, m.rest_bytes);
//   ApplyPlan(blocks, plan);
#ifndef LOCKSTEP_CHECKPOINT_MEASURE_UNITS_H_
#define LOCKSTEP_CHECKPOINT_MEASURE_UNITS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/checkpoint/budget.h"
#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/nn/containers.h"
#include "lockstep/nn/module.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::checkpoint {

using UnitList = std::vector<std::shared_ptr<nn::Module>>;

// The modules of a list, in order.
template <typename T>
UnitList UnitsOf(const nn::ModuleList<T>& list) {
  return UnitList(list.begin(), list.end());
}

struct UnitMeasurement {
  std::vector<UnitCost> costs;  // named "0", "1", ...: the units' numbers
  int64_t rest_bytes = 0;       // what the trial saves outside of the units
};

struct MeasureOptions {
  OpPolicy selective = SaveContractions();  // what UnitMode::kSelective is
  int repeats = 2;                          // the fastest run of each mode counts
};

// Runs `trial`, a forward pass that calls the units and returns its loss, once. Each unit, when it
// is first called, runs forward and backward in every mode on the inputs it gets, several times (so
// the measurement takes about as long as 2 + 3 * repeats steps). A unit that is called n times has
// n times the cost. Where units share saved tensors (the result of one, kept as the input of the
// next), each counts them: a plan then stays below its limit by as much.
//
// Parameters, gradients, the units' buffers and this thread's random streams are afterwards as they
// were; buffers of other modules are as after one forward pass. Hooks of modules inside units run
// in each of those runs.
//
// Throws InvalidArgument (a null unit, one listed twice, an empty trial, repeats below 1),
// AlreadyExists (a unit has a forward wrapper), FailedPrecondition (nothing is recorded here, a
// unit that the trial does not call, or one whose result does not depend on anything that requires
// a gradient), and what the trial throws.
UnitMeasurement MeasureUnits(const UnitList& units, const std::function<Tensor()>& trial,
                             const MeasureOptions& options = {});

// Checkpoints each unit as the plan says (module_policy.h). Throws InvalidArgument when the plan is
// for another number of units, and for a unit that is null or listed twice; AlreadyExists when one
// has a forward wrapper. Nothing has changed then.
void ApplyPlan(const UnitList& units, const BudgetPlan& plan,
               const OpPolicy& selective = SaveContractions());

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_MEASURE_UNITS_H_
