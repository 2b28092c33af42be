// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Gradients of gathering, scattering and joining.

#include "lockstep/autograd/gradients/builtin.h"
#include "lockstep/autograd/gradients/util.h"

namespace lockstep::autograd::gradients {
namespace {

int64_t DimOf(const Context& c) { return c.attributes_as<DimAttributes>().dim; }

}  // namespace

GradientInfo EmbeddingGradient() {
  return {.saves = SaveAlways<0b10>, .gradient = [](const Context& c, Results d) {
            EmbeddingBackwardAttributes attributes;
            attributes.rows = c.InputMeta(0).shape[0];
            d[0] = Dispatch1(OpId::kEmbeddingBackward, {c.Gradient(), c.Input(1)}, {}, attributes);
          }};
}

GradientInfo EmbeddingBackwardGradient() {
  return {.saves = SaveAlways<0b10>, .gradient = [](const Context& c, Results d) {
            d[0] = Embedding(c.Gradient(), c.Input(1));
          }};
}

GradientInfo GatherGradient() {
  return {.saves = SaveAlways<0b10>, .gradient = [](const Context& c, Results d) {
            d[0] = ScatterAdd(ZerosOf(c.InputMeta(0)), DimOf(c), c.Input(1), c.Gradient());
          }};
}

// y = x, plus source at index
GradientInfo ScatterAddGradient() {
  return {.saves = [](const OpCall&,
                      const InputMask& wanted) { return Saves{.inputs = wanted[2] ? 0b10u : 0u}; },
          .gradient =
              [](const Context& c, Results d) {
                if (c.Wanted(0)) d[0] = c.Gradient();
                if (c.Wanted(2)) d[2] = Gather(c.Gradient(), DimOf(c), c.Input(1));
              }};
}

GradientInfo IndexSelectGradient() {
  return {.saves = SaveAlways<0b10>, .gradient = [](const Context& c, Results d) {
            d[0] = IndexAdd(ZerosOf(c.InputMeta(0)), DimOf(c), c.Input(1), c.Gradient());
          }};
}

GradientInfo IndexAddGradient() {
  return {.saves = [](const OpCall&,
                      const InputMask& wanted) { return Saves{.inputs = wanted[2] ? 0b10u : 0u}; },
          .gradient =
              [](const Context& c, Results d) {
                if (c.Wanted(0)) d[0] = c.Gradient();
                if (c.Wanted(2)) d[2] = IndexSelect(c.Gradient(), DimOf(c), c.Input(1));
              }};
}

GradientInfo ConcatGradient() {
  return {.gradient = [](const Context& c, Results d) {
    const int64_t dim = DimOf(c);
    int64_t start = 0;
    for (int i = 0; i < c.input_count(); ++i) {
      const int64_t end = start + c.InputMeta(i).shape[dim];
      if (c.Wanted(i)) d[i] = Slice(c.Gradient(), dim, start, end);
      start = end;
    }
  }};
}

// dx = grad in zeros
GradientInfo SliceBackwardGradient() {
  return {.gradient = [](const Context& c, Results d) {
    const auto& from = c.attributes_as<SliceBackwardAttributes>();
    SliceAttributes attributes;
    attributes.dim = from.dim;
    attributes.start = from.start;
    attributes.step = from.step;
    attributes.length = c.InputMeta(0).shape[from.dim];
    d[0] = Dispatch1(OpId::kSlice, {c.Gradient()}, {}, attributes);
  }};
}

}  // namespace lockstep::autograd::gradients
