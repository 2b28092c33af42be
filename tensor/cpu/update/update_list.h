// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The operands of an optimizer step over lists of tensors, packed, and the loop over their chunks.
//
//   const UpdateList list(context, inputs, inputs.size() / 3, {.states = {2}});
//   list.Run(context, [&](const UpdateOperands& o, int64_t begin, int64_t count) { ... });
//
// A tensor whose elements do not lie in order is copied into workspace, and back after Run().
#ifndef LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_LIST_H_
#define LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_LIST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/tensor/cpu/pack.h"
#include "lockstep/tensor/cpu/update/tensor_chunks.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/kernel.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

// One parameter's memory, row-major. What a step does not have is null.
struct UpdateOperands {
  DType dtype;        // of parameter and gradient
  DType state_dtype;  // `dtype`, or float32 for 16-bit ones
  void* parameter;
  const void* gradient;
  std::array<void*, 3> states;
};

// Which of an op's lists is what; -1 for none.
struct UpdateRoles {
  int parameters = 0;
  int gradients = 1;
  std::array<int, 3> states = {-1, -1, -1};
};

class UpdateList {
 public:
  // `inputs`: lists of `count` tensors each.
  UpdateList(KernelContext& context, TensorSpan inputs, size_t count, const UpdateRoles& roles)
      : gradients_(inputs.subspan(static_cast<size_t>(roles.gradients) * count, count)) {
    operands_.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      UpdateOperands o{};
      o.dtype = o.state_dtype = gradients_[i].dtype();
      o.gradient = PackedInput(context, gradients_[i]).raw();
      if (roles.parameters >= 0) {
        o.parameter = Written(context, inputs[static_cast<size_t>(roles.parameters) * count + i]);
      }
      for (size_t k = 0; k < roles.states.size(); ++k) {
        if (roles.states[k] < 0) continue;
        const Tensor& state = inputs[static_cast<size_t>(roles.states[k]) * count + i];
        o.state_dtype = state.dtype();
        o.states[k] = Written(context, state);
      }
      operands_.push_back(o);
    }
  }

  // Calls chunk(operands, begin, count) for every chunk of elements, on several threads.
  template <typename Chunk>
  void Run(const KernelContext& context, const Chunk& chunk) const {
    const std::vector<TensorChunk> chunks = MakeTensorChunks(gradients_);
    context.ParallelFor(static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        chunk(operands_[chunks[i].tensor], chunks[i].begin, chunks[i].count);
      }
    });
    for (const PackedInOut& copy : copies_) copy.Finish(context);
  }

 private:
  void* Written(KernelContext& context, const Tensor& tensor) {
    PackedInOut packed(context, tensor);
    if (!tensor.is_contiguous()) copies_.push_back(packed);
    return packed.raw();
  }

  TensorSpan gradients_;
  std::vector<UpdateOperands> operands_;
  std::vector<PackedInOut> copies_;
};

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_UPDATE_UPDATE_LIST_H_
