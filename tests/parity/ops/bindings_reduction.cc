// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Functions of tensor/ops/reduction.h and tensor/ops/contraction.h.

#include "lockstep/tensor/ops/contraction.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tests/parity/ops/arguments.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/golden_case.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;
using Results = std::vector<Tensor>;

Binding Reduce(Tensor (*function)(const Tensor&, const ShapeArg&, bool)) {
  return [function](TensorSpan x, const json& a) {
    const Shape dims = a.contains("dims") ? ParseShape(a["dims"]) : Shape();
    return Results{function(x[0], dims, Get(a, "keepdim", false))};
  };
}

Binding ArgReduce(Tensor (*function)(const Tensor&, int64_t, bool)) {
  return [function](TensorSpan x, const json& a) {
    return Results{function(x[0], a["dim"], Get(a, "keepdim", false))};
  };
}

}  // namespace

void AddReductionBindings(BindingTable& table) {
  table["Sum"] = Reduce(&Sum);
  table["Mean"] = Reduce(&Mean);
  table["Max"] = Reduce(&Max);
  table["Min"] = Reduce(&Min);
  table["All"] = Reduce(&All);
  table["Any"] = Reduce(&Any);
  table["ArgMax"] = ArgReduce(&ArgMax);
  table["ArgMin"] = ArgReduce(&ArgMin);
  table["MatMul"] = [](TensorSpan x, const json& a) {
    return Results{MatMul(x[0], x[1],
                          {.transpose_a = Get(a, "transpose_a", false),
                           .transpose_b = Get(a, "transpose_b", false)})};
  };
  table["Linear"] = [](TensorSpan x, const json&) {
    return Results{Linear(x[0], x[1], x.size() > 2 ? x[2] : Tensor())};
  };
}

}  // namespace lockstep::parity
