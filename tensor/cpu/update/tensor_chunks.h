// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// One loop over all elements of a list of tensors, cut into chunks of a fixed size: many small
// parameters cost one fork and join, and the borders depend on the sizes only.
#ifndef LOCKSTEP_TENSOR_CPU_UPDATE_TENSOR_CHUNKS_H_
#define LOCKSTEP_TENSOR_CPU_UPDATE_TENSOR_CHUNKS_H_

#include <cstdint>
#include <vector>

#include "lockstep/tensor/tensor.h"

namespace lockstep::cpu {

struct TensorChunk {
  int64_t tensor;  // index in the list
  int64_t begin;   // elements, row-major
  int64_t count;
};

inline constexpr int64_t kTensorChunkElements = 16384;

inline std::vector<TensorChunk> MakeTensorChunks(TensorSpan tensors) {
  std::vector<TensorChunk> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t count = tensors[i].numel();
    for (int64_t begin = 0; begin < count; begin += kTensorChunkElements) {
      chunks.push_back(
          {static_cast<int64_t>(i), begin,
           count - begin < kTensorChunkElements ? count - begin : kTensorChunkElements});
    }
  }
  return chunks;
}

}  // namespace lockstep::cpu

#endif  // LOCKSTEP_TENSOR_CPU_UPDATE_TENSOR_CHUNKS_H_
