// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Which implementation computes a matrix product: one table over (dtype, instruction set, size).
//
// The instruction set is the one that oneDNN may use, so the environment variable DNNL_MAX_CPU_ISA
// (SSE41, AVX2, AVX512_CORE, AVX512_CORE_BF16, ...; read by oneDNN at its first use) forces every
// row on a machine that has more:
//
//   DNNL_MAX_CPU_ISA=AVX2 bazel-bin/tensor/cpu/matmul_test
#ifndef LOCKSTEP_TENSOR_CPU_CONTRACTION_TABLE_H_
#define LOCKSTEP_TENSOR_CPU_CONTRACTION_TABLE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

// Ascending: a processor has everything before its own.
enum class InstructionSet : uint8_t {
  kBaseline,
  kAvx2,
  kAvx512,
  kAvx512BFloat16,  // products of bfloat16, at whatever rate
  kFastBFloat16,    // at twice float32's rate or more: AMX, or AVX-512 BF16 where it is whole
};
absl::string_view InstructionSetName(InstructionSet isa);

enum class ContractionMethod : uint8_t {
  kBlockGemm,        // block_gemm.h; the 16-bit floats are widened panel by panel
  kOneDnnPrimitive,  // onednn_matmul.h
};

// What oneDNN may use in this process.
InstructionSet EffectiveInstructionSet();

// The method for products of `multiply_adds` = m * n * k multiply-adds each.
ContractionMethod ChooseContraction(DType dtype, InstructionSet isa, int64_t multiply_adds);
inline ContractionMethod ChooseContraction(DType dtype, int64_t multiply_adds) {
  return ChooseContraction(dtype, EffectiveInstructionSet(), multiply_adds);
}

// A product of fewer multiply-adds runs on one thread: starting and joining threads costs 5 us.
inline constexpr int64_t kMinParallelMultiplyAdds = 64 * 64 * 64;

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_CONTRACTION_TABLE_H_
