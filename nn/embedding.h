// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Embedding: a table of vectors, looked up by index.
//
//   nn::Embedding table(17, 8);              // "weight" [17, 8]
//   Tensor y = table(ids);                   // int64 or int32 [...] -> [..., 8]
//
// Initial values as PyTorch's: normal with standard deviation 1. An index outside the table throws
// OutOfRange.
#ifndef LOCKSTEP_NN_EMBEDDING_H_
#define LOCKSTEP_NN_EMBEDDING_H_

#include <cstdint>
#include <string>

#include "lockstep/nn/module.h"

namespace lockstep::nn {

class Embedding : public UnaryModule {
 public:
  // Throws InvalidArgument for negative sizes.
  Embedding(int64_t rows, int64_t width);

  Tensor Forward(const Tensor& indices) override;
  std::string Description() const override;
  // Draws the initial values anew.
  void ResetParameters();

  Tensor weight;  // [rows, width]
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_EMBEDDING_H_
