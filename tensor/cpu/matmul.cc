// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/matmul.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parallel.h"
#include "lockstep/base/rounding.h"
#include "lockstep/tensor/cpu/block_gemm.h"
#include "lockstep/tensor/cpu/contraction_table.h"
#include "lockstep/tensor/cpu/convert.h"
#include "lockstep/tensor/cpu/onednn_matmul.h"

namespace lockstep::cpu {
namespace {

// One matrix B for the whole batch, and rows of A that continue from one matrix to the next: then
// the batch is just more rows.
void FoldBatch(MatMulCall& call) {
  int64_t rows = call.m;
  for (int64_t d = static_cast<int64_t>(call.batch.size()) - 1; d >= 0; --d) {
    if (call.batch[d] == 1) continue;
    const bool continues = rows == 1 || call.a.batch_strides[d] == rows * call.a.row_stride;
    if (call.b.batch_strides[d] != 0 || !continues) return;
    if (rows == 1) call.a.row_stride = call.a.batch_strides[d];
    rows *= call.batch[d];
  }
  call.m = rows;
  call.batch.clear();
  call.a.batch_strides.clear();
  call.b.batch_strides.clear();
}

// Elements from the first matrix to matrix `index` of the batch.
int64_t BatchOffset(const Shape& batch, const Strides& strides, int64_t index) {
  int64_t offset = 0;
  for (int64_t d = static_cast<int64_t>(batch.size()) - 1; d >= 0; --d) {
    offset += index % batch[d] * strides[d];
    index /= batch[d];
  }
  return offset;
}

const char* Shifted(const void* data, int64_t elements, int64_t item_size) {
  return static_cast<const char*>(data) + elements * item_size;
}

// How C is cut over threads. An element of C comes out the same however it is cut (block_gemm.h),
// so that the cut may depend on the number of threads.
struct Cut {
  int64_t tile_m;
  int64_t tile_n;
};

// 16-bit results are accumulated in a float32 tile first: at most 1.5 MB of it.
constexpr int64_t kMaxWidenedRows = 768;
constexpr int64_t kMaxWidenedColumns = 512;

// The largest tile of at most `limit` that cuts `size` into even ones: threads get whole tiles, so
// that a small last one would be one thread's gain.
int64_t EvenTile(int64_t size, int64_t limit, int64_t quantum) {
  if (size <= limit) return size;
  const int64_t even = CeilDiv(size, CeilDiv(size, limit));
  return std::min(RoundUp(even, quantum), limit);
}

Cut ChooseCut(const MatMulCall& call, int64_t batch_count, int threads) {
  // Tiles that the micro-kernel fills, whatever its instruction set.
  constexpr int64_t kRowQuantum = 12;
  constexpr int64_t kColumnQuantum = 32;
  Cut best{call.m, call.n};
  const int64_t parts = batch_count >= threads ? 1 : CeilDiv(threads, batch_count);
  int64_t best_cost = std::numeric_limits<int64_t>::max();
  for (int64_t parts_n = 1; parts_n <= parts; ++parts_n) {
    if (parts % parts_n != 0) continue;
    const int64_t tile_m = RoundUp(CeilDiv(call.m, parts / parts_n), kRowQuantum);
    const int64_t tile_n = RoundUp(CeilDiv(call.n, parts_n), kColumnQuantum);
    // Multiply-adds of a part, and its share of packing: an element packed costs about as much as
    // eight multiply-adds.
    const int64_t cost = tile_m * tile_n + 8 * (tile_m + tile_n);
    if (cost < best_cost) {
      best_cost = cost;
      best = {std::min(tile_m, call.m), std::min(tile_n, call.n)};
    }
  }
  if (IsReducedFloat(call.dtype)) {
    best.tile_m = EvenTile(best.tile_m, kMaxWidenedRows, kRowQuantum);
    best.tile_n = EvenTile(best.tile_n, kMaxWidenedColumns, kColumnQuantum);
  }
  return best;
}

void Narrow(const float* in, const RowLayout& layout, bfloat16* out) {
  FloatToBFloat16(in, layout, out);
}
void Narrow(const float* in, const RowLayout& layout, float16* out) {
  FloatToFloat16(in, layout, out);
}

template <typename T>
const GemmAccumulator<T>* WidenBias(KernelContext& context, const MatMulCall& call) {
  using C = GemmAccumulator<T>;
  if constexpr (std::is_same_v<T, C>) {
    return static_cast<const T*>(call.bias);
  } else {
    if (call.bias == nullptr) return nullptr;
    C* wide = context.Workspace<C>(call.n);
    ConvertElements(kDTypeOf<T>, kDTypeOf<C>, call.n, call.bias, wide);
    return wide;
  }
}

// One tile of C of one matrix of the batch.
template <typename T>
void RunTile(const MatMulCall& call, const GemmAccumulator<T>* bias, const Cut& cut, int64_t matrix,
             int64_t row, int64_t column, GemmAccumulator<T>* scratch) {
  using C = GemmAccumulator<T>;
  BlockGemmCall<T> block;
  block.m = std::min(cut.tile_m, call.m - row);
  block.n = std::min(cut.tile_n, call.n - column);
  block.k = call.k;
  block.a = static_cast<const T*>(call.a.data) +
            BatchOffset(call.batch, call.a.batch_strides, matrix) + row * call.a.row_stride;
  block.a_row_stride = call.a.row_stride;
  block.a_col_stride = call.a.col_stride;
  block.b = static_cast<const T*>(call.b.data) +
            BatchOffset(call.batch, call.b.batch_strides, matrix) + column * call.b.col_stride;
  block.b_row_stride = call.b.row_stride;
  block.b_col_stride = call.b.col_stride;
  block.bias = bias == nullptr ? nullptr : bias + column;
  block.workspace = scratch;
  T* const c = static_cast<T*>(call.c) + (matrix * call.m + row) * call.n + column;
  if constexpr (std::is_same_v<T, C>) {
    block.c = c;
    block.c_row_stride = call.n;
    BlockGemm(block);
  } else {
    block.c = scratch + BlockGemmWorkspace<T>(block.m, block.n, block.k);
    block.c_row_stride = block.n;
    BlockGemm(block);
    Narrow(block.c, {block.m, block.n, block.n, call.n}, c);
  }
}

template <typename T>
void RunBlocked(KernelContext& context, const MatMulCall& call, int64_t batch_count, int threads) {
  using C = GemmAccumulator<T>;
  const C* const bias = WidenBias<T>(context, call);
  const Cut cut = ChooseCut(call, batch_count, threads);
  const int64_t tiles_m = CeilDiv(call.m, cut.tile_m);
  const int64_t tiles_n = CeilDiv(call.n, cut.tile_n);
  const int64_t units = batch_count * tiles_m * tiles_n;
  const int64_t chunk = CeilDiv(units, threads);
  constexpr int64_t kCacheLine = 64 / static_cast<int64_t>(sizeof(C));
  int64_t scratch = BlockGemmWorkspace<T>(cut.tile_m, cut.tile_n, call.k);
  if constexpr (!std::is_same_v<T, C>) scratch += cut.tile_m * cut.tile_n;
  scratch = RoundUp(scratch, kCacheLine);
  C* const workspace = context.Workspace<C>(scratch * CeilDiv(units, chunk));
  ParallelFor(threads, units, chunk, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t tile = unit % (tiles_m * tiles_n);
      RunTile<T>(call, bias, cut, unit / (tiles_m * tiles_n), tile / tiles_n * cut.tile_m,
                 tile % tiles_n * cut.tile_n, workspace + begin / chunk * scratch);
    }
  });
}

