// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Autocast: ops called inside the scope run in the precision that suits each, as the op table says
// (docs/ops.md): matrix products and attention in 16 bits, sums of many terms in float32, the rest
// in what they are given. Parameters stay float32; weights are cast once a scope.
//
//   {
//     amp::Autocast autocast;                        // bfloat16 on the CPU
//     loss = model.Loss(ids, targets);
//   }
//   autograd::Backward(loss);                        // outside: each op in its forward op's dtype
//
// Scopes nest, and an inner one with `enabled = false` switches autocast off inside. The scope is
// part of this thread's state: whatever captures that state (a backward, replicas, stages, a
// checkpointed region) runs under the same autocast.
//
// Only floating-point tensors on the scope's kind of device are cast, never float64; in-place forms
// and view ops are left alone. Differences from torch.autocast are in docs/amp.md.
//
// bfloat16 is faster than float32 on the CPU where the processor multiplies it faster
// (tensor/fast_contractions.h: AMX, or AVX-512 BF16 at full rate); elsewhere, and for float16 on
// any processor, contractions convert blocks and compute in float32. That is right, and saves
// memory and little time; it is said once a process on the log (LOG(WARNING)).
#ifndef LOCKSTEP_AMP_AUTOCAST_H_
#define LOCKSTEP_AMP_AUTOCAST_H_

#include <memory>
#include <optional>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::amp {

// As torch.autocast's arguments.
struct AutocastOptions {
  DeviceType device_type = DeviceType::kCpu;
  // kBFloat16 or kFloat16. Default: kBFloat16 on the CPU, kFloat16 on CUDA.
  std::optional<DType> dtype = std::nullopt;
  bool enabled = true;
  // Keeps the 16-bit copies of parameters (leaves that require a gradient) until the outermost
  // scope ends, so that each is cast once. A copy serves again only while its parameter has the
  // same version, and one made under NoGradScope never serves a recorded op.
  bool cache_enabled = true;
  // Activations stay in 16 bits throughout: lookups in tables of parameters (Embedding,
  // IndexSelect, Gather) give 16 bits too, so that the residual stream of a transformer, which
  // begins with one, is not float32 as under PyTorch's lists. Parameters are the float32 master
  // weights as ever, and norms and losses compute in float32.
  bool pure = false;
};

// What programs take as --amp: "" (none), "bf16", "fp16", "pure_bf16" or "pure_fp16". Throws
// InvalidArgument for anything else.
std::optional<AutocastOptions> ParseAutocast(absl::string_view text);

// Scope on this thread; destroyed in the reverse order of construction.
class Autocast {
 public:
  // Throws InvalidArgument for a dtype other than the two, and for a device type without autocast
  // (meta tensors follow the CPU's scope).
  explicit Autocast(const AutocastOptions& options = {});
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::shared_ptr<const LayerState> saved_;
  std::optional<LayerScope> layer_;
  bool outermost_ = false;
};

// What this thread is in. The dtype is the scope's also where autocast is disabled.
bool AutocastEnabled(DeviceType device_type = DeviceType::kCpu);
DType AutocastDType(DeviceType device_type = DeviceType::kCpu);
bool AutocastCacheEnabled();

// Forgets the cached copies, for a parameter changed inside of the scope by means that count no
// version (Tensor::SetData, and so Module::To).
void ClearAutocastCache();
// Bytes that the copies of this thread's scope hold; 0 outside of a scope.
int64_t AutocastCacheBytes();

}  // namespace lockstep::amp

#endif  // LOCKSTEP_AMP_AUTOCAST_H_
