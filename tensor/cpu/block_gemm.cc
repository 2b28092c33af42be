// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/cpu/block_gemm.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/block_gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "lockstep/base/rounding.h"
#include "lockstep/tensor/cpu/vector_io-inl.h"

// Constants of the blocking, once for all targets.
#ifndef LOCKSTEP_TENSOR_CPU_BLOCK_GEMM_CC_
#define LOCKSTEP_TENSOR_CPU_BLOCK_GEMM_CC_
namespace lockstep::cpu {
namespace {

// A micro-tile is 6 rows x 2 vectors: 12 accumulators, which hide the latency of a multiply-add on
// every processor since Haswell, plus two vectors of B and one broadcast fit into 16 registers.
// AVX-512 has 32: 12 rows, which read B half as often.
constexpr int64_t kMaxTileRows = 12;
// The blocking: a packed panel of B (two vectors wide) stays in the first-level cache, a block of A
// in the second.
constexpr int64_t kMaxDepth = 384;         // of one pass over k: 24 KiB of a panel of B with AVX2
constexpr int64_t kMaxBlockRows = 192;     // of A in one pass: 288 KiB
constexpr int64_t kMaxBlockColumns = 512;  // of B packed at a time

// Equal parts of at most `limit`: a short last part would run at half speed.
constexpr int64_t EqualPart(int64_t total, int64_t limit) {
  const int64_t parts = CeilDiv(total, limit);
  return parts == 0 ? 0 : CeilDiv(total, parts);
}

// Widest micro-tile of any target: two vectors of 64 bytes.
template <typename C>
constexpr int64_t kWidestTile = 128 / static_cast<int64_t>(sizeof(C));

}  // namespace
}  // namespace lockstep::cpu
#endif  // LOCKSTEP_TENSOR_CPU_BLOCK_GEMM_CC_

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kTileRows = HWY_TARGET == HWY_AVX3 ? 12 : 6;

inline float Widen(float x) { return x; }
inline double Widen(double x) { return x; }
inline float Widen(bfloat16 x) { return ToFloat(x); }
inline float Widen(float16 x) { return ToFloat(x); }

