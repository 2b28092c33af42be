// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/contraction_table.h"

#include <cpuid.h>

#include <cstdint>

#include "oneapi/dnnl/dnnl.hpp"

namespace lockstep::cpu {
namespace {

constexpr int64_t Cube(int64_t side) { return side * side * side; }

struct Row {
  DType dtype;
  InstructionSet isa;         // at least
  int64_t min_multiply_adds;  // at least
  ContractionMethod method;
};

// The first row that fits decides; without one it is BlockGemm (float64, integers and float16,
// which oneDNN 2.6 does not have, and bfloat16 where the processor has no instructions for it).
//
// On Intel's processors from Sapphire Rapids on, VDPBF16PS runs at half the rate of float32's
// multiply-add; where AMX is hidden from a virtual machine, oneDNN's bfloat16 products reach 166
// GFLOP/s on two cores on which BlockGemm, which widens to float32, reaches 290.
//
// Measured on a Zen 3 (AVX2, 100 GFLOP/s a core at its multiply-add limit), one thread, time of
// BlockGemm / dnnl::sgemm / matmul primitive at m = 384..768, k = 128, n = 128..512, best of 40:
//   NN 1 : 1.00 : 1.02     NT 1 : 0.99 : 1.01     TN 1 : 1.14 : 1.15
// and 1 : 3 : 15 at 16^3, 1 : 1.0 : 1.6 at 64 x 64 x 32, 1 : 0.95 : 0.96 at 768^3. So dnnl::sgemm
// is never the one to take: where the primitives' 2 us a call matter BlockGemm is as fast or
// faster, and does not depend on the thread count; above that primitives equal sgemm. With AVX-512
// oneDNN's primitives (brgemm, which sgemm does not use) reach their peak from small sizes on.
constexpr Row kTable[] = {
    {DType::kFloat32, InstructionSet::kAvx512, Cube(96), ContractionMethod::kOneDnnPrimitive},
    {DType::kFloat32, InstructionSet::kAvx2, Cube(512), ContractionMethod::kOneDnnPrimitive},
    {DType::kBFloat16, InstructionSet::kFastBFloat16, Cube(64),
     ContractionMethod::kOneDnnPrimitive},
};

struct CpuId {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  CpuId(unsigned leaf, unsigned subleaf) {
    __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx);
  }
};

// Intel's AVX-512 BF16 is at half rate in the cores that have AVX-512 FP16 too (leaf 7, edx bit
// 23).
bool HasHalfRateBFloat16() {
  constexpr unsigned kGenu = 0x756e6547;  // "Genu", of GenuineIntel
  return CpuId(0, 0).ebx == kGenu && (CpuId(7, 0).edx >> 23 & 1) != 0;
}

}  // namespace

absl::string_view InstructionSetName(InstructionSet isa) {
  switch (isa) {
    case InstructionSet::kBaseline:
      return "baseline";
    case InstructionSet::kAvx2:
      return "AVX2";
    case InstructionSet::kAvx512:
      return "AVX-512";
    case InstructionSet::kAvx512BFloat16:
      return "AVX-512 with bfloat16 at half rate";
    case InstructionSet::kFastBFloat16:
      return "AVX-512 with bfloat16";
  }
  return "unknown";
}

InstructionSet EffectiveInstructionSet() {
  // oneDNN's values are sets of bits: a processor has all bits of what it supports.
  const auto bits = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [bits](dnnl::cpu_isa isa) {
    return (bits & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
  };
  if (has(dnnl::cpu_isa::avx512_core_amx)) return InstructionSet::kFastBFloat16;
  if (has(dnnl::cpu_isa::avx512_core_bf16)) {
    static const bool half_rate = HasHalfRateBFloat16();
    return half_rate ? InstructionSet::kAvx512BFloat16 : InstructionSet::kFastBFloat16;
  }
  if (has(dnnl::cpu_isa::avx512_core)) return InstructionSet::kAvx512;
  if (has(dnnl::cpu_isa::avx2)) return InstructionSet::kAvx2;
  return InstructionSet::kBaseline;
}

ContractionMethod ChooseContraction(DType dtype, InstructionSet isa, int64_t multiply_adds) {
  for (const Row& row : kTable) {
    if (row.dtype == dtype && isa >= row.isa && multiply_adds >= row.min_multiply_adds) {
      return row.method;
    }
  }
  return ContractionMethod::kBlockGemm;
}

}  // namespace lockstep::cpu
