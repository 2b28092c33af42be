// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/gradients/gradient_cases.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "lockstep/autograd/requires_grad.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/ops.h"

namespace lockstep::autograd {
namespace {

using Inputs = std::vector<Tensor>;
using Function = std::function<std::vector<Tensor>(TensorSpan)>;

using Case = GradientCase;

Tensor Data(const Shape& shape, int seed = 0) { return GradientCaseData(shape, seed); }

Tensor Positive(const Shape& shape, int seed = 0) {
  std::vector<double> values = Data(shape, seed).ToVector<double>();
  for (double& value : values) value = std::abs(value) + 0.5;
  return SetRequiresGrad(FromVector<double>(values, shape), true);
}

// The same numbers with the two last dimensions' strides exchanged.
Tensor Strided(const Tensor& leaf) {
  const Tensor swapped = Clone(Transpose(Detach(leaf), -1, -2));
  return SetRequiresGrad(Transpose(swapped, -1, -2), true);
}

Tensor Ints(const Shape& shape, std::vector<int64_t> values) {
  return FromVector<int64_t>(values, shape);
}

std::vector<Tensor> One(Tensor tensor) { return {std::move(tensor)}; }

void AddUnary(std::vector<Case>& cases, const std::string& row, std::function<Tensor(Tensor)> f,
              Tensor (*make)(const Shape&, int) = &Data, bool second_order = true) {
  const Function function = [f](TensorSpan in) { return One(f(in[0])); };
  cases.push_back({row, "matrix",
                   [make] {
                     return Inputs{make({3, 5}, 1)};
                   },
                   function, second_order});
  cases.push_back({row, "strided",
                   [make] {
                     return Inputs{Strided(make({3, 5}, 2))};
                   },
                   function, second_order});
  cases.push_back(
      {row, "zero_dim", [make] { return Inputs{make({}, 3)}; }, function, second_order});
  cases.push_back({row, "empty",
                   [make] {
                     return Inputs{make({0, 3}, 4)};
                   },
                   function, second_order});
}

void AddBinary(std::vector<Case>& cases, const std::string& row,
               std::function<Tensor(Tensor, Tensor)> f, Tensor (*make)(const Shape&, int) = &Data) {
  const Function function = [f](TensorSpan in) { return One(f(in[0], in[1])); };
  const auto add = [&](const std::string& variant, const Shape& a, const Shape& b) {
    cases.push_back({row, variant, [=] { return Inputs{make(a, 1), make(b, 2)}; }, function});
  };
  add("same", {3, 5}, {3, 5});
  add("broadcast_rows", {3, 5}, {5});
  add("broadcast_both", {3, 1}, {1, 5});
  add("zero_dim", {}, {3, 2});
  add("two_zero_dim", {}, {});
  add("empty", {0, 3}, {1, 3});
  cases.push_back({row, "strided",
                   [=] {
                     return Inputs{Strided(make({3, 5}, 1)), make({3, 5}, 2)};
                   },
                   function});
  cases.push_back({row, "first_only",
                   [=] {
                     return Inputs{make({3, 5}, 1), SetRequiresGrad(make({3, 5}, 2), false)};
                   },
                   function});
  cases.push_back({row, "second_only",
                   [=] {
                     return Inputs{SetRequiresGrad(make({3, 5}, 1), false), make({3, 5}, 2)};
                   },
                   function});
}

Tensor Row(OpId op, TensorSpan inputs, const Attributes& attributes = EmptyAttributes(),
           const Scalars& scalars = {}) {
  return Dispatch1(op, inputs, scalars, attributes);
}

std::vector<Tensor> Rows(OpId op, TensorSpan inputs, const Attributes& attributes,
                         const Scalars& scalars = {}) {
  const TensorList outputs = Dispatch({op, inputs, scalars, attributes});
  return {outputs.begin(), outputs.end()};
}

void AddElementwise(std::vector<Case>& cases) {
  AddUnary(
      cases, "Fill", [](Tensor x) { return Row(OpId::kFill, {x}, EmptyAttributes(), {2.0}); },
      &Data, /*second_order=*/false);
  AddUnary(cases, "Clone", [](Tensor x) { return Clone(x); });
  AddUnary(cases, "Cast", [](Tensor x) {
    CastAttributes attributes;
    attributes.dtype = DType::kFloat64;
    return Row(OpId::kCast, {x}, attributes);
  });
  AddUnary(cases, "Neg", [](Tensor x) { return Neg(x); });
  AddUnary(cases, "Abs", [](Tensor x) { return Abs(x); });
  AddUnary(
      cases, "Sign", [](Tensor x) { return Sign(x); }, &Data, /*second_order=*/false);
  AddUnary(cases, "Exp", [](Tensor x) { return Exp(x); });
  AddUnary(
      cases, "Log", [](Tensor x) { return Log(x); }, &Positive);
  AddUnary(
      cases, "Sqrt", [](Tensor x) { return Sqrt(x); }, &Positive);
  AddUnary(
      cases, "Rsqrt", [](Tensor x) { return Rsqrt(x); }, &Positive);
  AddUnary(
      cases, "Reciprocal", [](Tensor x) { return Reciprocal(x); }, &Positive);
  AddUnary(cases, "Erf", [](Tensor x) { return Erf(x); });
  AddUnary(cases, "Tanh", [](Tensor x) { return Tanh(x); });
  AddUnary(cases, "Sigmoid", [](Tensor x) { return Sigmoid(x); });
  AddUnary(cases, "Relu", [](Tensor x) { return Relu(x); });
  AddUnary(cases, "Gelu", [](Tensor x) { return Gelu(x); });
  AddUnary(cases, "Gelu", [](Tensor x) { return Gelu(x, GeluKind::kTanh); });
  AddUnary(cases, "Clamp", [](Tensor x) { return Clamp(x, -0.7, 1.1); });
  AddUnary(cases, "AddScalar", [](Tensor x) { return Add(x, 1.5); });
  AddUnary(cases, "MulScalar", [](Tensor x) { return Mul(x, -2.5); });
  AddUnary(cases, "DivScalar", [](Tensor x) { return Div(x, 4.0); });
  AddUnary(
      cases, "PowScalar", [](Tensor x) { return Pow(x, 2.5); }, &Positive);
  AddUnary(cases, "PowScalar", [](Tensor x) { return Pow(x, 3.0); });
  AddUnary(cases, "Dropout", [](Tensor x) {
    return Row(OpId::kDropout, {x}, EmptyAttributes(), {0.4, 7, 3, 8});
  });
  for (const bool upper : {false, true}) {
    cases.push_back({"TriangularMask", upper ? "upper" : "lower",
                     [] {
                       return Inputs{Strided(Data({2, 3, 5}))};
                     },
                     [upper](TensorSpan in) { return One(upper ? Triu(in[0], 1) : Tril(in[0])); }});
  }
}

// Backward rows take equal shapes.
void AddBackwardRows(std::vector<Case>& cases) {
  const auto add = [&](const std::string& row, OpId op, const std::string& variant,
                       std::shared_ptr<const Attributes> attributes) {
    const Function function = [=](TensorSpan in) { return One(Row(op, in, *attributes)); };
    cases.push_back({row, variant + "matrix",
                     [] {
                       return Inputs{Data({3, 5}, 1), Data({3, 5}, 2)};
                     },
                     function});
    cases.push_back({row, variant + "strided",
                     [] {
                       return Inputs{Strided(Data({3, 5}, 1)), Strided(Data({3, 5}, 2))};
                     },
                     function});
    cases.push_back({row, variant + "gradient_only",
                     [] {
                       return Inputs{Data({3, 5}, 1), SetRequiresGrad(Data({3, 5}, 2), false)};
                     },
                     function});
    cases.push_back({row, variant + "empty",
                     [] {
                       return Inputs{Data({0, 5}, 1), Data({0, 5}, 2)};
                     },
                     function});
  };
  const auto none = EmptyAttributes().Clone();
  add("TanhBackward", OpId::kTanhBackward, "", none);
  add("SigmoidBackward", OpId::kSigmoidBackward, "", none);
  add("ReluBackward", OpId::kReluBackward, "", none);
  GeluAttributes tanh;
  tanh.kind = GeluKind::kTanh;
  add("GeluBackward", OpId::kGeluBackward, "erf_", GeluAttributes().Clone());
  add("GeluBackward", OpId::kGeluBackward, "tanh_", tanh.Clone());
  DimAttributes last, first;
  last.dim = 1;
  first.dim = 0;
  add("SoftmaxBackward", OpId::kSoftmaxBackward, "last_", last.Clone());
  add("SoftmaxBackward", OpId::kSoftmaxBackward, "first_", first.Clone());
  add("LogSoftmaxBackward", OpId::kLogSoftmaxBackward, "last_", last.Clone());
  add("LogSoftmaxBackward", OpId::kLogSoftmaxBackward, "first_", first.Clone());
}

void AddBroadcasting(std::vector<Case>& cases) {
  AddBinary(cases, "Add", [](Tensor x, Tensor y) { return Add(x, y, 1.5); });
  AddBinary(cases, "Add", [](Tensor x, Tensor y) { return Add(x, y); });
  AddBinary(cases, "Mul", [](Tensor x, Tensor y) { return Mul(x, y); });
  AddBinary(
      cases, "Div", [](Tensor x, Tensor y) { return Div(x, y); }, &Positive);
  AddBinary(
      cases, "Pow", [](Tensor x, Tensor y) { return Pow(x, y); }, &Positive);
  // The offset keeps ties away.
  AddBinary(cases, "Maximum", [](Tensor x, Tensor y) { return Maximum(x, Add(y, 0.01)); });
  AddBinary(cases, "Minimum", [](Tensor x, Tensor y) { return Minimum(x, Add(y, 0.01)); });
  AddBinary(cases, "Where", [](Tensor x, Tensor y) {
    return Where(FromVector<bool>({true}, Shape(std::max(x.rank(), y.rank()), 1)), x, y);
  });
  cases.push_back(
      {"Where", "mixed",
       [] {
         return Inputs{Data({3, 1}, 1), Data({2}, 2)};
       },
       [](TensorSpan in) {
         const Tensor condition = FromVector<bool>({true, false, false, true, true, false}, {3, 2});
         return One(Where(condition, in[0], in[1]));
       }});
}

void AddReductions(std::vector<Case>& cases) {
  using Reduce = Tensor (*)(const Tensor&, const ShapeArg&, bool);
  for (const auto& [row, reduce] : std::vector<std::pair<std::string, Reduce>>{
           {"Sum", &Sum}, {"Mean", &Mean}, {"Max", &Max}, {"Min", &Min}}) {
    for (const Shape& dims : {Shape{}, Shape{0}, Shape{1}, Shape{0, 2}}) {
      for (const bool keepdim : {false, true}) {
        cases.push_back({row, "dims_" + ToString(dims) + (keepdim ? "_kept" : ""),
                         [] {
                           return Inputs{Strided(Data({2, 3, 5}, 1))};
                         },
                         [=](TensorSpan in) { return One(reduce(in[0], dims, keepdim)); }});
      }
    }
    cases.push_back({row, "zero_dim", [] { return Inputs{Data({}, 1)}; },
                     [=](TensorSpan in) { return One(reduce(in[0], Shape(), false)); }});
    cases.push_back({row, "empty",
                     [] {
                       return Inputs{Data({0, 3}, 1)};
                     },
                     [=](TensorSpan in) { return One(reduce(in[0], {1}, false)); }});
  }
}

void AddContractions(std::vector<Case>& cases) {
  struct Shapes {
    std::string name;
    Shape a, b;  // before transposition
  };
  const auto transposed = [](Shape shape) {
    std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    return shape;
  };
  for (const Shapes& shapes :
       {Shapes{"matrices", {2, 3}, {3, 5}}, Shapes{"batched", {2, 2, 3}, {2, 3, 4}},
        Shapes{"one_matrix_for_batch", {2, 2, 3}, {3, 4}},
        Shapes{"batch_for_one_matrix", {2, 3}, {2, 3, 4}},
        Shapes{"broadcast_batch", {2, 1, 2, 3}, {3, 3, 2}}, Shapes{"no_inner", {2, 0}, {0, 3}},
        Shapes{"no_rows", {0, 3}, {3, 2}}}) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        cases.push_back({"MatMul", shapes.name + (ta ? "_ta" : "") + (tb ? "_tb" : ""),
                         [=] {
                           return Inputs{Data(ta ? transposed(shapes.a) : shapes.a, 1),
                                         Data(tb ? transposed(shapes.b) : shapes.b, 2)};
                         },
                         [=](TensorSpan in) {
                           return One(MatMul(in[0], in[1], {.transpose_a = ta, .transpose_b = tb}));
                         }});
      }
    }
  }
  cases.push_back({"MatMul", "strided",
                   [] {
                     return Inputs{Strided(Data({2, 3}, 1)), Strided(Data({3, 4}, 2))};
                   },
                   [](TensorSpan in) { return One(MatMul(in[0], in[1])); }});
  for (const Shape& x : {Shape{3}, Shape{2, 3}, Shape{2, 2, 3}, Shape{0, 3}}) {
    cases.push_back({"Linear", "x_" + ToString(x),
                     [=] {
                       return Inputs{Data(x, 1), Data({4, 3}, 2), Data({4}, 3)};
                     },
                     [](TensorSpan in) { return One(Linear(in[0], in[1], in[2])); }});
  }
  cases.push_back({"Linear", "no_bias_strided",
                   [] {
                     return Inputs{Strided(Data({2, 3}, 1)), Strided(Data({4, 3}, 2))};
                   },
                   [](TensorSpan in) { return One(Linear(in[0], in[1])); }});
  cases.push_back({"Linear", "weight_only",
                   [] {
                     return Inputs{SetRequiresGrad(Data({2, 3}, 1), false), Data({4, 3}, 2)};
                   },
                   [](TensorSpan in) { return One(Linear(in[0], in[1])); }});
}