// C tile of kRows x 2 vectors += A (kRows x depth) * B (depth x 2 vectors).
// `a` and the strides address A; `b` has `b_stride` elements from one k to the next.
template <int kRows, typename T>
HWY_INLINE void MicroTile(int64_t depth, const T* HWY_RESTRICT a, int64_t a_row_stride,
                          int64_t a_col_stride, const T* HWY_RESTRICT b, int64_t b_stride,
                          const T* HWY_RESTRICT init, int64_t init_stride, T* HWY_RESTRICT c,
                          int64_t c_stride) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  using V = hn::Vec<decltype(d)>;
  // Named, not an array: every compiler then keeps them in registers.
  V c00, c01, c10, c11, c20, c21, c30, c31, c40, c41, c50, c51;
  V c60, c61, c70, c71, c80, c81, c90, c91, c100, c101, c110, c111;
  c00 = c01 = c10 = c11 = c20 = c21 = c30 = c31 = c40 = c41 = c50 = c51 = hn::Zero(d);
  c60 = c61 = c70 = c71 = c80 = c81 = c90 = c91 = c100 = c101 = c110 = c111 = hn::Zero(d);
  if (init != nullptr) {
#define LOCKSTEP_INIT(row)                                      \
  if constexpr (kRows > row) {                                  \
    c##row##0 = hn::LoadU(d, init + row * init_stride);         \
    c##row##1 = hn::LoadU(d, init + row * init_stride + lanes); \
  }
    LOCKSTEP_INIT(0)
    LOCKSTEP_INIT(1)
    LOCKSTEP_INIT(2)
    LOCKSTEP_INIT(3)
    LOCKSTEP_INIT(4)
    LOCKSTEP_INIT(5)
    LOCKSTEP_INIT(6)
    LOCKSTEP_INIT(7)
    LOCKSTEP_INIT(8)
    LOCKSTEP_INIT(9)
    LOCKSTEP_INIT(10)
    LOCKSTEP_INIT(11)
#undef LOCKSTEP_INIT
  }
  const T* HWY_RESTRICT a3 = a + 3 * a_row_stride;
  const T* HWY_RESTRICT a6 = a3 + 3 * a_row_stride;
  const T* HWY_RESTRICT a9 = a6 + 3 * a_row_stride;
  for (int64_t k = 0; k < depth; ++k) {
    const V b0 = hn::LoadU(d, b);
    const V b1 = hn::LoadU(d, b + lanes);
    b += b_stride;
#define LOCKSTEP_STEP(row, address)                 \
  if constexpr (kRows > row) {                      \
    const V a_value = hn::Set(d, *(address));       \
    c##row##0 = hn::MulAdd(a_value, b0, c##row##0); \
    c##row##1 = hn::MulAdd(a_value, b1, c##row##1); \
  }
    LOCKSTEP_STEP(0, a)
    LOCKSTEP_STEP(1, a + a_row_stride)
    LOCKSTEP_STEP(2, a + 2 * a_row_stride)
    LOCKSTEP_STEP(3, a3)
    LOCKSTEP_STEP(4, a3 + a_row_stride)
    LOCKSTEP_STEP(5, a3 + 2 * a_row_stride)
    LOCKSTEP_STEP(6, a6)
    LOCKSTEP_STEP(7, a6 + a_row_stride)
    LOCKSTEP_STEP(8, a6 + 2 * a_row_stride)
    LOCKSTEP_STEP(9, a9)
    LOCKSTEP_STEP(10, a9 + a_row_stride)
    LOCKSTEP_STEP(11, a9 + 2 * a_row_stride)
#undef LOCKSTEP_STEP
    a += a_col_stride;
    a3 += a_col_stride;
    a6 += a_col_stride;
    a9 += a_col_stride;
  }
#define LOCKSTEP_STORE(row)                               \
  if constexpr (kRows > row) {                            \
    hn::StoreU(c##row##0, d, c + row * c_stride);         \
    hn::StoreU(c##row##1, d, c + row * c_stride + lanes); \
  }
  LOCKSTEP_STORE(0)
  LOCKSTEP_STORE(1)
  LOCKSTEP_STORE(2)
  LOCKSTEP_STORE(3)
  LOCKSTEP_STORE(4)
  LOCKSTEP_STORE(5)
  LOCKSTEP_STORE(6)
  LOCKSTEP_STORE(7)
  LOCKSTEP_STORE(8)
  LOCKSTEP_STORE(9)
  LOCKSTEP_STORE(10)
  LOCKSTEP_STORE(11)
#undef LOCKSTEP_STORE
}

// One micro-tile by its place: where its first element starts from and goes to.
template <typename T>
struct Tile {
  int64_t depth;
  const T* a;
  int64_t a_row_stride;
  int64_t a_col_stride;
  const T* b;
  int64_t b_stride;
  const T* init;  // null: zeros
  int64_t init_stride;
  T* c;
  int64_t c_stride;
};

template <int kRows, typename T>
HWY_NOINLINE void RunTile(const Tile<T>& t) {
  if (t.a_row_stride == 1 && t.a_col_stride == kTileRows) {  // packed: constant offsets
    MicroTile<kRows, T>(t.depth, t.a, 1, kTileRows, t.b, t.b_stride, t.init, t.init_stride, t.c,
                        t.c_stride);
  } else if (t.a_col_stride == 1) {
    MicroTile<kRows, T>(t.depth, t.a, t.a_row_stride, 1, t.b, t.b_stride, t.init, t.init_stride,
                        t.c, t.c_stride);
  } else {
    MicroTile<kRows, T>(t.depth, t.a, t.a_row_stride, t.a_col_stride, t.b, t.b_stride, t.init,
                        t.init_stride, t.c, t.c_stride);
  }
}

// The tile of `rows` <= kRows rows.
template <int kRows, typename T>
HWY_INLINE void RunTileRows(int64_t rows, const Tile<T>& tile) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return RunTileRows<kRows - 1>(rows, tile);
  }
  RunTile<kRows>(tile);
}

