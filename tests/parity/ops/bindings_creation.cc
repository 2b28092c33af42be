// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Functions of tensor/ops/creation.h and tensor/ops/update.h.

#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/update.h"
#include "lockstep/tests/parity/ops/arguments.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/golden_case.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;
using Results = std::vector<Tensor>;

TensorOptions OptionsOf(const json& args) {
  return {ParseDType(args["dtype"].get<std::string>()), {}};
}

}  // namespace

void AddCreationAndUpdateBindings(BindingTable& table) {
  table["Full"] = [](TensorSpan, const json& a) {
    return Results{Full(ParseShape(a["shape"]), ScalarOf(a["value"]), OptionsOf(a))};
  };
  table["Arange"] = [](TensorSpan, const json& a) {
    return Results{
        Arange(ScalarOf(a["start"]), ScalarOf(a["end"]), ScalarOf(a["step"]), OptionsOf(a))};
  };
  table["RandomUniform"] = [](TensorSpan, const json& a) {
    Generator generator = GeneratorOf(a);
    return Results{RandomUniform(ParseShape(a["shape"]), a["low"], a["high"], {&generator, {}})};
  };
  table["RandomNormal"] = [](TensorSpan, const json& a) {
    Generator generator = GeneratorOf(a);
    return Results{RandomNormal(ParseShape(a["shape"]), a["mean"], a["std"], {&generator, {}})};
  };
  table["GlobalNorm"] = [](TensorSpan x, const json& a) {
    return Results{GlobalNorm(x, a["infinity"] ? NormKind::kInfinity : NormKind::kTwo)};
  };
  table["UnscaleAndCheck"] = [](TensorSpan x, const json& a) {
    Results results;
    for (const Tensor& tensor : x) results.push_back(Clone(tensor));
    const Tensor found_inf = Zeros({});
    UnscaleAndCheck(results, found_inf, a["inverse_scale"]);
    results.push_back(found_inf);
    return results;
  };
  table["ClipByNorm"] = [](TensorSpan x, const json& a) {
    Results gradients;
    for (const Tensor& tensor : x) gradients.push_back(Clone(tensor));
    ClipByNorm(gradients, GlobalNorm(gradients), a["max_norm"]);
    return gradients;
  };
}

}  // namespace lockstep::parity
