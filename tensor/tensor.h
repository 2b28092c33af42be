// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensor: one reference-counted pointer to a TensorImpl. Copies are the same tensor and identity is
// the address, as in PyTorch; Clone() (ops) makes an independent one.
//
//   Tensor x = FromVector<float>({1, 2, 3, 4, 5, 6}, {2, 3});   // [2, 3] on the current device
//   Tensor y = MatMul(x, Transpose(x, 0, 1)) + 1.0;             // ops: lockstep/tensor/ops.h
//   float first = y.Item<float>({0, 0});
//
// A Tensor object is as thread-safe as a shared_ptr: distinct objects may be used from distinct
// threads; writes to the elements are the caller's to order.
#ifndef LOCKSTEP_TENSOR_TENSOR_H_
#define LOCKSTEP_TENSOR_TENSOR_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "lockstep/base/ref_counted.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/meta_recorder.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/storage.h"

namespace lockstep {

// What a layer above (gradients) keeps with a tensor; `tensor/` only owns it.
class TensorExtension {
 public:
  virtual ~TensorExtension() = default;
};

// The state behind a Tensor. For dispatch and layers; users go through Tensor.
// Invariant: every element offset + sum(index_i * stride_i) lies within the storage.
class TensorImpl : public RefCounted<TensorImpl> {
 public:
  TensorImpl(RefPtr<Storage> storage, ShapeSpan shape, ShapeSpan strides, int64_t offset,
             DType dtype, Device device);
  // Row-major.
  TensorImpl(RefPtr<Storage> storage, Shape shape, DType dtype, Device device);

  RefPtr<Storage> storage;  // null on meta
  Shape shape;
  Strides strides;     // in elements
  int64_t offset = 0;  // in elements
  int64_t numel = 0;
  DType dtype;
  Device device;
  bool contiguous;
  std::unique_ptr<TensorExtension> extension;
  RefPtr<MetaOrigin> meta_origin;  // null unless on meta and recorded
};

class Tensor {
 public:
  Tensor() = default;  // undefined
  explicit Tensor(RefPtr<TensorImpl> impl) : impl_(std::move(impl)) {}

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const = delete;  // ask defined()
  bool IsSame(const Tensor& other) const { return impl_ == other.impl_; }

  // All below: REQUIRES defined(); throws FailedPrecondition otherwise.
  const Shape& shape() const { return impl().shape; }
  const Strides& strides() const { return impl().strides; }
  int64_t offset() const { return impl().offset; }
  int64_t rank() const { return static_cast<int64_t>(impl().shape.size()); }
  // Size of `dim`, which may be negative. Throws OutOfRange.
  int64_t size(int64_t dim) const;
  int64_t numel() const { return impl().numel; }
  int64_t bytes() const { return numel() * ItemSize(dtype()); }
  DType dtype() const { return impl().dtype; }
  Device device() const { return impl().device; }
  bool is_contiguous() const { return impl().contiguous; }
  // Throws FailedPrecondition on the meta device.
  const RefPtr<Storage>& storage() const;
  // Number of in-place writes to the storage so far (0 on meta).
  int64_t version() const;

  // The element at `index` (none for a tensor of one element), converted to T. Waits for pending
  // copies. Throws InvalidArgument (wrong index count or several elements), OutOfRange.
  template <typename T>
  T Item(std::initializer_list<int64_t> index = {}) const;
  // All elements in row-major order, converted to T.
  template <typename T>
  std::vector<T> ToVector() const;

  // Makes this tensor (and all copies of it) show `source`'s storage, shape, dtype and device; the
  // identity, and what layers keep with it, stay. For moving parameters (Module::To) and placing
  // them in other memory.
  void SetData(const Tensor& source) const;

  // "float32[2, 3] on cpu:0"; "undefined".
  std::string DebugString() const;

  TensorImpl& impl() const {
    if (!impl_) ThrowUndefined();
    return *impl_;
  }
  const RefPtr<TensorImpl>& impl_ptr() const { return impl_; }

 private:
  [[noreturn]] static void ThrowUndefined();
  RefPtr<TensorImpl> impl_;
};

using TensorList = absl::InlinedVector<Tensor, 2>;
using TensorSpan = absl::Span<const Tensor>;

// Where a new tensor goes; absent fields mean float32 (or the values' dtype) and the current
// device.
struct TensorOptions {
  std::optional<DType> dtype = std::nullopt;
  std::optional<Device> device = std::nullopt;
};

// Uninitialised, row-major. Throws InvalidArgument (negative size), ResourceExhausted.
Tensor Empty(ShapeSpan shape, const TensorOptions& options = {});
inline Tensor Empty(std::initializer_list<int64_t> shape, const TensorOptions& options = {}) {
  return Empty(ShapeSpan(shape.begin(), shape.size()), options);
}
Tensor EmptyLike(const Tensor& tensor);

// A tensor with a copy of `values` in row-major order; the dtype is T's unless options say another.
// Throws InvalidArgument when the counts differ.
template <typename T>
Tensor FromVector(const std::vector<T>& values, ShapeSpan shape, const TensorOptions& options = {});
template <typename T>
Tensor FromVector(const std::vector<T>& values, std::initializer_list<int64_t> shape,
                  const TensorOptions& options = {}) {
  return FromVector<T>(values, ShapeSpan(shape.begin(), shape.size()), options);
}

// A view of `storage` (for communicators, mapped files, buckets).
// Throws OutOfRange when an element would lie outside.
Tensor FromStorage(RefPtr<Storage> storage, ShapeSpan shape, DType dtype, int64_t offset = 0);

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_TENSOR_H_