// A tile whose columns do not fill two vectors goes through a full one on the stack.
template <typename T>
void RunNarrowTile(int64_t rows, int64_t columns, Tile<T> tile) {
  HWY_ALIGN T buffer[kTileRows * kWidestTile<T>] = {};
  const int64_t width = kWidestTile<T>;
  if (tile.init != nullptr) {
    for (int64_t i = 0; i < rows; ++i) {
      std::copy_n(tile.init + i * tile.init_stride, columns, buffer + i * width);
    }
    tile.init = buffer;
    tile.init_stride = width;
  }
  T* const c = tile.c;
  const int64_t c_stride = tile.c_stride;
  tile.c = buffer;
  tile.c_stride = width;
  RunTileRows<kTileRows>(rows, tile);
  for (int64_t i = 0; i < rows; ++i) std::copy_n(buffer + i * width, columns, c + i * c_stride);
}

// Packs the first columns of a B whose columns are contiguous, four at a time, in 4 x 4 blocks that
// are turned in registers; returns how many columns that were.
#if HWY_TARGET == HWY_SCALAR
inline int64_t PackTransposed(const float*, int64_t, int64_t, int64_t, int64_t, float*) {
  return 0;
}
#else
inline int64_t PackTransposed(const float* HWY_RESTRICT b, int64_t col_stride, int64_t depth,
                              int64_t columns, int64_t width, float* HWY_RESTRICT packed) {
  const hn::Full128<float> d4;
  const hn::Full128<double> d2;
  int64_t j = 0;
  for (; j + 4 <= columns; j += 4) {
    const float* HWY_RESTRICT column = b + j * col_stride;
    int64_t k = 0;
    for (; k + 4 <= depth; k += 4) {
      const auto r0 = hn::LoadU(d4, column + k);
      const auto r1 = hn::LoadU(d4, column + k + col_stride);
      const auto r2 = hn::LoadU(d4, column + k + 2 * col_stride);
      const auto r3 = hn::LoadU(d4, column + k + 3 * col_stride);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d4, r0, r1));
      const auto low23 = hn::BitCast(d2, hn::InterleaveLower(d4, r2, r3));
      const auto high01 = hn::BitCast(d2, hn::InterleaveUpper(d4, r0, r1));
      const auto high23 = hn::BitCast(d2, hn::InterleaveUpper(d4, r2, r3));
      float* HWY_RESTRICT out = packed + k * width + j;
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, low01, low23)), d4, out);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, low01, low23)), d4, out + width);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveLower(d2, high01, high23)), d4, out + 2 * width);
      hn::StoreU(hn::BitCast(d4, hn::InterleaveUpper(d2, high01, high23)), d4, out + 3 * width);
    }
    for (; k < depth; ++k) {
      for (int64_t i = 0; i < 4; ++i) packed[k * width + j + i] = column[k + i * col_stride];
    }
  }
  return j;
}
#endif

// `count` neighbours of any dtype, converted.
template <typename T, typename C>
HWY_INLINE void WidenRun(const T* HWY_RESTRICT from, int64_t count, C* HWY_RESTRICT to) {
  Transform(
      hn::ScalableTag<C>(), static_cast<size_t>(count), to, [](auto v) HWY_ATTR { return v; },
      from);
}

// PackTransposed of 16-bit floats: converted a few neighbours of every column at a time.
template <typename T>
HWY_INLINE int64_t PackTransposed(const T* HWY_RESTRICT b, int64_t col_stride, int64_t depth,
                                  int64_t columns, int64_t width, float* HWY_RESTRICT packed) {
  constexpr int64_t kRun = 64;
  HWY_ALIGN float wide[kWidestTile<float> * kRun];
  int64_t done = 0;
  for (int64_t k = 0; k < depth; k += kRun) {
    const int64_t run = std::min(kRun, depth - k);
    for (int64_t j = 0; j < columns; ++j) WidenRun(b + j * col_stride + k, run, wide + j * kRun);
    done = PackTransposed(wide, kRun, run, columns, width, packed + k * width);
  }
  return done;
}

