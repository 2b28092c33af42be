// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The mechanism of dispatch, with ops and kernels of this file's own: no backend is linked.
#include "lockstep/tensor/dispatch.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/attributes.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/meta_recorder.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/tensor_data.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

void SameAsFirst(const OpCall& call, SpecList& outputs) {
  TensorSpec& spec = outputs.emplace_back();
  spec.shape = call.inputs[0].shape();
  spec.dtype = call.inputs[0].dtype();
}

// y = x + other, elementwise over row-major or equally strided operands; reads as it writes.
void AddElements(KernelContext& context, TensorSpan inputs, absl::Span<Tensor> outputs,
                 const Scalars&, const Attributes&) {
  context.Workspace(100);
  const Tensor& x = inputs[0];
  const Tensor& other = inputs[1];
  for (int64_t i = 0; i < x.numel(); ++i) {
    KernelData<float>(outputs[0])[i * (outputs[0].rank() == 0 ? 1 : outputs[0].strides()[0])] =
        KernelData<float>(x)[i * x.strides()[0]] + KernelData<float>(other)[i * other.strides()[0]];
  }
}

void CloneElements(KernelContext&, TensorSpan inputs, absl::Span<Tensor> outputs, const Scalars&,
                   const Attributes&) {
  for (int64_t i = 0; i < inputs[0].numel(); ++i) {
    KernelData<float>(outputs[0])[i] = KernelData<float>(inputs[0])[i * inputs[0].strides()[0]];
  }
}

OpId TestAdd() {
  static const OpId op = [] {
    OpInfo info;
    info.name = "TestAdd";
    info.inputs = ParseInputs("x, other");
    info.outputs = {"y"};
    info.kind = OpKind::kElementwise;
    info.doc = "x + other";
    info.shape_rule = &SameAsFirst;
    const OpId id = RegisterOp(info);
    RegisterKernel(id, DeviceType::kCpu, &AddElements);
    RegisterKernel(OpId::kClone, DeviceType::kCpu, &CloneElements);
    return id;
  }();
  return op;
}

Tensor Reversible(std::vector<float> values) {
  const int64_t count = static_cast<int64_t>(values.size());
  return FromVector<float>(values, {count});
}

Tensor StridedView(const Tensor& base, int64_t offset, int64_t count, int64_t stride) {
  return Tensor(MakeRef<TensorImpl>(base.storage(), Shape{count}, Strides{stride}, offset,
                                    base.dtype(), base.device()));
}

TEST(DispatchTest, RunsAKernelOfAnotherProgramsOp) {
  Tensor x = Reversible({1, 2, 3});
  Tensor y = Dispatch1(TestAdd(), {x, Reversible({10, 20, 30})});
  EXPECT_EQ(y.ToVector<float>(), (std::vector<float>{11, 22, 33}));
  EXPECT_EQ(x.version(), 0);
  EXPECT_EQ(GetMemoryStats(Cpu()).current[MemoryCategory::kWorkspace], 0);
  EXPECT_GE(GetMemoryStats(Cpu()).peak[MemoryCategory::kWorkspace], 100);
}

TEST(DispatchTest, InPlaceReadsEverythingBeforeItWrites) {
  TestAdd();
  // x += (x shifted by one): reading what was just written would give 1 3 6 10.
  Tensor base = Reversible({1, 2, 3, 4, 5});
  Tensor target = StridedView(base, 1, 4, 1);
  Tensor shifted = StridedView(base, 0, 4, 1);
  Tensor result = DispatchInPlace(TestAdd(), {target, shifted});
  EXPECT_TRUE(result.IsSame(target));
  EXPECT_EQ(base.ToVector<float>(), (std::vector<float>{1, 3, 5, 7, 9}));
  EXPECT_EQ(base.version(), 1) << "views share the version";
  DispatchInPlace(TestAdd(), {base, base});
  EXPECT_EQ(base.ToVector<float>(), (std::vector<float>{2, 6, 10, 14, 18}));
}

