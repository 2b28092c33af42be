// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Puts the CPU kernels into dispatch's table, and what they are fast in, when a program links
// //tensor/cpu (alwayslink).
#include "lockstep/tensor/cpu/contraction_table.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/fast_contractions.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/op.h"

namespace lockstep::cpu {
namespace {

bool HasFast(DType dtype) {
  return dtype == DType::kBFloat16 && EffectiveInstructionSet() >= InstructionSet::kFastBFloat16;
}

struct Registration {
  Registration() {
#define LOCKSTEP_REGISTER_Creation(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Random(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Elementwise(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Broadcasting(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Reduction(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Contraction(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Normalization(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Indexing(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Copy(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_Update(name) LOCKSTEP_REGISTER(name)
#define LOCKSTEP_REGISTER_View(name)
#define LOCKSTEP_REGISTER(name) RegisterKernel(OpId::k##name, DeviceType::kCpu, name##Kernel);
#define LOCKSTEP_OP(name, inputs, outputs, kind, ...) LOCKSTEP_REGISTER_##kind(name)
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
#undef LOCKSTEP_REGISTER

    RegisterFastContractions(DeviceType::kCpu, &HasFast);

    // Offloaded tensors are moved, cast and filled where they are, and offloaded parameters are
    // updated there.
    RegisterKernel(OpId::kCopyToDevice, DeviceType::kHost, CopyToDeviceKernel);
    RegisterKernel(OpId::kClone, DeviceType::kHost, CloneKernel);
    RegisterKernel(OpId::kCast, DeviceType::kHost, CastKernel);
    RegisterKernel(OpId::kFull, DeviceType::kHost, FullKernel);
    RegisterKernel(OpId::kFill, DeviceType::kHost, FillKernel);
    RegisterKernel(OpId::kAdd, DeviceType::kHost, AddKernel);
    RegisterKernel(OpId::kMul, DeviceType::kHost, MulKernel);
#define LOCKSTEP_OP(name, inputs, outputs, kind, ...) LOCKSTEP_HOST_##kind(name)
#define LOCKSTEP_HOST_Update(name) RegisterKernel(OpId::k##name, DeviceType::kHost, name##Kernel);
#define LOCKSTEP_HOST_Creation(name)
#define LOCKSTEP_HOST_Random(name)
#define LOCKSTEP_HOST_Elementwise(name)
#define LOCKSTEP_HOST_Broadcasting(name)
#define LOCKSTEP_HOST_Reduction(name)
#define LOCKSTEP_HOST_Contraction(name)
#define LOCKSTEP_HOST_Normalization(name)
#define LOCKSTEP_HOST_Indexing(name)
#define LOCKSTEP_HOST_Copy(name)
#define LOCKSTEP_HOST_View(name)
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
  }
};
const Registration registration;

}  // namespace
}  // namespace lockstep::cpu
