// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Functions of tensor/ops/elementwise.h.

#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tests/parity/ops/arguments.h"
#include "lockstep/tests/parity/ops/bindings.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;
using Results = std::vector<Tensor>;

Binding Unary(Tensor (*function)(const Tensor&)) {
  return [function](TensorSpan x, const json&) { return Results{function(x[0])}; };
}

Binding Binary(Tensor (*function)(const Tensor&, const Tensor&)) {
  return [function](TensorSpan x, const json&) { return Results{function(x[0], x[1])}; };
}

Binding WithScalar(Tensor (*function)(const Tensor&, const Scalar&)) {
  return [function](TensorSpan x, const json& a) {
    return Results{function(x[0], ScalarOf(a["value"]))};
  };
}

Binding Triangle(Tensor (*function)(const Tensor&, int64_t)) {
  return [function](TensorSpan x, const json& a) {
    return Results{function(x[0], Get<int64_t>(a, "diagonal", 0))};
  };
}

void AddUnary(BindingTable& table) {
  table["Neg"] = Unary(&Neg);
  table["Abs"] = Unary(&Abs);
  table["Sign"] = Unary(&Sign);
  table["Exp"] = Unary(&Exp);
  table["Log"] = Unary(&Log);
  table["Sqrt"] = Unary(&Sqrt);
  table["Rsqrt"] = Unary(&Rsqrt);
  table["Reciprocal"] = Unary(&Reciprocal);
  table["Erf"] = Unary(&Erf);
  table["Tanh"] = Unary(&Tanh);
  table["Sigmoid"] = Unary(&Sigmoid);
  table["Relu"] = Unary(&Relu);
  table["LogicalNot"] = Unary(&LogicalNot);
  table["IsFinite"] = Unary(&IsFinite);
  table["Clone"] = Unary(&Clone);
  table["Contiguous"] = Unary(&Contiguous);
  table["Tril"] = Triangle(&Tril);
  table["Triu"] = Triangle(&Triu);
  table["Gelu"] = [](TensorSpan x, const json& a) {
    const bool tanh = Get<std::string>(a, "kind", "none") == "tanh";
    return Results{Gelu(x[0], tanh ? GeluKind::kTanh : GeluKind::kErf)};
  };
  table["Clamp"] = [](TensorSpan x, const json& a) {
    return Results{Clamp(x[0], ScalarOf(a["low"]), ScalarOf(a["high"]))};
  };
}

void AddCopies(BindingTable& table) {
  table["Fill"] = [](TensorSpan x, const json& a) {
    return Results{FillInPlace(Clone(x[0]), ScalarOf(a["value"]))};
  };
  table["Cast"] = [](TensorSpan x, const json& a) {
    return Results{To(x[0], ParseDType(a["dtype"].get<std::string>()))};
  };
  table["CopyToDevice"] = [](TensorSpan x, const json&) {
    return Results{To(x[0], Device{DeviceType::kCpu, 1})};
  };
  table["CopyInto"] = [](TensorSpan x, const json&) {
    return Results{CopyInto(Clone(x[0]), x[1])};
  };
}

void AddBinary(BindingTable& table) {
  table["Add"] = [](TensorSpan x, const json& a) {
    return Results{Add(x[0], x[1], a.contains("alpha") ? ScalarOf(a["alpha"]) : Scalar(1))};
  };
  table["Sub"] = Binary(&Sub);
  table["Mul"] = Binary(&Mul);
  table["Div"] = Binary(&Div);
  table["Pow"] = Binary(&Pow);
  table["Maximum"] = Binary(&Maximum);
  table["Minimum"] = Binary(&Minimum);
  table["Equal"] = Binary(&Equal);
  table["NotEqual"] = Binary(&NotEqual);
  table["Less"] = Binary(&Less);
  table["LessEqual"] = Binary(&LessEqual);
  table["Greater"] = Binary(&Greater);
  table["GreaterEqual"] = Binary(&GreaterEqual);
  table["LogicalAnd"] = Binary(&LogicalAnd);
  table["LogicalOr"] = Binary(&LogicalOr);
  table["Where"] = [](TensorSpan x, const json&) { return Results{Where(x[0], x[1], x[2])}; };
}

void AddScalars(BindingTable& table) {
  table["AddScalar"] = WithScalar(&Add);
  table["SubScalar"] = WithScalar(&Sub);
  table["MulScalar"] = WithScalar(&Mul);
  table["DivScalar"] = WithScalar(&Div);
  table["PowScalar"] = WithScalar(&Pow);
  table["RSubScalar"] = [](TensorSpan x, const json& a) {
    return Results{ScalarOf(a["value"]) - x[0]};
  };
  table["WhereScalar"] = [](TensorSpan x, const json& a) {
    return Results{Where(x[0], x[1], ScalarOf(a["value"]))};
  };
  table["EqualScalar"] = WithScalar(&Equal);
  table["LessScalar"] = WithScalar(&Less);
}

}  // namespace

void AddElementwiseBindings(BindingTable& table) {
  AddUnary(table);
  AddCopies(table);
  AddBinary(table);
  AddScalars(table);
}

}  // namespace lockstep::parity
