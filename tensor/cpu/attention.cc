// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// ScaledDotProductAttention and its gradient: spreads the blocks of attention_block.h over threads.
// Results do not depend on the number of threads: a block's arithmetic does not depend on where it
// runs, and what several blocks add to (dk, dv) is added in the order of the query rows by one
// thread.

#include <algorithm>
#include <cstdint>

#include "lockstep/base/parallel.h"
#include "lockstep/base/rounding.h"
#include "lockstep/tensor/cpu/attention_block.h"
#include "lockstep/tensor/cpu/contraction_table.h"
#include "lockstep/tensor/cpu/kernels.h"
#include "lockstep/tensor/cpu/pack.h"
#include "lockstep/tensor/cpu/random_words.h"
#include "lockstep/tensor/op_attributes.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor_data.h"

namespace lockstep::cpu {
namespace {

// Keys of a part of dk and dv, where heads are fewer than threads.
constexpr int64_t kKeyBlock = 256;

HeadMatrices Matrices(const Tensor& tensor, const Shape& lead, int64_t rows, int64_t cols) {
  Shape target = lead;
  target.push_back(rows);
  target.push_back(cols);
  Strides strides =
      BroadcastStrides(tensor.shape(), tensor.strides(), target, "ScaledDotProductAttention");
  HeadMatrices result;
  result.data = KernelRawData(tensor);
  result.dtype = tensor.dtype();
  result.col_stride = strides.back();
  result.row_stride = strides[strides.size() - 2];
  strides.resize(strides.size() - 2);
  result.lead_strides = strides;
  return result;
}

AttentionCall MakeCall(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                       const Scalars& scalars, const Attributes& attributes) {
  AttentionCall call;
  const Shape& shape = q.shape();
  call.lead.assign(shape.begin(), shape.end() - 2);
  call.heads = NumElements(call.lead);
  call.t = q.size(-2);
  call.s = k.size(-2);
  call.d = q.size(-1);
  call.e = v.size(-1);
  call.q = Matrices(q, call.lead, call.t, call.d);
  call.k = Matrices(k, call.lead, call.s, call.d);
  call.v = Matrices(v, call.lead, call.s, call.e);
  if (mask.defined()) call.mask = Matrices(mask, call.lead, call.t, call.s);
  call.causal = attributes.As<AttentionAttributes>().causal;
  call.scale = scalars[0].AsDouble();
  call.dropout_p = scalars[1].AsDouble();
  call.key = KeyFromScalars(scalars, 2);
  return call;
}

int Threads(const KernelContext& context, const AttentionCall& call) {
  const int64_t multiply_adds = call.heads * call.t * call.s * (call.d + call.e);
  return multiply_adds <= kMinParallelMultiplyAdds ? 1 : std::max(1, context.thread_count());
}

// Runs function(worker, unit) for all units, with one worker a thread.
template <typename T, typename Function>
void RunWorkers(KernelContext& context, const AttentionCall& call, int threads, int64_t units,
                int64_t scratch, const Function& function) {
  using C = GemmAccumulator<T>;
  if (units == 0) return;
  const int64_t chunk = CeilDiv(units, threads);
  C* const workspace = context.Workspace<C>(scratch * CeilDiv(units, chunk));
  ParallelFor(threads, units, chunk, [&](int64_t begin, int64_t end) {
    AttentionWorker<T> worker(call, workspace + begin / chunk * scratch);
    for (int64_t unit = begin; unit < end; ++unit) function(worker, unit);
  });
}

template <typename T>
void RunForward(KernelContext& context, const AttentionCall& call) {
  const int64_t blocks = CeilDiv(call.t, kQueryBlock);
  RunWorkers<T>(context, call, Threads(context, call), call.heads * blocks,
                AttentionWorker<T>::ForwardScratch(call),
                [blocks](AttentionWorker<T>& worker, int64_t unit) {
                  worker.Forward(unit / blocks, unit % blocks * kQueryBlock);
                });
}

// Enough heads for the threads: a head at a time, its scores computed once. Otherwise dq by query
// blocks and dk, dv by key blocks, which computes the scores twice.
template <typename T>
void RunBackward(KernelContext& context, const AttentionCall& call) {
  using Worker = AttentionWorker<T>;
  const int threads = Threads(context, call);
  if (call.heads >= threads) {
    RunWorkers<T>(context, call, threads, call.heads, Worker::BackwardScratch(call, call.s),
                  [&call](Worker& worker, int64_t head) {
                    worker.Backward({head, 0, call.t, 0, call.s, true, true});
                  });
    return;
  }
  const int64_t row_blocks = CeilDiv(call.t, kQueryBlock);
  RunWorkers<T>(context, call, threads, call.heads * row_blocks,
                Worker::BackwardScratch(call, call.s), [&](Worker& worker, int64_t unit) {
                  const int64_t row = unit % row_blocks * kQueryBlock;
                  worker.Backward({unit / row_blocks, row, std::min(kQueryBlock, call.t - row), 0,
                                   call.s, true, false});
                });
  const int64_t key_blocks = CeilDiv(call.s, kKeyBlock);
  RunWorkers<T>(context, call, threads, call.heads * key_blocks,
                Worker::BackwardScratch(call, std::min(kKeyBlock, call.s)),
                [&](Worker& worker, int64_t unit) {
                  const int64_t key = unit % key_blocks * kKeyBlock;
                  worker.Backward({unit / key_blocks, 0, call.t, key,
                                   std::min(kKeyBlock, call.s - key), false, true});
                });
}

}  // namespace

void ScaledDotProductAttentionKernel(KernelContext& context, TensorSpan inputs,
                                     absl::Span<Tensor> outputs, const Scalars& scalars,
                                     const Attributes& attributes) {
  AttentionCall call = MakeCall(inputs[0], inputs[1], inputs[2], inputs[3], scalars, attributes);
  call.y = Matrices(outputs[0], call.lead, call.t, call.e);
  call.log_sum_exp = KernelRawData(outputs[1]);
  switch (inputs[0].dtype()) {
    case DType::kBFloat16:
      return RunForward<bfloat16>(context, call);
    case DType::kFloat16:
      return RunForward<float16>(context, call);
    case DType::kFloat64:
      return RunForward<double>(context, call);
    default:
      return RunForward<float>(context, call);
  }
}

void ScaledDotProductAttentionBackwardKernel(KernelContext& context, TensorSpan inputs,
                                             absl::Span<Tensor> outputs, const Scalars& scalars,
                                             const Attributes& attributes) {
  AttentionCall call = MakeCall(inputs[1], inputs[2], inputs[3], inputs[4], scalars, attributes);
  call.grad = Matrices(inputs[0], call.lead, call.t, call.e);
  call.y = Matrices(inputs[5], call.lead, call.t, call.e);
  const PackedInput log_sum_exp(context, inputs[6]);
  call.log_sum_exp = const_cast<void*>(log_sum_exp.raw());
  call.dq = Matrices(outputs[0], call.lead, call.t, call.d);
  call.dk = Matrices(outputs[1], call.lead, call.s, call.d);
  call.dv = Matrices(outputs[2], call.lead, call.s, call.e);
  switch (inputs[1].dtype()) {
    case DType::kBFloat16:
      return RunBackward<bfloat16>(context, call);
    case DType::kFloat16:
      return RunBackward<float16>(context, call);
    case DType::kFloat64:
      return RunBackward<double>(context, call);
    default:
      return RunBackward<float>(context, call);
  }
}

}  // namespace lockstep::cpu