void AddNormalization(std::vector<Case>& cases) {
  for (const int64_t dim : {0, 1}) {
    const std::string variant = dim == 0 ? "first" : "last";
    cases.push_back({"Softmax", variant,
                     [] {
                       return Inputs{Strided(Data({3, 5}, 1))};
                     },
                     [=](TensorSpan in) { return One(Softmax(in[0], dim)); }});
    cases.push_back({"LogSoftmax", variant,
                     [] {
                       return Inputs{Strided(Data({3, 5}, 1))};
                     },
                     [=](TensorSpan in) { return One(LogSoftmax(in[0], dim)); }});
  }
  cases.push_back({"Softmax", "empty",
                   [] {
                     return Inputs{Data({0, 5}, 1)};
                   },
                   [](TensorSpan in) { return One(Softmax(in[0], 1)); }});

  // All three outputs: users see y only, but second order goes through the others.
  const auto layer_norm = [](int64_t rank) -> Function {
    return [rank](TensorSpan in) {
      LayerNormAttributes attributes;
      attributes.normalized_rank = rank;
      return Rows(OpId::kLayerNorm, in, attributes, {1e-3});
    };
  };
  cases.push_back({"LayerNorm", "weight_and_bias",
                   [] {
                     return Inputs{Data({3, 5}, 1), Data({5}, 2), Data({5}, 3)};
                   },
                   layer_norm(1)});
  cases.push_back({"LayerNorm", "plain",
                   [] {
                     return Inputs{Data({2, 5}, 1), {}, {}};
                   },
                   layer_norm(1)});
  cases.push_back({"LayerNorm", "two_dims",
                   [] {
                     return Inputs{Strided(Data({2, 3, 2}, 1)), Data({3, 2}, 2), {}};
                   },
                   layer_norm(2)});
  cases.push_back({"LayerNorm", "whole",
                   [] {
                     return Inputs{Data({5}, 1), Data({5}, 2), {}};
                   },
                   layer_norm(1)});
  const auto layer_norm_backward = [](TensorSpan in) {
    LayerNormAttributes attributes;
    return Rows(OpId::kLayerNormBackward, in, attributes);
  };
  cases.push_back({"LayerNormBackward", "weight",
                   [] {
                     return Inputs{Data({3, 5}, 1), Data({3, 5}, 2), Data({3}, 3), Positive({3}, 4),
                                   Data({5}, 5)};
                   },
                   layer_norm_backward});
  cases.push_back(
      {"LayerNormBackward", "plain",
       [] {
         return Inputs{Data({2, 5}, 1), Data({2, 5}, 2), Data({2}, 3), Positive({2}, 4), {}};
       },
       layer_norm_backward});
}

