// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the public op functions share above dispatch: checks that name the argument, promotion, and
// random keys. Private to tensor/ops.
#ifndef LOCKSTEP_TENSOR_OPS_OP_UTIL_H_
#define LOCKSTEP_TENSOR_OPS_OP_UTIL_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace ops {

// Throws InvalidArgument "call: pieces".
template <typename... Pieces>
[[noreturn]] void Refuse(absl::string_view call, const Pieces&... pieces) {
  throw InvalidArgumentError(absl::StrCat(call, ": ", pieces...));
}

[[noreturn]] void RefuseUndefined(absl::string_view call, absl::string_view argument);

inline void RequireDefined(const Tensor& x, const char* call, const char* argument) {
  if (!x.defined()) RefuseUndefined(call, argument);
}
// Names the index.
void RequireDefined(TensorSpan list, absl::string_view call, absl::string_view argument);

// The dtype of an operation over both: torch.result_type. A zero-dimensional tensor counts by kind
// only (bool, integer, floating point) beside one with dimensions.
DType ResultType(const Tensor& x, const Tensor& y);

// x itself when it has the dtype, else the result of op Cast.
inline Tensor CastTo(const Tensor& x, DType dtype);
Tensor Cast(const Tensor& x, DType dtype);
inline Tensor CastTo(const Tensor& x, DType dtype) {
  return x.dtype() == dtype ? x : Cast(x, dtype);
}

// CastTo without counting a reference where nothing is cast. `x` outlives it.
class MaybeCast {
 public:
  MaybeCast(const Tensor& x, DType dtype) : tensor_(&x) {
    if (x.dtype() == dtype) return;
    cast_ = Cast(x, dtype);
    tensor_ = &cast_;
  }
  MaybeCast(const MaybeCast&) = delete;
  MaybeCast& operator=(const MaybeCast&) = delete;
  const Tensor& get() const { return *tensor_; }
  TensorSpan span() const { return absl::MakeConstSpan(tensor_, 1); }

 private:
  Tensor cast_;
  const Tensor* tensor_;
};

// Two operands side by side, as dispatch wants them, without counting references: that would be a
// tenth of a small op. The originals outlive it.
class OperandPair {
 public:
  OperandPair(const Tensor& x, const Tensor& y) : tensors_{Borrow(x), Borrow(y)} {}
  ~OperandPair() {}  // NOLINT: not those of tensors_
  OperandPair(const OperandPair&) = delete;
  OperandPair& operator=(const OperandPair&) = delete;
  operator TensorSpan() const { return tensors_; }  // NOLINT

 private:
  static Tensor Borrow(const Tensor& x) {
    return Tensor(RefPtr<TensorImpl>::Borrow(x.impl_ptr().get()));
  }
  union {
    Tensor tensors_[2];
  };
};

// float32 for integers and bool.
inline DType FloatingDType(DType dtype) { return IsFloatingPoint(dtype) ? dtype : DType::kFloat32; }

// Whether an element of `dtype` can hold `value`: always but for integers beyond the range.
bool Fits(const Scalar& value, DType dtype);
// Throws InvalidArgument naming value and dtype unless Fits.
void RequireFits(const Scalar& value, DType dtype, absl::string_view call);

// "3", "0.5", "true".
std::string ToString(const Scalar& value);

// `value` as a zero-dimensional tensor beside `like`.
Tensor ScalarTensor(const Scalar& value, DType dtype, Device device);

// A key drawn for `count` elements. The generator advances only when the op has run: a call that is
// refused leaves it where it was.
//
//   PendingDraw draw(generator, count);
//   Tensor y = Dispatch1(..., {p, draw.seed(), draw.stream(), draw.offset()});
//   draw.Commit();
class PendingDraw {
 public:
  PendingDraw(Generator& generator, int64_t count)
      : generator_(generator), next_(generator), key_(next_.Draw(count)) {}
  void Commit() { generator_ = next_; }

  // The bits of the unsigned numbers.
  Scalar seed() const { return static_cast<int64_t>(key_.seed); }
  Scalar stream() const { return static_cast<int64_t>(key_.stream); }
  Scalar offset() const { return static_cast<int64_t>(key_.offset); }

 private:
  Generator& generator_;
  Generator next_;
  RandomKey key_;
};

}  // namespace ops
}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_OP_UTIL_H_