// False when an operand's strides are not oneDNN's.
bool RunOneDnn(KernelContext& context, const MatMulCall& call, int64_t batch_count) {
  OneDnnMatMul problem;
  problem.dtype = call.dtype;
  problem.m = call.m;
  problem.n = call.n;
  problem.k = call.k;
  problem.c_row_stride = call.n;
  problem.has_bias = call.bias != nullptr;
  if (!AsOneDnnOperand(call.m, call.k, call.a.row_stride, call.a.col_stride, &problem.a) ||
      !AsOneDnnOperand(call.k, call.n, call.b.row_stride, call.b.col_stride, &problem.b)) {
    return false;
  }
  const int64_t item_size = ItemSize(call.dtype);
  const OneDnnMatMulRunner runner(context, problem);
  for (int64_t i = 0; i < batch_count; ++i) {
    runner.Run(Shifted(call.a.data, BatchOffset(call.batch, call.a.batch_strides, i), item_size),
               Shifted(call.b.data, BatchOffset(call.batch, call.b.batch_strides, i), item_size),
               call.bias, static_cast<char*>(call.c) + i * call.m * call.n * item_size);
  }
  return true;
}

}  // namespace

void RunMatMul(KernelContext& context, MatMulCall call) {
  FoldBatch(call);
  const int64_t batch_count = NumElements(call.batch, "MatMul");
  if (batch_count == 0 || call.m == 0 || call.n == 0) return;
  const int64_t multiply_adds = call.m * call.n * call.k;
  if (multiply_adds > 0 &&
      ChooseContraction(call.dtype, multiply_adds) == ContractionMethod::kOneDnnPrimitive &&
      RunOneDnn(context, call, batch_count)) {
    return;
  }
  const int threads = multiply_adds * batch_count <= kMinParallelMultiplyAdds
                          ? 1
                          : std::max(1, context.thread_count());
  switch (call.dtype) {
    case DType::kFloat32:
      return RunBlocked<float>(context, call, batch_count, threads);
    case DType::kBFloat16:
      return RunBlocked<bfloat16>(context, call, batch_count, threads);
    case DType::kFloat16:
      return RunBlocked<float16>(context, call, batch_count, threads);
    case DType::kFloat64:
      return RunBlocked<double>(context, call, batch_count, threads);
    case DType::kInt64:
      return RunBlocked<int64_t>(context, call, batch_count, threads);
    case DType::kInt32:
      return RunBlocked<int32_t>(context, call, batch_count, threads);
    case DType::kUInt8:
    case DType::kBool:
      break;
  }
  throw UnimplementedError(absl::StrCat("MatMul: no product of ", DTypeName(call.dtype),
                                        "; convert the operands to int32 first"));
}

}  // namespace lockstep::cpu