void AddCrossEntropy(std::vector<Case>& cases) {
  for (const Reduction reduction : {Reduction::kNone, Reduction::kMean, Reduction::kSum}) {
    for (const double smoothing : {0.0, 0.1}) {
      CrossEntropyAttributes attributes;
      attributes.reduction = reduction;
      attributes.ignore_index = -1;
      const std::string variant =
          std::to_string(static_cast<int>(reduction)) + (smoothing > 0 ? "_smoothed" : "");
      const auto target = [] { return Ints({3}, {4, -1, 0}); };
      cases.push_back(
          {"CrossEntropy", variant,
           [] {
             return Inputs{Data({3, 5}, 1)};
           },
           [=](TensorSpan in) {
             return Rows(OpId::kCrossEntropy, {in[0], target()}, attributes, {smoothing});
           }});
      const Shape loss = reduction == Reduction::kNone ? Shape{3} : Shape{};
      cases.push_back({"CrossEntropyBackward", variant,
                       [=] {
                         return Inputs{Data(loss, 1), Data({3, 5}, 2), Positive({3}, 3)};
                       },
                       [=](TensorSpan in) {
                         return Rows(OpId::kCrossEntropyBackward, {in[0], in[1], target(), in[2]},
                                     attributes, {smoothing});
                       }});
    }
  }
}

