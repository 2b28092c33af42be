// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The loop under every elementwise kernel: walks operands of any strides together and hands the
// kernel packed blocks, so that a kernel is one loop over packed arrays.
//
//   RunStridedLoop(context, outputs, inputs, [&](int64_t, int64_t count, char* const* data) {
//     AddFloats(count, In<float>(data[1]), In<float>(data[2]), Out<float>(data[0]));
//   });
//
// * Operands that are packed already are passed as they are; others are gathered into a small
//   buffer first and, for outputs, scattered afterwards. The kernel runs the same instructions
//   either way, so results do not depend on the layout.
// * float16 and bfloat16 operands arrive as float32 (unless `raw`), and outputs are rounded once.
// * Work is cut into chunks whose borders depend on the element count only.
#ifndef LOCKSTEP_TENSOR_CPU_STRIDED_LOOP_H_
#define LOCKSTEP_TENSOR_CPU_STRIDED_LOOP_H_

#include <cstdint>
#include <optional>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

// Elements of a chunk: 64 KB of float32, well above the cost of a fork and join.
inline constexpr int64_t kLoopChunk = 16384;
// Elements of a gathered block.
inline constexpr int64_t kLoopBlock = 512;
inline constexpr int kMaxLoopOperands = 8;

// The dtype a kernel computes in: float32 for the 16-bit ones, else the dtype itself.
constexpr DType ComputeDType(DType dtype) {
  return IsReducedFloat(dtype) ? DType::kFloat32 : dtype;
}

struct StridedLoopOptions {
  // Blocks come in row-major order of the output's shape, and `index` is the position there (else
  // the order is the cheapest one, and `index` means nothing).
  bool logical_order = false;
  // No conversion: 16-bit floats arrive as they are.
  bool raw = false;
  // The dtype that all inputs are converted to, instead of the above.
  std::optional<DType> inputs_as = {};
  int64_t chunk = kLoopChunk;
};

// Called concurrently. data[i] are `count` packed elements of operand i, outputs before inputs; an
// output may be the same memory as an input (in-place calls), nothing overlaps partly.
using StridedLoopBody = absl::FunctionRef<void(int64_t index, int64_t count, char* const* data)>;

// All outputs have the same shape; inputs broadcast to it.
void RunStridedLoop(const KernelContext& context, absl::Span<const Tensor> outputs,
                    TensorSpan inputs, StridedLoopBody body,
                    const StridedLoopOptions& options = {});

// Typed views of a body's `data`.
template <typename T>
const T* In(const char* data) {
  return reinterpret_cast<const T*>(data);
}
template <typename T>
T* Out(char* data) {
  return reinterpret_cast<T*>(data);
}

// ---- Below: for kernels with loops of their own (copies, reductions). ----

using LoopVector = absl::InlinedVector<int64_t, 6>;

// A strided array of elements seen in the order of `sizes`, outermost first; strides in bytes.
struct StridedArray {
  char* data = nullptr;
  DType dtype = DType::kFloat32;
  LoopVector strides;
};

// Strides in bytes of `tensor` seen in `shape`, to which it broadcasts; 0 where it is stretched.
LoopVector BroadcastByteStrides(const Tensor& tensor, const Shape& shape);

// The largest stride of arrays[0] outermost; stable, so that a row-major order stays.
void SortDims(LoopVector& sizes, absl::Span<StridedArray> arrays);

// Dimensions of size 1 dropped, and neighbours merged that are one run in every array.
void CollapseDims(LoopVector& sizes, absl::Span<StridedArray> arrays);

// Position in a loop over `sizes`, and walking.
class LoopPosition {
 public:
  LoopPosition(absl::Span<const int64_t> sizes, int64_t linear);
  int64_t operator[](size_t dim) const { return index_[dim]; }
  // Steps left in the innermost dimension (1 for no dimensions).
  int64_t InnerLeft(absl::Span<const int64_t> sizes) const;
  void Advance(absl::Span<const int64_t> sizes, int64_t count);
  int64_t Offset(absl::Span<const int64_t> strides) const;

 private:
  LoopVector index_;
};

// Copies `count` elements starting at `position` into packed memory, or back.
void GatherElements(const StridedArray& array, absl::Span<const int64_t> sizes,
                    const LoopPosition& position, int64_t count, void* out);
void ScatterElements(const StridedArray& array, absl::Span<const int64_t> sizes,
                     const LoopPosition& position, int64_t count, const void* in);

namespace internal {
const void* ReadElements(const StridedArray& array, absl::Span<const int64_t> sizes,
                         const LoopPosition& position, int64_t count, DType as, void* buffer);
}  // namespace internal

// Like GatherElements, converted to T: returns the array's own memory where the elements are packed
// there and of type T, else `buffer`, which has room for them. count <= kReadBlock.
inline constexpr int64_t kReadBlock = 2048;
template <typename T>
const T* ReadElements(const StridedArray& array, absl::Span<const int64_t> sizes,
                      const LoopPosition& position, int64_t count, T* buffer) {
  return static_cast<const T*>(
      internal::ReadElements(array, sizes, position, count, kDTypeOf<T>, buffer));
}

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_STRIDED_LOOP_H_
