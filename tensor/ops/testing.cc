// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/ops/testing.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"

namespace lockstep {
namespace testing_util {
namespace {

// The recorder of the test; op tests use one thread.
Recorder*& Active() {
  static Recorder* active = nullptr;
  return active;
}

}  // namespace

Tensor Meta(const Shape& shape, DType dtype) {
  return Empty(shape, {.dtype = dtype, .device = kMeta});
}

std::string Describe(const Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = absl::StrCat(DTypeName(tensor.dtype()), ToString(tensor.shape()));
  if (tensor.strides() != ContiguousStrides(tensor.shape())) {
    absl::StrAppend(&text, "/", ToString(tensor.strides()));
  }
  if (tensor.offset() != 0) absl::StrAppend(&text, "+", tensor.offset());
  return text;
}

std::string Describe(const std::vector<Tensor>& tensors) {
  return absl::StrJoin(tensors, " ", [](std::string* out, const Tensor& tensor) {
    absl::StrAppend(out, Describe(tensor));
  });
}

void ExpectError(absl::StatusCode code, const std::string& part,
                 const std::function<void()>& call) {
  const std::string message = MessageOf(code, call);
  EXPECT_THAT(message, ::testing::HasSubstr(part));
  EXPECT_THAT(message, ::testing::ContainsRegex("^[A-Z][A-Za-z0-9]+( in place)?: "));
}

void ExpectInvalid(const std::string& part, const std::function<void()>& call) {
  ExpectError(absl::StatusCode::kInvalidArgument, part, call);
}

Recorder::Recorder() : scope_(DispatchLayer::kUser, true) {
  static const bool kRegistered = [] {
    RegisterLayer(DispatchLayer::kUser, &Recorder::Record, /*on_by_default=*/false);
    return true;
  }();
  (void)kRegistered;
  Active() = this;
}

Recorder::~Recorder() { Active() = nullptr; }

TensorList Recorder::Record(const OpCall& call) {
  Active()->calls_.push_back({call.op, call.in_place,
                              std::vector<Tensor>(call.inputs.begin(), call.inputs.end()),
                              call.scalars, call.attributes.ToString()});
  return DispatchBelow(DispatchLayer::kUser, call);
}

std::string Recorder::Ops() const {
  return absl::StrJoin(calls_, " ", [](std::string* out, const Call& call) {
    absl::StrAppend(out, GetOpInfo(call.op).name, call.in_place ? "!" : "");
  });
}

}  // namespace testing_util
}  // namespace lockstep
