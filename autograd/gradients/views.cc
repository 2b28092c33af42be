// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of views, moves between devices and writes.

#include <vector>

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {

GradientInfo ViewGradient() {
  return {.gradient = [](const Context& c, Results d) {
    d[0] = Reshape(c.Gradient(), c.InputMeta(0).shape);
  }};
}

GradientInfo PermuteGradient() {
  return {.gradient = [](const Context& c, Results d) {
    const Shape& dims = c.attributes_as<PermuteAttributes>().dims;
    Shape inverse(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) inverse[dims[i]] = static_cast<int64_t>(i);
    d[0] = Permute(c.Gradient(), inverse);
  }};
}

GradientInfo ExpandGradient() {
  return {.gradient = [](const Context& c, Results d) {
    d[0] = Unbroadcast(c.Gradient(), c.InputMeta(0));
  }};
}

GradientInfo SliceGradient() {
  return {.gradient = [](const Context& c, Results d) {
    const auto& from = c.attributes_as<SliceAttributes>();
    SliceBackwardAttributes attributes;
    attributes.dim = from.dim;
    attributes.start = from.start;
    attributes.step = from.step;
    attributes.size = c.InputMeta(0).shape[from.dim];
    d[0] = Dispatch1(OpId::kSliceBackward, {c.Gradient()}, {}, attributes);
  }};
}

GradientInfo SplitGradient() {
  return {.gradient = [](const Context& c, Results d) {
    std::vector<Tensor> pieces;
    for (int i = 0; i < c.output_count(); ++i) pieces.push_back(c.GradientOrZeros(i));
    d[0] = Concat(pieces, c.attributes_as<SplitAttributes>().dim);
  }};
}

GradientInfo CopyToDeviceGradient() {
  return {.gradient = [](const Context& c, Results d) {
    d[0] = To(c.Gradient(), c.InputMeta(0).device);
  }};
}

// What was in the destination is gone, so its gradient is zero.
GradientInfo CopyIntoGradient() {
  return {.gradient = [](const Context& c, Results d) {
    if (c.Wanted(0)) d[0] = ExpandedZeros(c.InputMeta(0));
    if (!c.Wanted(1)) return;
    d[1] = Unbroadcast(To(c.Gradient(), c.InputMeta(1).dtype), c.InputMeta(1));
  }};
}

}  // namespace lockstep::autograd::gradients
