// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/autograd/gradient.h"

#include <array>
#include <atomic>
#include <memory>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"

namespace lockstep::autograd {
namespace {

// Read for every recorded op, so without a lock; entries are never freed.
using GradientTable = std::array<std::atomic<const GradientInfo*>, 1 << 16>;

GradientTable& Table() {
  static GradientTable table{};
  return table;
}

}  // namespace

Tensor GradientContext::GradientOrZeros(int output) const {
  const Tensor& gradient = Gradient(output);
  if (gradient.defined()) return gradient;
  const TensorMeta& meta = OutputMeta(output);
  return Zeros(meta.shape, {.dtype = meta.dtype, .device = meta.device});
}

void RegisterGradient(OpId op, const GradientInfo& info) {
  const OpInfo& row = GetOpInfo(op);
  if (info.gradient == nullptr) {
    throw InvalidArgumentError(absl::StrCat("RegisterGradient: no function for ", row.name));
  }
  if (!row.differentiable) {
    throw InvalidArgumentError(absl::StrCat("RegisterGradient: the row of ", row.name,
                                            " says that it is not differentiable; change the row"));
  }
  if ((row.mutates & ~1u) != 0 || (row.mutates != 0 && !row.outputs.empty())) {
    throw InvalidArgumentError(absl::StrCat(
        "RegisterGradient: ", row.name,
        " writes to inputs other than the first, or has outputs besides; only an op that writes "
        "input 0 and returns nothing can be recorded"));
  }
  auto copy = std::make_unique<const GradientInfo>(info);
  const GradientInfo* expected = nullptr;
  if (!Table()[static_cast<size_t>(op)].compare_exchange_strong(expected, copy.get(),
                                                                std::memory_order_acq_rel)) {
    throw AlreadyExistsError(absl::StrCat("RegisterGradient: ", row.name, " has a gradient"));
  }
  copy.release();
}

const GradientInfo* FindGradient(OpId op) {
  return Table()[static_cast<size_t>(op)].load(std::memory_order_acquire);
}

}  // namespace lockstep::autograd
