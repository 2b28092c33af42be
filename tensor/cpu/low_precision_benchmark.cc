// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The ops of a GPT training step in float32 and in bfloat16 (and in the mixed forms that autocast
// makes), on one thread, at the sizes of three models: nano [768, 128], mini [2048, 384] and small
// [512, 768]. Products count FLOP/s, the others the bytes that they must read and write, each once.
//
//   ./bazelw run //tensor/cpu:low_precision_benchmark -- --benchmark_filter=mini
#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::cpu {
namespace {

constexpr DType kFloat = DType::kFloat32;
constexpr DType kHalf = DType::kBFloat16;

struct Model {
  std::string name;
  int64_t rows, width, batch, heads, length;
};

// What a benchmark runs, and its cost.
struct Work {
  std::function<void()> run;
  double flops = 0;
  int64_t bytes = 0;
};

void Register(const Model& model, const std::string& name, const std::function<Work()>& make) {
  benchmark::RegisterBenchmark(absl::StrCat(model.name, "/", name).c_str(),
                               [make](benchmark::State& state) {
                                 SetIntraOpThreads(1);
                                 const Work work = make();
                                 for (auto _ : state) work.run();
                                 if (work.flops > 0) {
                                   state.counters["FLOP/s"] = benchmark::Counter(
                                       work.flops, benchmark::Counter::kIsIterationInvariantRate);
                                 } else {
                                   state.SetBytesProcessed(state.iterations() * work.bytes);
                                 }
                               })
      ->Unit(benchmark::kMicrosecond);
}

Tensor Normal(Shape shape, DType dtype) { return To(RandomNormal(shape), dtype); }

const char* Name(DType dtype) { return dtype == kFloat ? "f32" : "bf16"; }
std::string Name(const char* op, DType dtype) { return absl::StrCat(op, "/", Name(dtype)); }
std::string Name(const char* op, DType x, DType y) {
  return absl::StrCat(op, "/", Name(x), "_", Name(y));
}

// The linear layers: width to 3, 1 and 4 times the width and back, as y, dx and dW.
void AddProducts(const Model& m, DType dtype) {
  for (const auto& [in, out] : {std::pair{1, 3}, {1, 1}, {1, 4}, {4, 1}}) {
    const int64_t inputs = in * m.width, outputs = out * m.width, rows = m.rows;
    const double flops = 2.0 * static_cast<double>(rows * inputs * outputs);
    const std::string size = absl::StrCat(inputs, "x", outputs);
    Register(m, absl::StrCat("linear_", size, "/", Name(dtype)), [=] {
      const Tensor x = Normal({rows, inputs}, dtype), w = Normal({outputs, inputs}, dtype);
      const Tensor b = Normal({outputs}, dtype);
      return Work{[=] { Linear(x, w, b); }, flops};
    });
    Register(m, absl::StrCat("dx_", size, "/", Name(dtype)), [=] {
      const Tensor g = Normal({rows, outputs}, dtype), w = Normal({outputs, inputs}, dtype);
      return Work{[=] { MatMul(g, w); }, flops};
    });
    Register(m, absl::StrCat("dw_", size, "/", Name(dtype)), [=] {
      const Tensor g = Normal({rows, outputs}, dtype), x = Normal({rows, inputs}, dtype);
      return Work{[=] { MatMul(g, x, {.transpose_a = true, .transpose_b = false}); }, flops};
    });
  }
}

void AddAttention(const Model& m, DType dtype) {
  // As slices of one [batch, length, 3, heads, features] tensor, the way the layer makes them.
  const auto operands = [=] {
    const Tensor qkv = Normal({m.batch, m.length, 3, m.heads, m.width / m.heads}, dtype);
    std::vector<Tensor> parts;
    for (int64_t i = 0; i < 3; ++i) {
      parts.push_back(
          Permute(Reshape(Slice(qkv, 2, i, i + 1), {m.batch, m.length, m.heads, m.width / m.heads}),
                  {0, 2, 1, 3}));
    }
    return parts;
  };
  AttentionAttributes attributes;
  attributes.causal = true;
  const Scalars scalars = {0.125, 0.0, 1, 2, 0};
  const double flops = 2.0 * static_cast<double>(m.rows * m.length * m.width);  // causal
  Register(m, Name("attention", dtype), [=] {
    const auto p = operands();
    return Work{[=] {
                  const Tensor inputs[] = {p[0], p[1], p[2], Tensor()};
                  Dispatch({OpId::kScaledDotProductAttention, inputs, scalars, attributes});
                },
                flops};
  });
  Register(m, Name("attention_backward", dtype), [=] {
    const auto p = operands();
    const Tensor inputs[] = {p[0], p[1], p[2], Tensor()};
    const TensorList out =
        Dispatch({OpId::kScaledDotProductAttention, inputs, scalars, attributes});
    const Tensor y = out[0], lse = out[1], grad = Normal(y.shape(), dtype);
    return Work{
        [=] {
          const Tensor backward[] = {grad, p[0], p[1], p[2], Tensor(), y, lse};
          Dispatch({OpId::kScaledDotProductAttentionBackward, backward, scalars, attributes});
        },
        2.5 * flops};
  });
}

void AddElementwise(const Model& m, DType dtype) {
  const int64_t item = ItemSize(dtype), wide = 4 * m.rows * m.width, narrow = m.rows * m.width;
  Register(m, Name("gelu", dtype), [=] {
    const Tensor x = Normal({m.rows, 4 * m.width}, dtype);
    return Work{[=] { Gelu(x, GeluKind::kTanh); }, 0, 2 * wide * item};
  });
  Register(m, Name("gelu_backward", dtype), [=] {
    const Tensor x = Normal({m.rows, 4 * m.width}, dtype), g = Normal(x.shape(), dtype);
    GeluAttributes attributes;
    attributes.kind = GeluKind::kTanh;
    return Work{[=] {
                  const Tensor inputs[] = {g, x};
                  Dispatch({OpId::kGeluBackward, inputs, {}, attributes});
                },
                0, 3 * wide * item};
  });
  Register(m, absl::StrCat("cast/", Name(dtype), "_to_", Name(dtype == kFloat ? kHalf : kFloat)),
           [=] {
             const Tensor x = Normal({m.rows, m.width}, dtype);
             return Work{[=] { To(x, dtype == kFloat ? kHalf : kFloat); }, 0, 6 * narrow};
           });
  Register(m, Name("dropout", dtype), [=] {
    const Tensor x = Normal({m.rows, m.width}, dtype);
    return Work{[=] { Dropout(x, 0.1); }, 0, 2 * narrow * item};
  });
  Register(m, Name("sum_rows", dtype), [=] {
    const Tensor x = Normal({m.rows, 4 * m.width}, dtype);
    return Work{[=] { Sum(x, {0}); }, 0, wide * item};
  });
  Register(m, Name("embedding", dtype), [=] {
    const Tensor weight = Normal({1000, m.width}, dtype);
    const Tensor indices = To(RandomUniform({m.rows}, 0, 1000), DType::kInt64);
    return Work{[=] { Embedding(weight, indices); }, 0, 2 * narrow * item};
  });
  Register(m, Name("embedding_backward", dtype), [=] {
    const Tensor grad = Normal({m.rows, m.width}, dtype);
    const Tensor indices = To(RandomUniform({m.rows}, 0, 1000), DType::kInt64);
    EmbeddingBackwardAttributes attributes;
    attributes.rows = 1000;
    return Work{[=] {
                  const Tensor inputs[] = {grad, indices};
                  Dispatch({OpId::kEmbeddingBackward, inputs, {}, attributes});
                },
                0, (narrow + 1000 * m.width) * item};
  });
}

void AddMixed(const Model& m, DType x_dtype, DType y_dtype) {
  const int64_t count = m.rows * m.width;
  const int64_t x_item = ItemSize(x_dtype), y_item = ItemSize(y_dtype);
  Register(m, Name("add", x_dtype, y_dtype), [=] {
    const Tensor x = Normal({m.rows, m.width}, x_dtype), y = Normal({m.rows, m.width}, y_dtype);
    return Work{[=] { lockstep::Add(x, y); }, 0,
                count * (x_item + y_item + std::max(x_item, y_item))};
  });
}

void AddNorm(const Model& m, DType dtype, DType weight_dtype) {
  const int64_t bytes = m.rows * m.width * ItemSize(dtype);
  Register(m, Name("layer_norm", dtype, weight_dtype), [=] {
    const Tensor x = Normal({m.rows, m.width}, dtype);
    const Tensor w = Normal({m.width}, weight_dtype), b = Normal({m.width}, weight_dtype);
    return Work{[=] { LayerNorm(x, w, b); }, 0, 2 * bytes};
  });
  Register(m, Name("layer_norm_backward", dtype, weight_dtype), [=] {
    const Tensor x = Normal({m.rows, m.width}, dtype), grad = Normal({m.rows, m.width}, dtype);
    const Tensor w = Normal({m.width}, weight_dtype), b = Normal({m.width}, weight_dtype);
    const LayerNormAttributes attributes;
    const Tensor forward[] = {x, w, b};
    const TensorList out = Dispatch({OpId::kLayerNorm, forward, {1e-5}, attributes});
    const Tensor mean = out[1], rstd = out[2];
    return Work{[=] {
                  const Tensor backward[] = {grad, x, mean, rstd, w};
                  Dispatch({OpId::kLayerNormBackward, backward, {}, attributes});
                },
                0, 3 * bytes};
  });
}

void RegisterAll() {
  const Model models[] = {{"nano", 768, 128, 12, 4, 64},
                          {"mini", 2048, 384, 8, 6, 256},
                          {"small", 512, 768, 2, 12, 256}};
  for (const Model& model : models) {
    for (const DType dtype : {kFloat, kHalf}) {
      AddProducts(model, dtype);
      AddAttention(model, dtype);
      AddElementwise(model, dtype);
      AddMixed(model, kFloat, dtype);
      AddNorm(model, dtype, kFloat);
    }
    AddMixed(model, kHalf, kHalf);
    AddNorm(model, kHalf, kHalf);
  }
  Register(models[2], "peak_2048/f32", [] {
    const Tensor a = RandomNormal({2048, 2048}), b = RandomNormal({2048, 2048});
    return Work{[=] { MatMul(a, b); }, 2.0 * 2048 * 2048 * 2048};
  });
  Register(models[2], "peak_2048/bf16", [] {
    const Tensor a = Normal({2048, 2048}, kHalf), b = Normal({2048, 2048}, kHalf);
    return Work{[=] { MatMul(a, b); }, 2.0 * 2048 * 2048 * 2048};
  });
}

[[maybe_unused]] const bool kRegistered = (RegisterAll(), true);

}  // namespace
}  // namespace lockstep::cpu
