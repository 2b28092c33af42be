// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/engine/engine_support.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::engine {
namespace {

void Refuse(bool given, const absl::AlphaNum& what, absl::string_view remedy) {
  if (given) throw UnimplementedError(absl::StrCat(what, ": ", remedy));
}

}  // namespace

void CheckSupported(const DeepSpeedConfig& config) {
  Refuse(config.gradient_predivide_factor != 1,
         absl::StrCat("gradient_predivide_factor ", config.gradient_predivide_factor),
         "leave it out: sums over ranks are accumulated in float32 and do not overflow");
  Refuse(!ShardsGradients(config) &&
             config.communication_data_type.value_or(DType::kFloat32) != DType::kFloat32,
         "communication_data_type with a stage below 2",
         "leave it out, use stage 2 or 3, or DistributedDataParallel with a compression hook");
  Refuse(config.fp16.auto_cast, "fp16.auto_cast",
         "leave it out: inputs of units are cast as mixed precision says");
}

bool Offloads(const DeepSpeedConfig& config) {
  return config.zero.offload_optimizer == OffloadDevice::kCpu ||
         config.zero.offload_param == OffloadDevice::kCpu;
}

bool ShardsGradients(const DeepSpeedConfig& config) {
  return config.zero.stage >= 2 || (config.zero.stage == 1 && Offloads(config));
}

}  // namespace lockstep::engine
