// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/contraction_table.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
constexpr InstructionSet kAll[] = {InstructionSet::kBaseline, InstructionSet::kAvx2,
                                   InstructionSet::kAvx512, InstructionSet::kAvx512BFloat16,
                                   InstructionSet::kFastBFloat16};

TEST(ContractionTableTest, Float32LargeProductsGoToOneDnn) {
  EXPECT_EQ(ChooseContraction(DType::kFloat32, InstructionSet::kBaseline, kHuge),
            ContractionMethod::kBlockGemm);
  EXPECT_EQ(ChooseContraction(DType::kFloat32, InstructionSet::kAvx2, 512 * 512 * 512),
            ContractionMethod::kOneDnnPrimitive);
  EXPECT_EQ(ChooseContraction(DType::kFloat32, InstructionSet::kAvx2, 768 * 512 * 128),
            ContractionMethod::kBlockGemm);
  EXPECT_EQ(ChooseContraction(DType::kFloat32, InstructionSet::kAvx512, 384 * 128 * 128),
            ContractionMethod::kOneDnnPrimitive);
  EXPECT_EQ(ChooseContraction(DType::kFloat32, InstructionSet::kAvx512, 64 * 64 * 32),
            ContractionMethod::kBlockGemm);
}

TEST(ContractionTableTest, BFloat16NeedsFastInstructions) {
  for (const InstructionSet isa : kAll) {
    EXPECT_EQ(ChooseContraction(DType::kBFloat16, isa, kHuge),
              isa == InstructionSet::kFastBFloat16 ? ContractionMethod::kOneDnnPrimitive
                                                   : ContractionMethod::kBlockGemm);
  }
}

TEST(ContractionTableTest, WhatOneDnnDoesNotHave) {
  for (const InstructionSet isa : kAll) {
    for (const DType dtype : {DType::kFloat16, DType::kFloat64, DType::kInt64, DType::kInt32}) {
      EXPECT_EQ(ChooseContraction(dtype, isa, kHuge), ContractionMethod::kBlockGemm);
    }
  }
}

TEST(ContractionTableTest, NamesDiffer) {
  EXPECT_EQ(InstructionSetName(InstructionSet::kAvx2), "AVX2");
  EXPECT_NE(InstructionSetName(InstructionSet::kAvx512),
            InstructionSetName(InstructionSet::kAvx512BFloat16));
}

// Runs in processes of its own, because oneDNN reads the variable once: see below.
TEST(ContractionTableTest, EffectiveInstructionSetIsAtMostTheForcedOne) {
  const char* forced = std::getenv("DNNL_MAX_CPU_ISA");
  if (forced == nullptr) GTEST_SKIP() << "for the processes that the next test starts";
  const InstructionSet limit = std::string(forced) == "SSE41"  ? InstructionSet::kBaseline
                               : std::string(forced) == "AVX2" ? InstructionSet::kAvx2
                                                               : InstructionSet::kAvx512;
  EXPECT_LE(EffectiveInstructionSet(), limit) << InstructionSetName(EffectiveInstructionSet());
  if (limit == InstructionSet::kBaseline) {
    EXPECT_EQ(ChooseContraction(DType::kFloat32, kHuge), ContractionMethod::kBlockGemm);
  }
}

TEST(ContractionTableTest, VariableForcesTheRow) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  ASSERT_GT(length, 0);
  const std::string program(self, static_cast<size_t>(length));
  for (const char* isa : {"SSE41", "AVX2", "AVX512_CORE"}) {
    const std::string command =
        std::string("DNNL_MAX_CPU_ISA=") + isa + " '" + program +
        "' --gtest_filter=*EffectiveInstructionSetIsAtMostTheForcedOne >/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << isa;
  }
}

}  // namespace
}  // namespace lockstep::cpu