// Packs `columns` (at most `width`) columns of B as [depth][width], zeros behind them.
template <typename T, typename C>
HWY_INLINE void PackColumns(const T* HWY_RESTRICT b, int64_t row_stride, int64_t col_stride,
                            int64_t depth, int64_t columns, int64_t width, C* HWY_RESTRICT packed) {
  if (columns < width) std::fill_n(packed, depth * width, C{0});
  if (col_stride == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      WidenRun(b + k * row_stride, columns, packed + k * width);
    }
    return;
  }
  int64_t j = 0;
  if constexpr (std::is_same_v<C, float>) {
    if (row_stride == 1) j = PackTransposed(b, col_stride, depth, columns, width, packed);
  }
  for (; j < columns; ++j) {
    for (int64_t k = 0; k < depth; ++k) {
      packed[k * width + j] = Widen(b[k * row_stride + j * col_stride]);
    }
  }
}

// Packs `rows` rows of A in panels of `panel_rows` rows: [panel][depth][kTileRows], of which the
// last elements mean nothing if that is less than kTileRows.
template <typename T, typename C>
HWY_INLINE void PackRows(const T* HWY_RESTRICT a, int64_t row_stride, int64_t col_stride,
                         int64_t rows, int64_t panel_rows, int64_t depth, C* HWY_RESTRICT packed) {
  const int64_t panel_size = depth * kTileRows;
  HWY_ALIGN C run[kMaxBlockRows + kMaxTileRows] = {};
  if (row_stride == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      WidenRun(a + k * col_stride, rows, run);
      C* out = packed + k * kTileRows;
      for (int64_t i = 0; i < rows; i += panel_rows, out += panel_size) {
        std::memcpy(out, run + i, kTileRows * sizeof(C));
      }
    }
    return;
  }
  C* HWY_RESTRICT out = packed;
  for (int64_t first = 0; first < rows; first += panel_rows, out += panel_size) {
    const int64_t count = std::min(panel_rows, rows - first);
    const T* HWY_RESTRICT panel = a + first * row_stride;
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t k = 0; k < depth; ++k) {
        out[k * kTileRows + i] = Widen(panel[i * row_stride + k * col_stride]);
      }
    }
  }
}

// All of C for one (columns, depth) block whose panels of B are packed.
template <typename T>
struct PackedPass {
  const BlockGemmCall<T>& call;
  int64_t first_column, columns, first_k, depth, width;
  const GemmAccumulator<T>* packed_b;
  GemmAccumulator<T>* packed_a;
};

// A of one block as the tiles read it. Rows whose neighbours in k share cache lines are read where
// they are, or where their converted copy is; of others a tile would touch a new line for every k,
// so that they are packed in panels.
template <typename C>
struct BlockOfA {
  const C* data;
  int64_t tile_stride;  // from one tile to the next
  int64_t row_stride;   // within a tile
  int64_t col_stride;
};

template <typename T>
HWY_INLINE BlockOfA<GemmAccumulator<T>> PrepareA(const PackedPass<T>& pass, int64_t row,
                                                 int64_t rows, int64_t tile_rows) {
  using C = GemmAccumulator<T>;
  const BlockGemmCall<T>& call = pass.call;
  const T* a = call.a + row * call.a_row_stride + pass.first_k * call.a_col_stride;
  if (call.a_col_stride != 1) {
    PackRows<T, C>(a, call.a_row_stride, call.a_col_stride, rows, tile_rows, pass.depth,
                   pass.packed_a);
    return {pass.packed_a, pass.depth * kTileRows, 1, kTileRows};
  }
  if constexpr (std::is_same_v<T, C>) {
    return {a, tile_rows * call.a_row_stride, call.a_row_stride, 1};
  } else {
    for (int64_t i = 0; i < rows; ++i) {
      WidenRun(a + i * call.a_row_stride, pass.depth, pass.packed_a + i * pass.depth);
    }
    return {pass.packed_a, tile_rows * pass.depth, pass.depth, 1};
  }
}

