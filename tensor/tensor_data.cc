// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tensor/tensor_data.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Where the first element is, once pending copies are done; null without elements.
void* Address(const Tensor& tensor) {
  const RefPtr<Storage>& storage = tensor.storage();
  storage->WaitReady();
  return storage->data() == nullptr ? nullptr : KernelRawData(tensor);
}

}  // namespace

namespace internal {
void* CheckedData(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() != dtype) {
    throw InvalidArgumentError(absl::StrCat("Data: ", tensor.DebugString(), " read as ",
                                            DTypeName(dtype), "; cast it with To(x, dtype)"));
  }
  return Address(tensor);
}
}  // namespace internal

const void* RawData(const Tensor& tensor) { return Address(tensor); }

void* MutableRawData(const Tensor& tensor) {
  tensor.storage()->BumpVersion();
  return Address(tensor);
}

}  // namespace lockstep
