// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What communicators ask about the memory behind tensors, and copies between strided and row-major
// tensors. Backends see row-major memory only.
#ifndef LOCKSTEP_COMM_TENSOR_MEMORY_H_
#define LOCKSTEP_COMM_TENSOR_MEMORY_H_

#include <cstdint>

#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

// The addresses between a tensor's first and last element; empty for tensors without elements.
struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  bool empty() const { return begin == end; }
  bool Overlaps(const AddressRange& other) const {
    return !empty() && !other.empty() && begin < other.end && other.begin < end;
  }
  friend bool operator==(const AddressRange&, const AddressRange&) = default;
};
AddressRange RangeOf(const Tensor& tensor);

// Whether two elements share an address, as in an expanded tensor.
bool OverlapsItself(const Tensor& tensor);

// A row-major copy.
Tensor Pack(const Tensor& tensor);
// The same into `to`, which has room for tensor.bytes().
void PackInto(const Tensor& tensor, void* to);
// Writes row-major `source` into `destination`, which has its shape and dtype and any strides.
void Unpack(const Tensor& source, const Tensor& destination);
void UnpackFrom(const void* source, const Tensor& destination);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_TENSOR_MEMORY_H_
