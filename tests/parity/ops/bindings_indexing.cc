// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Functions of tensor/ops/indexing.h.

#include "lockstep/tensor/ops/indexing.h"
#include "lockstep/tests/parity/ops/bindings.h"

namespace lockstep::parity {

using nlohmann::json;
using Results = std::vector<Tensor>;

void AddIndexingBindings(BindingTable& table) {
  table["Embedding"] = [](TensorSpan x, const json&) { return Results{Embedding(x[0], x[1])}; };
  table["Gather"] = [](TensorSpan x, const json& a) {
    return Results{Gather(x[0], a["dim"], x[1])};
  };
  table["ScatterAdd"] = [](TensorSpan x, const json& a) {
    return Results{ScatterAdd(x[0], a["dim"], x[1], x[2])};
  };
  table["IndexSelect"] = [](TensorSpan x, const json& a) {
    return Results{IndexSelect(x[0], a["dim"], x[1])};
  };
  table["IndexAdd"] = [](TensorSpan x, const json& a) {
    return Results{IndexAdd(x[0], a["dim"], x[1], x[2])};
  };
  table["Concat"] = [](TensorSpan x, const json& a) { return Results{Concat(x, a["dim"])}; };
  table["Stack"] = [](TensorSpan x, const json& a) { return Results{Stack(x, a["dim"])}; };
}

}  // namespace lockstep::parity