TEST(DispatchTest, InPlaceRefusesWhatItCannotHold) {
  Tensor one = Reversible({1});
  Tensor expanded = StridedView(one, 0, 3, 0);
  EXPECT_EQ(ErrorOf([&] {
              DispatchInPlace(TestAdd(), {expanded, Reversible({1, 2, 3})});
            }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(one.Item<float>(), 1);
}

TEST(DispatchTest, OperandsMustShareADevice) {
  Tensor x = Reversible({1});
  Tensor y = FromVector<float>({1}, {1}, {.device = Cpu(1)});
  EXPECT_EQ(ErrorOf([&] {
              Dispatch1(TestAdd(), {x, y});
            }).message(),
            "TestAdd: operands on cpu:0 and cpu:1; move one with To(x, device)");
  EXPECT_EQ(ErrorOf([&] { Dispatch1(TestAdd(), {x}); }).message(), "TestAdd: 1 inputs; it takes 2");
  EXPECT_EQ(ErrorOf([&] {
              Dispatch1(TestAdd(), {x, Tensor()});
            }).message(),
            "TestAdd: input 'other' is undefined");
}

TEST(DispatchTest, AMissingKernelNamesTheTargetToLink) {
  Tensor x = Reversible({1});
  const Error error = ErrorOf([&] { Dispatch1(OpId::kExp, {x}); });
  EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(error.message().find("link //tensor/cpu"), std::string::npos) << error.message();
}

TEST(DispatchTest, MetaNeedsNoKernel) {
  Tensor x = Empty({3, 5}, {.device = kMeta});
  Tensor y = Dispatch1(TestAdd(), {x, x});
  EXPECT_EQ(y.device(), kMeta);
  EXPECT_EQ(y.shape(), x.shape());
}

class Origin : public MetaOrigin {
 public:
  explicit Origin(int* unrecorded) : unrecorded_(unrecorded) {}
  void OnUnrecordedWrite() override { ++*unrecorded_; }

 private:
  int* unrecorded_;
};

// Writes down what it hears, and gives what was made an origin.
class NotingRecorder : public MetaRecorder {
 public:
  void OnEmpty(const Tensor& made) override { Note("Empty", made); }
  void OnValues(const Tensor& made, const Tensor& values) override {
    Note(absl::StrCat("values ", values.DebugString(), " ", values.Item<float>({1})), made);
  }
  void OnOp(const OpCall& call, TensorSpan outputs) override {
    notes.push_back(absl::StrCat(GetOpInfo(call.op).name, call.in_place ? " in place" : ""));
    for (const Tensor& output : outputs) {
      if (!call.in_place) output.impl().meta_origin = RefPtr<MetaOrigin>(new Origin(&unrecorded));
    }
  }

  std::vector<std::string> notes;
  int unrecorded = 0;

 private:
  void Note(absl::string_view what, const Tensor& made) {
    notes.push_back(absl::StrCat(what, " for ", made.DebugString()));
    made.impl().meta_origin = RefPtr<MetaOrigin>(new Origin(&unrecorded));
  }
};

TEST(DispatchTest, RecorderHearsOfWhatHappensOnMeta) {
  const auto recorder = std::make_shared<NotingRecorder>();
  Tensor x, view;
  {
    ThreadState state = CurrentThreadState();
    state.meta_recorder = recorder;
    ScopedThreadState scope(state);
    DeviceScope device(kMeta);
    x = Empty({3});
    Tensor y = FromVector<float>({1, 2, 3}, {3});
    Tensor z = Dispatch1(TestAdd(), {x, y});
    view = Dispatch1(OpId::kDetach, {z});
    EXPECT_EQ(view.impl().meta_origin, z.impl().meta_origin);
    DispatchInPlace(TestAdd(), {z, y});
    x.SetData(view);
    EXPECT_EQ(x.impl().meta_origin, z.impl().meta_origin);
    Empty({3}, {.device = Cpu()});  // has bytes: no news
    EXPECT_EQ(recorder->unrecorded, 0);
  }
  EXPECT_EQ(recorder->notes, (std::vector<std::string>{
                                 "Empty for float32[3] on meta", "Empty for float32[3] on meta",
                                 "values float32[3] on host 2 for float32[3] on meta", "TestAdd",
                                 "TestAdd in place"}));
  // Nobody listens any more: a write is reported to what is written, reading is not.
  Dispatch1(TestAdd(), {x, view});
  EXPECT_EQ(recorder->unrecorded, 0);
  DispatchInPlace(TestAdd(), {view, x});
  EXPECT_EQ(recorder->unrecorded, 1);
  x.SetData(FromVector<float>({1}, {1}));
  EXPECT_FALSE(x.impl().meta_origin);
}

TEST(DispatchTest, OutputsGoToTheOperandsDeviceInTheThreadsCategory) {
  DeviceScope device(Cpu(3));
  CategoryScope category(MemoryCategory::kActivation);
  Tensor x = FromVector<float>({1}, {1}, {.device = Cpu(2)});
  Tensor y = Dispatch1(TestAdd(), {x, x});
  EXPECT_EQ(y.device(), Cpu(2));
  EXPECT_EQ(y.storage()->category(), MemoryCategory::kActivation);
}

std::vector<std::string>& Log() {
  static auto* log = new std::vector<std::string>;
  return *log;
}
TensorList UserLayer(const OpCall& call) {
  Log().push_back("user " + GetOpInfo(call.op).name);
  return DispatchBelow(DispatchLayer::kUser, call);
}
TensorList AutocastLayer(const OpCall& call) {
  Log().push_back("autocast " + GetOpInfo(call.op).name);
  return DispatchBelow(DispatchLayer::kAutocast, call);
}

TEST(DispatchTest, LayersRunInOrderAndOnlyWhereTheyAreOn) {
  RegisterLayer(DispatchLayer::kAutocast, &AutocastLayer, /*on_by_default=*/false);
  RegisterLayer(DispatchLayer::kUser, &UserLayer, /*on_by_default=*/false);
  EXPECT_EQ(ErrorOf([] { RegisterLayer(DispatchLayer::kUser, &UserLayer, false); }).code(),
            absl::StatusCode::kAlreadyExists);
  Tensor x = Reversible({1});
  Log().clear();
  Dispatch1(TestAdd(), {x, x});
  EXPECT_TRUE(Log().empty());
  {
    LayerScope autocast(DispatchLayer::kAutocast, true);
    LayerScope user(DispatchLayer::kUser, true);
    LayerScope trace(DispatchLayer::kTrace, true);  // an empty slot is passed over
    Dispatch1(TestAdd(), {x, x});
    {
      LayerScope off(DispatchLayer::kUser, false);
      Dispatch1(TestAdd(), {x, x});
    }
  }
  Dispatch1(TestAdd(), {x, x});
  EXPECT_EQ(Log(),
            (std::vector<std::string>{"user TestAdd", "autocast TestAdd", "autocast TestAdd"}));
}

TEST(OpTableTest, RegistrationIsChecked) {
  TestAdd();
  OpInfo info;
  info.name = "TestAdd";
  EXPECT_EQ(ErrorOf([&] { RegisterOp(info); }).code(), absl::StatusCode::kInvalidArgument);
  info.doc = "again";
  info.shape_rule = &SameAsFirst;
  EXPECT_EQ(ErrorOf([&] { RegisterOp(info); }).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ErrorOf([] { FindOp("NoSuchOp"); }).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ErrorOf([] { GetOpInfo(static_cast<OpId>(OpCount())); }).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ErrorOf([] { RegisterKernel(TestAdd(), DeviceType::kCpu, &AddElements); }).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(FindOp("TestAdd"), TestAdd());
}

TEST(OpTableTest, CostOfAMatMul) {
  Tensor a = Empty({5, 2, 3}, {.device = kMeta});
  Tensor b = Empty({3, 7}, {.device = kMeta});
  MatMulAttributes attributes;
  const Scalars none;
  const Tensor inputs[] = {a, b};
  const OpCall call{OpId::kMatMul, inputs, none, attributes};
  const OpCost cost = EstimateCost(call, InferOutputs(call));
  EXPECT_EQ(cost.flops, 2.0 * 5 * 2 * 3 * 7);
  EXPECT_EQ(cost.bytes, 4 * (5 * 2 * 3 + 3 * 7 + 5 * 2 * 7));
}

}  // namespace
}  // namespace lockstep