void AddAttention(std::vector<Case>& cases) {
  struct Variant {
    std::string name;
    bool causal = false;
    double dropout = 0;
    std::function<Tensor()> mask = [] { return Tensor(); };
  };
  const auto bool_mask = [] {  // the second row may attend to nothing
    return FromVector<bool>(
        {true, false, true, true, false, false, false, false, true, true, true, false}, {3, 4});
  };
  for (const Variant& variant :
       {Variant{.name = "plain"}, Variant{.name = "causal", .causal = true},
        Variant{.name = "bool_mask", .mask = bool_mask},
        Variant{.name = "float_mask",
        .mask =
                    [] {
                      return Data({3, 4}, 9);
                    }},
        Variant{.name = "float_mask_broadcast",
        .mask =
                    [] {
                      return Data({2, 1, 4}, 9);
                    }},
        Variant{.name = "dropout", .dropout = 0.3}}) {
    AttentionAttributes attributes;
    attributes.causal = variant.causal;
    const Scalars scalars = {0.7, variant.dropout, 11, 5, 16};
    cases.push_back({"ScaledDotProductAttention", variant.name,
                     [=] {
                       return Inputs{Data({2, 3, 2}, 1), Strided(Data({2, 4, 2}, 2)),
                                     Data({2, 4, 3}, 3), variant.mask()};
                     },
                     [=](TensorSpan in) {
                       auto outputs =
                           Rows(OpId::kScaledDotProductAttention, in, attributes, scalars);
                       // Infinite for the row that may attend to nothing.
                       outputs[1] = Where(IsFinite(outputs[1]), outputs[1], 0.0);
                       return outputs;
                     }});
    cases.push_back({"ScaledDotProductAttentionBackward", variant.name,
                     [=] {
                       return Inputs{Data({2, 3, 3}, 4), Data({2, 3, 2}, 1), Data({2, 4, 2}, 2),
                                     Data({2, 4, 3}, 3), variant.mask(),     Data({2, 3, 3}, 5),
                                     Positive({2, 3}, 6)};
                     },
                     [=](TensorSpan in) {
                       return Rows(OpId::kScaledDotProductAttentionBackward, in, attributes,
                                   scalars);
                     }});
  }
}

