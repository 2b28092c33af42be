// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which parameters belong to which unit, and which of a unit's are flattened together. No
// communication; the same on every rank.
//
// A parameter belongs to the unit of the nearest module at or above the module that has it. One
// that several modules share (tied weights) belongs to the nearest unit at or above all of them, so
// that it is gathered, and reduced, once.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_UNIT_PLAN_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_UNIT_PLAN_H_

#include <string>
#include <vector>

#include "lockstep/nn/module.h"
#include "lockstep/strategies/fully_sharded_data_parallel/options.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/named_tensors.h"

namespace lockstep::strategies {

// Parameters of one unit that are one flat parameter: of one dtype and device, and either all with
// gradients or none.
struct FlatPlan {
  NamedTensors parameters;
  DType dtype = DType::kFloat32;
  Device device;
  bool trainable = true;
};

struct UnitPlan {
  std::string name;  // path of the module; "" for the root
  nn::Module* module = nullptr;
  UnitOptions options = {};
  bool full_precision = false;  // chosen by MixedPrecision::keep_full_precision
  std::vector<FlatPlan> flats;
};

// The root first, then the others in the order of NamedModules(); units without parameters are left
// out (but for the root). Throws InvalidArgument for names in `options.ignored` that are neither
// parameters nor modules, for what the policy gives when that is null, not below the root, a list
// of modules, chosen twice with different options, or to have a dtype that is not floating-point,
// and when nothing is left to shard.
std::vector<UnitPlan> PlanUnits(nn::Module& root, const FullyShardedDataParallelOptions& options);

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_UNIT_PLAN_H_
