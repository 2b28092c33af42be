// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Walks the op table: every row is complete. (That differentiable rows have gradients is tested
// where gradients are, in autograd/.)

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/shape_rules.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace {

constexpr int kRows = static_cast<int>(OpId::kBuiltinCount);

// What the X-macro says, as written.
struct Row {
  const char* name;
  const char* inputs;
  const char* outputs;
  ShapeRule rule;
};
constexpr Row kTable[] = {
#define LOCKSTEP_OP(name, inputs, outputs, ...) {#name, inputs, outputs, &rules::Infer##name},
#include "lockstep/tensor/op_list.inc"
#undef LOCKSTEP_OP
};

class OpTableTest : public testing::TestWithParam<int> {
 protected:
  OpId id() const { return static_cast<OpId>(GetParam()); }
  const OpInfo& info() const { return GetOpInfo(id()); }
  const Row& row() const { return kTable[GetParam()]; }
};

TEST_P(OpTableTest, IsFoundByNameAndHasItsRule) {
  EXPECT_EQ(info().name, row().name);
  EXPECT_EQ(FindOp(row().name), id());
  EXPECT_EQ(info().shape_rule, row().rule);
}

TEST_P(OpTableTest, HasOneLineOfDocumentation) {
  EXPECT_FALSE(info().doc.empty());
  EXPECT_FALSE(absl::StrContains(info().doc, "\n"));
  EXPECT_FALSE(absl::EndsWith(info().doc, "."));
}

TEST_P(OpTableTest, InputsAndOutputsParse) {
  std::set<std::string> names;
  std::string text;
  bool single_seen = false, has_list = false;
  for (const OpInfo::Input& input : info().inputs) {
    EXPECT_TRUE(names.insert(input.name).second) << "two inputs " << input.name;
    EXPECT_FALSE(input.optional && input.list) << input.name;
    EXPECT_FALSE(input.list && single_seen) << input.name << ": lists come first";
    single_seen |= !input.list;
    has_list |= input.list;
    absl::StrAppend(&text, text.empty() ? "" : ", ", input.name, input.list ? "*" : "",
                    input.optional ? "?" : "");
  }
  EXPECT_EQ(text, row().inputs);
  EXPECT_EQ(info().has_lists, has_list);
  names.clear();
  text.clear();
  for (const std::string& output : info().outputs) {
    EXPECT_TRUE(names.insert(output).second) << "two outputs " << output;
    absl::StrAppend(&text, text.empty() ? "" : ", ", output, info().output_list ? "*" : "");
  }
  EXPECT_EQ(text, row().outputs);
}

TEST_P(OpTableTest, EffectsAreConsistent) {
  const OpInfo& op = info();
  EXPECT_EQ(op.kind == OpKind::kView, op.view_of >= 0);
  EXPECT_LT(op.view_of, static_cast<int>(op.inputs.size()));
  EXPECT_EQ(op.mutates >> op.inputs.size(), 0u) << "an input that is written does not exist";
  if (op.mutates != 0) {
    EXPECT_EQ(op.kind, OpKind::kUpdate);
  }
  EXPECT_TRUE(!op.outputs.empty() || op.mutates != 0) << "an op without any effect";
  EXPECT_TRUE(!op.output_list || op.outputs.size() == 1);
  const bool has_in_place_form =
      op.kind == OpKind::kElementwise || op.kind == OpKind::kBroadcasting;
  if (has_in_place_form) {
    EXPECT_EQ(op.outputs.size(), 1u);
    EXPECT_FALSE(op.has_lists);
  }
  if (op.inputs.empty()) {
    EXPECT_FALSE(op.differentiable);
  }
}

TEST_P(OpTableTest, AmpClassesAreSet) {
  const OpInfo& op = info();
  for (const DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
    EXPECT_LE(op.amp(type), AmpClass::kRefused);
    if (op.kind == OpKind::kView || op.kind == OpKind::kCreation || op.kind == OpKind::kUpdate ||
        absl::EndsWith(op.name, "Backward")) {
      EXPECT_EQ(op.amp(type), AmpClass::kUntouched);
    }
    if (op.kind == OpKind::kContraction && !absl::EndsWith(op.name, "Backward")) {
      EXPECT_EQ(op.amp(type), AmpClass::kLowPrecision);
    }
  }
  EXPECT_EQ(op.amp(DeviceType::kHost), op.amp_cpu);
}

// This test links //tensor/cpu.
TEST_P(OpTableTest, HasACpuKernelUnlessItIsAView) {
  EXPECT_EQ(FindKernel(id(), DeviceType::kCpu) != nullptr, info().kind != OpKind::kView);
}

TEST_P(OpTableTest, RuleRefusesACallWithoutOperands) {
  if (id() == OpId::kGlobalNorm) return;  // of nothing it is 0
  const Scalars none;
  const OpCall call{id(), {}, none, EmptyAttributes()};
  SpecList specs;
  EXPECT_THROW(info().shape_rule(call, specs), Error);
}

// Whatever the row, its attributes and which input it is: nothing computes over two devices.
TEST_P(OpTableTest, RefusesOperandsOnTwoDevicesNamingBoth) {
  const OpInfo& op = info();
  const size_t count = op.has_lists ? 2 * op.inputs.size() : op.inputs.size();
  const Scalars none;
  for (size_t moved = 0; count > 1 && moved < count; ++moved) {
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < count; ++i) inputs.push_back(Empty({2}, {.device = Cpu(i == moved)}));
    for (const bool in_place : {false, true}) {
      const Error error = ErrorOf([&] {
        Dispatch({id(), inputs, none, EmptyAttributes(), in_place});
      });
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(error.message(),
                absl::StrCat(op.name, ": operands on cpu:", moved == 0 ? 1 : 0,
                             " and cpu:", moved == 0 ? 0 : 1, "; move one with To(x, device)"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryRow, OpTableTest, testing::Range(0, kRows),
                         [](const auto& row) { return std::string(kTable[row.param].name); });

TEST(OpTable, UnknownOps) {
  EXPECT_THROW(FindOp("NoSuchOp"), Error);
  EXPECT_THROW(GetOpInfo(static_cast<OpId>(60000)), Error);
  EXPECT_GE(OpCount(), kRows);
}

}  // namespace
}  // namespace lockstep