void AddIndexing(std::vector<Case>& cases) {
  cases.push_back({"Embedding", "repeats",
                   [] {
                     return Inputs{Data({4, 3}, 1)};
                   },
                   [](TensorSpan in) {
                     return One(Embedding(in[0], Ints({2, 2}, {3, 0, 3, 3})));
                   }});
  cases.push_back({"Embedding", "empty",
                   [] {
                     return Inputs{Data({4, 3}, 1)};
                   },
                   [](TensorSpan in) { return One(Embedding(in[0], Ints({0}, {}))); }});
  cases.push_back(
      {"EmbeddingBackward", "repeats",
       [] {
         return Inputs{Data({3, 2}, 1)};
       },
       [](TensorSpan in) {
         EmbeddingBackwardAttributes attributes;
         attributes.rows = 4;
         return One(Row(OpId::kEmbeddingBackward, {in[0], Ints({3}, {1, 3, 1})}, attributes));
       }});
  const auto index = [] { return Ints({2, 3}, {0, 2, 2, 1, 0, 2}); };
  cases.push_back({"Gather", "dim_1",
                   [] {
                     return Inputs{Strided(Data({3, 4}, 1))};
                   },
                   [=](TensorSpan in) { return One(Gather(in[0], 1, index())); }});
  cases.push_back({"Gather", "dim_0",
                   [] {
                     return Inputs{Data({3, 4}, 1)};
                   },
                   [=](TensorSpan in) { return One(Gather(in[0], 0, index())); }});
  cases.push_back({"ScatterAdd", "dim_1",
                   [] {
                     return Inputs{Data({3, 4}, 1), Strided(Data({2, 3}, 2))};
                   },
                   [=](TensorSpan in) { return One(ScatterAdd(in[0], 1, index(), in[1])); }});
  cases.push_back({"IndexSelect", "dim_1",
                   [] {
                     return Inputs{Data({2, 3, 2}, 1)};
                   },
                   [](TensorSpan in) {
                     return One(IndexSelect(in[0], 1, Ints({3}, {2, 0, 2})));
                   }});
  cases.push_back({"IndexAdd", "dim_0",
                   [] {
                     return Inputs{Data({3, 2}, 1), Strided(Data({3, 2}, 2))};
                   },
                   [](TensorSpan in) {
                     return One(IndexAdd(in[0], 0, Ints({3}, {2, 0, 2}), in[1]));
                   }});
  cases.push_back({"Concat", "dim_1",
                   [] {
                     return Inputs{Data({2, 3}, 1), Data({2, 0}, 2), Strided(Data({2, 2}, 3))};
                   },
                   [](TensorSpan in) { return One(Concat(in, 1)); }});
  cases.push_back({"SliceBackward", "step_2",
                   [] {
                     return Inputs{Data({2, 2}, 1)};
                   },
                   [](TensorSpan in) {
                     SliceBackwardAttributes attributes;
                     attributes.dim = 1;
                     attributes.start = 1;
                     attributes.step = 2;
                     attributes.size = 5;
                     return One(Row(OpId::kSliceBackward, {in[0]}, attributes));
                   }});
}

