// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Functions of tensor/ops/views.h.

#include "lockstep/tensor/ops/views.h"
#include "lockstep/tests/parity/ops/arguments.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/golden_case.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;
using Results = std::vector<Tensor>;

Binding ToShape(Tensor (*function)(const Tensor&, const ShapeArg&), const char* argument) {
  return [function, argument](TensorSpan x, const json& a) {
    return Results{function(x[0], ParseShape(a[argument]))};
  };
}

Binding Along(Tensor (*function)(const Tensor&, int64_t)) {
  return [function](TensorSpan x, const json& a) { return Results{function(x[0], a["dim"])}; };
}

void AddSplits(BindingTable& table) {
  table["Split"] = [](TensorSpan x, const json& a) {
    return Split(x[0], a["size"].get<int64_t>(), a["dim"]);
  };
  table["SplitSizes"] = [](TensorSpan x, const json& a) {
    return Split(x[0], ParseShape(a["sizes"]), a["dim"]);
  };
  table["Chunk"] = [](TensorSpan x, const json& a) { return Chunk(x[0], a["count"], a["dim"]); };
}

}  // namespace

void AddViewBindings(BindingTable& table) {
  table["View"] = ToShape(&View, "shape");
  table["Reshape"] = ToShape(&Reshape, "shape");
  table["Expand"] = ToShape(&Expand, "shape");
  table["Permute"] = ToShape(&Permute, "dims");
  table["Unsqueeze"] = Along(&Unsqueeze);
  table["Squeeze"] = Along(&Squeeze);
  table["Flatten"] = [](TensorSpan x, const json& a) {
    return Results{Flatten(x[0], a["start"], a["end"])};
  };
  table["Transpose"] = [](TensorSpan x, const json& a) {
    return Results{Transpose(x[0], a["dim0"], a["dim1"])};
  };
  table["Slice"] = [](TensorSpan x, const json& a) {
    return Results{Slice(x[0], a["dim"], a["start"], Get<int64_t>(a, "end", INT64_MAX),
                         Get<int64_t>(a, "step", 1))};
  };
  table["Select"] = [](TensorSpan x, const json& a) {
    return Results{Select(x[0], a["dim"], a["index"])};
  };
  table["Detach"] = [](TensorSpan x, const json&) { return Results{Detach(x[0])}; };
  AddSplits(table);
}

}  // namespace lockstep::parity
