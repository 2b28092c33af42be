// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Rules of matrix products and attention.

#include <algorithm>
#include <numeric>

#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape_rules_util.h"

namespace lockstep {
namespace rules {
namespace {

void RequireContractible(const OpCall& call, size_t index) {
  const DType dtype = call.inputs[index].dtype();
  if (dtype == DType::kBool || dtype == DType::kUInt8) {
    RefuseDType(call, index, "a floating-point dtype, int64 or int32");
  }
}

ShapeSpan Leading(const Shape& shape, size_t trailing) {
  return ShapeSpan(shape.data(), shape.size() - trailing);
}

// Strides of a dense tensor of `shape` whose dimensions but the last lie in memory in the order of
// `like`'s; the last one is innermost. Empty (row-major) when that is what it comes to, or when
// `like` is expanded and has no order.
Strides StridesInOrderOf(const Tensor& like, ShapeSpan shape) {
  const size_t rank = shape.size();
  if (like.is_contiguous()) return {};
  absl::InlinedVector<size_t, 5> order(rank - 1);
  std::iota(order.begin(), order.end(), size_t{0});
  for (const size_t d : order) {
    if (like.strides()[d] == 0 && like.shape()[d] > 1) return {};
  }
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return like.strides()[a] != like.strides()[b] ? like.strides()[a] > like.strides()[b] : a < b;
  });
  Strides strides(rank);
  strides[rank - 1] = 1;
  int64_t step = std::max<int64_t>(shape[rank - 1], 1);
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= std::max<int64_t>(shape[order[i]], 1);
  }
  return strides == ContiguousStrides(shape) ? Strides() : strides;
}

struct AttentionSizes {
  Shape lead_and_rows;  // [..., H, T]
  Shape y;              // [..., H, T, E]
};

// Inputs `first`.. are q, k, v, mask?.
AttentionSizes RequireAttention(const OpCall& call, size_t first) {
  const size_t q_index = first, k_index = first + 1, v_index = first + 2, mask_index = first + 3;
  const Shape& q = call.inputs[q_index].shape();
  const Shape& k = call.inputs[k_index].shape();
  const Shape& v = call.inputs[v_index].shape();
  RequireFloat(call, q_index);
  RequireSameDType(call, q_index, k_index);
  RequireSameDType(call, q_index, v_index);
  RequireRank(call, q_index, 2, INT64_MAX);
  const bool ranks_equal = q.size() == k.size() && q.size() == v.size();
  if (!ranks_equal || Leading(q, 2) != Leading(k, 2) || Leading(q, 2) != Leading(v, 2)) {
    Refuse(call, "leading dimensions differ: q ", ToString(q), ", k ", ToString(k), ", v ",
           ToString(v), "; Expand them to be equal");
  }
  const size_t rank = q.size();
  if (q[rank - 1] != k[rank - 1]) {
    Refuse(call, "q ", ToString(q), " and k ", ToString(k), " differ in the last dimension");
  }
  if (k[rank - 2] != v[rank - 2]) {
    Refuse(call, "k ", ToString(k), " and v ", ToString(v),
           " differ in their length (the last but one dimension)");
  }
  AttentionSizes sizes;
  sizes.lead_and_rows.assign(q.begin(), q.end() - 1);
  sizes.y = sizes.lead_and_rows;
  sizes.y.push_back(v[rank - 1]);

  const Tensor& mask = call.inputs[mask_index];
  if (!mask.defined()) return sizes;
  if (mask.dtype() != DType::kBool && mask.dtype() != call.inputs[q_index].dtype()) {
    RefuseDType(
        call, mask_index,
        absl::StrCat("dtype bool, or ", DTypeName(call.inputs[q_index].dtype()), " as q has"));
  }
  if (call.attributes.As<AttentionAttributes>().causal) {
    Refuse(call, "a mask is given together with causal; put the triangle into the mask (Tril)");
  }
  Shape scores = sizes.lead_and_rows;
  scores.push_back(k[rank - 2]);
  BroadcastStrides(mask.shape(), mask.strides(), scores, absl::StrCat(OpName(call), ": mask"));
  return sizes;
}

}  // namespace

void InferMatMul(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 2);
  RequireSameDType(call, 0, 1);
  RequireContractible(call, 0);
  RequireRank(call, 0, 2, INT64_MAX);
  RequireRank(call, 1, 2, INT64_MAX);
  const auto& attributes = call.attributes.As<MatMulAttributes>();
  const Shape& a = call.inputs[0].shape();
  const Shape& b = call.inputs[1].shape();
  const bool ta = attributes.transpose_a, tb = attributes.transpose_b;
  const int64_t rows = a[a.size() - (ta ? 1 : 2)];
  const int64_t inner_a = a[a.size() - (ta ? 2 : 1)];
  const int64_t inner_b = b[b.size() - (tb ? 1 : 2)];
  const int64_t columns = b[b.size() - (tb ? 2 : 1)];
  if (inner_a != inner_b) {
    Refuse(call, "inner dimensions differ: ", ToString(a), ta ? " transposed" : "", " x ",
           ToString(b), tb ? " transposed" : "");
  }
  Shape result = BroadcastShapes(Leading(a, 2), Leading(b, 2), "MatMul: leading dimensions");
  result.push_back(rows);
  result.push_back(columns);
  Emit(call, outputs, result, call.inputs[0].dtype());
}

void InferLinear(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 3, 0, /*optional=*/0b100);
  RequireSameDType(call, 0, 1);
  RequireContractible(call, 0);
  RequireRank(call, 0, 1, INT64_MAX);
  RequireRank(call, 1, 2, 2);
  const Shape& x = call.inputs[0].shape();
  const Shape& weight = call.inputs[1].shape();
  if (x.back() != weight[1]) {
    Refuse(call, "x ", ToString(x), " has ", x.back(), " features and weight ", ToString(weight),
           " takes ", weight[1], "; weight is [outputs, inputs]");
  }
  if (call.inputs[2].defined()) {
    RequireSameDType(call, 1, 2);
    RequireShape(call, 2, {weight[0]}, absl::StrCat("as weight is ", ToString(weight)));
  }
  Shape result(x);
  result.back() = weight[0];
  Emit(call, outputs, result, call.inputs[0].dtype());
}

void InferScaledDotProductAttention(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 4, 5, /*optional=*/0b1000);
  const AttentionSizes sizes = RequireAttention(call, 0);
  const Tensor& q = call.inputs[0];
  Emit(call, outputs, sizes.y, q.dtype()).strides = StridesInOrderOf(q, sizes.y);
  Emit(call, outputs, sizes.lead_and_rows, StatisticsDType(q.dtype()));
}

// Inputs: grad, q, k, v, mask?, y, log_sum_exp.
void InferScaledDotProductAttentionBackward(const OpCall& call, SpecList& outputs) {
  RequireOperands(call, 7, 5, /*optional=*/0b10000);
  const AttentionSizes sizes = RequireAttention(call, 1);
  const DType dtype = call.inputs[1].dtype();
  for (const size_t index : {size_t{0}, size_t{5}}) {  // grad and y
    RequireDType(call, index, dtype);
    RequireShape(call, index, sizes.y, "q's rows with v's last dimension");
  }
  RequireDType(call, 6, StatisticsDType(dtype));
  RequireShape(call, 6, sizes.lead_and_rows, "one value for each row of q");
  for (size_t index = 1; index <= 3; ++index) {
    const Tensor& x = call.inputs[index];
    Emit(call, outputs, x.shape(), dtype).strides = StridesInOrderOf(x, x.shape());
  }
}

}  // namespace rules
}  // namespace lockstep