void AddViews(std::vector<Case>& cases) {
  const auto matrix = [] { return Inputs{Data({4, 3}, 1)}; };
  cases.push_back({"View", "split_dim", matrix, [](TensorSpan in) {
                     return One(View(in[0], {2, 6}));
                   }});
  cases.push_back({"View", "zero_dim",
                   [] {
                     return Inputs{Data({1, 1}, 1)};
                   },
                   [](TensorSpan in) { return One(View(in[0], Shape())); }});
  cases.push_back({"Permute", "cycle",
                   [] {
                     return Inputs{Data({2, 3, 4}, 1)};
                   },
                   [](TensorSpan in) {
                     return One(Permute(in[0], {2, 0, 1}));
                   }});
  cases.push_back({"Expand", "new_and_stretched",
                   [] {
                     return Inputs{Data({3, 1}, 1)};
                   },
                   [](TensorSpan in) {
                     return One(Expand(in[0], {2, 3, 4}));
                   }});
  cases.push_back({"Expand", "zero_dim", [] { return Inputs{Data({}, 1)}; },
                   [](TensorSpan in) { return One(Expand(in[0], {3})); }});
  cases.push_back(
      {"Slice", "step_2", matrix, [](TensorSpan in) { return One(Slice(in[0], 0, 1, 4, 2)); }});
  cases.push_back(
      {"Slice", "nothing", matrix, [](TensorSpan in) { return One(Slice(in[0], 0, 2, 2)); }});
  cases.push_back({"Split", "all_used", matrix, [](TensorSpan in) {
                     return Split(in[0], Shape{1, 3}, 0);
                   }});
  cases.push_back({"Split", "one_used", matrix, [](TensorSpan in) {
                     return One(Split(in[0], Shape{1, 1, 1}, 1)[1]);
                   }});
  cases.push_back(
      {"CopyToDevice", "other", matrix, [](TensorSpan in) { return One(To(in[0], Cpu(1))); }});
  cases.push_back({"CopyInto", "broadcast",
                   [] {
                     return Inputs{Data({4, 3}, 1), Data({3}, 2)};
                   },
                   [](TensorSpan in) {
                     const Tensor destination = Mul(in[0], 2.0);
                     const Tensor before = Add(destination, in[0]);
                     CopyInto(destination, in[1]);
                     return std::vector<Tensor>{destination, before};
                   }});
}

}  // namespace

Tensor GradientCaseData(const Shape& shape, int seed) {
  const int64_t count = NumElements(shape);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>((i * 37 + seed * 17) % 101 - 50) / 25.0 + 0.013);
  }
  return SetRequiresGrad(FromVector<double>(values, shape), true);
}

std::vector<GradientCase> AllGradientCases() {
  std::vector<Case> cases;
  AddElementwise(cases);
  AddBackwardRows(cases);
  AddBroadcasting(cases);
  AddReductions(cases);
  AddContractions(cases);
  AddNormalization(cases);
  AddCrossEntropy(cases);
  AddAttention(cases);
  AddIndexing(cases);
  AddViews(cases);
  return cases;
}

}  // namespace lockstep::autograd