template <typename T>
void RunPackedPass(const PackedPass<T>& pass) {
  using C = GemmAccumulator<T>;
  const BlockGemmCall<T>& call = pass.call;
  const int64_t block_rows = RoundUp(EqualPart(call.m, kMaxBlockRows), kTileRows);
  // Zeros in front of a first pass: a bias row repeats with stride 0.
  const bool first = pass.first_k == 0;
  for (int64_t row = 0; row < call.m; row += block_rows) {
    const int64_t rows = std::min(block_rows, call.m - row);
    const int64_t tile_rows = EqualPart(rows, kTileRows);
    const BlockOfA<C> a = PrepareA(pass, row, rows, tile_rows);
    for (int64_t j = 0; j < pass.columns; j += pass.width) {
      const int64_t columns = std::min(pass.width, pass.columns - j);
      const int64_t column = pass.first_column + j;
      const C* tile_a = a.data;
      for (int64_t i = 0; i < rows; i += tile_rows, tile_a += a.tile_stride) {
        const int64_t these_rows = std::min(tile_rows, rows - i);
        Tile<C> tile;
        tile.depth = pass.depth;
        tile.a = tile_a;
        tile.a_row_stride = a.row_stride;
        tile.a_col_stride = a.col_stride;
        tile.b = pass.packed_b + j * pass.depth;
        tile.b_stride = pass.width;
        tile.c = call.c + (row + i) * call.c_row_stride + column;
        tile.c_stride = call.c_row_stride;
        tile.init = !first || call.accumulate ? tile.c
                    : call.bias != nullptr    ? call.bias + column
                                              : nullptr;
        tile.init_stride = !first || call.accumulate ? call.c_row_stride : 0;
        if (columns == pass.width) {
          RunTileRows<kTileRows>(these_rows, tile);
        } else {
          RunNarrowTile(these_rows, columns, tile);
        }
      }
    }
  }
}

template <typename T>
void FloatGemm(const BlockGemmCall<T>& call) {
  using C = GemmAccumulator<T>;
  const hn::ScalableTag<C> d;
  const int64_t width = 2 * static_cast<int64_t>(hn::Lanes(d));
  const int64_t depth_part = EqualPart(call.k, kMaxDepth);
  const int64_t column_part = RoundUp(EqualPart(call.n, kMaxBlockColumns), width);
  C* const packed_b = call.workspace;
  C* const packed_a = packed_b + RoundUp(std::min(call.n, kMaxBlockColumns), kWidestTile<C>) *
                                     std::min(call.k, kMaxDepth);
  for (int64_t column = 0; column < call.n; column += column_part) {
    const int64_t columns = std::min(column_part, call.n - column);
    for (int64_t k = 0; k < call.k; k += depth_part) {
      const int64_t depth = std::min(depth_part, call.k - k);
      const T* b = call.b + k * call.b_row_stride + column * call.b_col_stride;
      for (int64_t j = 0; j < columns; j += width) {
        PackColumns<T, C>(b + j * call.b_col_stride, call.b_row_stride, call.b_col_stride, depth,
                          std::min(width, columns - j), width, packed_b + j * depth);
      }
      RunPackedPass<T>({call, column, columns, k, depth, width, packed_b, packed_a});
    }
  }
}

