// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/amp/autocast.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"
#include "lockstep/amp/autocast_state.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/fast_contractions.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::amp {
namespace {

using internal::AutocastState;
using internal::CurrentAutocastState;
using internal::kAutocastSlot;

constexpr const char* kMetaRemedy = "; meta tensors follow the CPU's scope";

DType DefaultDType(DeviceType type) {
  return type == DeviceType::kCuda ? DType::kFloat16 : DType::kBFloat16;
}

AutocastState::Precision Validated(const AutocastOptions& options) {
  if (options.device_type != DeviceType::kCpu && options.device_type != DeviceType::kCuda) {
    throw InvalidArgumentError(absl::StrCat(
        "Autocast: no autocast for devices like ", ToString(Device{options.device_type, 0}),
        "; give kCpu or kCuda", options.device_type == DeviceType::kMeta ? kMetaRemedy : ""));
  }
  const DType dtype = options.dtype.value_or(DefaultDType(options.device_type));
  if (dtype != DType::kBFloat16 && dtype != DType::kFloat16) {
    throw InvalidArgumentError(absl::StrCat("Autocast: dtype ", DTypeName(dtype),
                                            "; give bfloat16 or float16 (or enabled = false to "
                                            "compute in the tensors' own dtypes)"));
  }
  return {options.enabled, dtype, options.pure};
}

// A reader of the log should know why mixed precision does not pay here; once for each dtype.
void WarnIfSlow(DeviceType type, DType dtype) {
  if (HasFastContractions(type, dtype) || type != DeviceType::kCpu) return;
  if (dtype == DType::kBFloat16) {
    LOG_FIRST_N(WARNING, 1) << "Autocast: this processor has no bfloat16 instructions that are "
                               "faster than float32's: matrix products convert and compute in "
                               "float32, which saves memory and little time";
  } else {
    LOG_FIRST_N(WARNING, 1)
        << "Autocast: matrix products in float16 convert and compute in "
           "float32 on the CPU, which saves memory and little time; bfloat16 is "
           "the faster dtype where the processor has its instructions";
  }
}

}  // namespace

Autocast::Autocast(const AutocastOptions& options) {
  const AutocastState::Precision precision = Validated(options);
  if (precision.enabled) WarnIfSlow(options.device_type, precision.dtype);
  const AutocastState* current = CurrentAutocastState();
  auto state = current == nullptr ? std::make_shared<AutocastState>()
                                  : std::make_shared<AutocastState>(*current);
  outermost_ = state->depth == 0;
  if (outermost_) state->cache = std::make_shared<internal::CastCache>();
  ++state->depth;
  state->at(options.device_type) = precision;
  state->cache_enabled = options.cache_enabled;
  saved_ = std::exchange(MutableThreadState().layer_state[kAutocastSlot], std::move(state));
  layer_.emplace(DispatchLayer::kAutocast, true);
}

Autocast::~Autocast() {
  // Graphs and captured states may hold the cache for long; it holds nothing from here on.
  if (outermost_) CurrentAutocastState()->cache->Close();
  MutableThreadState().layer_state[kAutocastSlot] = std::move(saved_);
}

std::optional<AutocastOptions> ParseAutocast(absl::string_view text) {
  if (text.empty()) return std::nullopt;
  absl::string_view dtype = text;
  AutocastOptions options;
  options.pure = absl::ConsumePrefix(&dtype, "pure_");
  if (dtype == "bf16") {
    options.dtype = DType::kBFloat16;
  } else if (dtype == "fp16") {
    options.dtype = DType::kFloat16;
  } else {
    throw InvalidArgumentError(
        absl::StrCat("no mixed precision '", text,
                     "'; give bf16, fp16, pure_bf16 or pure_fp16, or nothing for float32"));
  }
  return options;
}

bool AutocastEnabled(DeviceType device_type) {
  const AutocastState* state = CurrentAutocastState();
  return state != nullptr && state->at(device_type).enabled;
}

DType AutocastDType(DeviceType device_type) {
  const AutocastState* state = CurrentAutocastState();
  return state != nullptr ? state->at(device_type).dtype : DefaultDType(device_type);
}

bool AutocastCacheEnabled() {
  const AutocastState* state = CurrentAutocastState();
  return state == nullptr || state->cache_enabled;
}

void ClearAutocastCache() {
  const AutocastState* state = CurrentAutocastState();
  if (state != nullptr) state->cache->Clear();
}

int64_t AutocastCacheBytes() {
  const AutocastState* state = CurrentAutocastState();
  return state != nullptr ? state->cache->bytes() : 0;
}

}  // namespace lockstep::amp
