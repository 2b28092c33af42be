// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/checkpoint/held_tensor.h"

#include <utility>

#include "lockstep/autograd/meta.h"
#include "lockstep/autograd/saved_bytes.h"

namespace lockstep::checkpoint::internal {

HeldTensor::HeldTensor(const Tensor& tensor) {
  if (!tensor.defined()) return;
  tensor_ = autograd::internal::Alias(tensor);
  version_ = tensor_.version();
  if (tensor_.impl().storage) autograd::internal::AddSavedStorage(*tensor_.impl().storage);
}

HeldTensor::HeldTensor(HeldTensor&& other) noexcept
    : tensor_(std::exchange(other.tensor_, Tensor())), version_(other.version_) {}

HeldTensor& HeldTensor::operator=(HeldTensor&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  tensor_ = std::exchange(other.tensor_, Tensor());
  version_ = other.version_;
  return *this;
}

Tensor HeldTensor::Get() const { return autograd::internal::Alias(tensor_); }

void HeldTensor::Reset() {
  if (!tensor_.defined()) return;
  if (tensor_.impl().storage) autograd::internal::RemoveSavedStorage(*tensor_.impl().storage);
  tensor_ = Tensor();
}

}  // namespace lockstep::checkpoint::internal