void GemmFloat(const BlockGemmCall<float>& call) { FloatGemm(call); }
void GemmDouble(const BlockGemmCall<double>& call) { FloatGemm(call); }
void GemmBFloat16(const BlockGemmCall<bfloat16>& call) { FloatGemm(call); }
void GemmFloat16(const BlockGemmCall<float16>& call) { FloatGemm(call); }

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
namespace {

HWY_EXPORT(GemmFloat);
HWY_EXPORT(GemmDouble);
HWY_EXPORT(GemmBFloat16);
HWY_EXPORT(GemmFloat16);

// Without a product: bias or zeros.
template <typename T>
void InitialiseRows(const BlockGemmCall<T>& call) {
  using C = GemmAccumulator<T>;
  if (call.accumulate) return;
  for (int64_t i = 0; i < call.m; ++i) {
    C* row = call.c + i * call.c_row_stride;
    if (call.bias != nullptr) {
      std::copy_n(call.bias, call.n, row);
    } else {
      std::fill_n(row, call.n, C{0});
    }
  }
}

// Unsigned arithmetic wraps around, which signed arithmetic must not be asked to do.
template <typename T>
void IntegerGemm(const BlockGemmCall<T>& call) {
  using U = std::make_unsigned_t<T>;
  InitialiseRows(call);
  constexpr int64_t kRowsAtOnce = 4;
  for (int64_t column = 0; column < call.n; column += kMaxBlockColumns) {
    const int64_t columns = std::min(kMaxBlockColumns, call.n - column);
    for (int64_t k0 = 0; k0 < call.k; k0 += kMaxDepth) {
      const int64_t depth = std::min(kMaxDepth, call.k - k0);
      for (int64_t k = 0; k < depth; ++k) {
        for (int64_t j = 0; j < columns; ++j) {
          call.workspace[k * columns + j] =
              call.b[(k0 + k) * call.b_row_stride + (column + j) * call.b_col_stride];
        }
      }
      for (int64_t i0 = 0; i0 < call.m; i0 += kRowsAtOnce) {
        for (int64_t k = 0; k < depth; ++k) {
          const T* row = call.workspace + k * columns;
          for (int64_t i = i0; i < std::min(i0 + kRowsAtOnce, call.m); ++i) {
            const U a =
                static_cast<U>(call.a[i * call.a_row_stride + (k0 + k) * call.a_col_stride]);
            T* c = call.c + i * call.c_row_stride + column;
            for (int64_t j = 0; j < columns; ++j) {
              c[j] = static_cast<T>(static_cast<U>(c[j]) + a * static_cast<U>(row[j]));
            }
          }
        }
      }
    }
  }
}

}  // namespace

template <typename T>
int64_t BlockGemmWorkspace(int64_t m, int64_t n, int64_t k) {
  using C = GemmAccumulator<T>;
  const int64_t depth = std::min(k, kMaxDepth);
  const int64_t columns = RoundUp(std::min(n, kMaxBlockColumns), kWidestTile<C>);
  const int64_t rows = RoundUp(std::min(m, kMaxBlockRows), kMaxTileRows) + kMaxTileRows;
  return depth * (columns + rows);
}

template <typename T>
void BlockGemm(const BlockGemmCall<T>& call) {
  if (call.m <= 0 || call.n <= 0) return;
  if (call.k <= 0) return InitialiseRows(call);
  if constexpr (std::is_same_v<T, float>) {
    HWY_DYNAMIC_DISPATCH(GemmFloat)(call);
  } else if constexpr (std::is_same_v<T, double>) {
    HWY_DYNAMIC_DISPATCH(GemmDouble)(call);
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    HWY_DYNAMIC_DISPATCH(GemmBFloat16)(call);
  } else if constexpr (std::is_same_v<T, float16>) {
    HWY_DYNAMIC_DISPATCH(GemmFloat16)(call);
  } else {
    IntegerGemm(call);
  }
}

#define LOCKSTEP_INSTANTIATE(T)                                            \
  template int64_t BlockGemmWorkspace<T>(int64_t m, int64_t n, int64_t k); \
  template void BlockGemm<T>(const BlockGemmCall<T>& call);
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE(bfloat16)
LOCKSTEP_INSTANTIATE(float16)
LOCKSTEP_INSTANTIATE(int64_t)
LOCKSTEP_INSTANTIATE(int32_t)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
