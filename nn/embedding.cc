// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/nn/embedding.h"

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/nn/init.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/indexing.h"

namespace lockstep::nn {

Embedding::Embedding(int64_t rows, int64_t width) {
  if (rows < 0 || width < 0) {
    throw InvalidArgumentError(absl::StrCat("nn::Embedding: ", rows, " rows of width ", width,
                                            "; sizes cannot be negative"));
  }
  CategoryScope category(MemoryCategory::kParameter);
  RegisterParameter("weight", &weight, Empty({rows, width}));
  ResetParameters();
}

void Embedding::ResetParameters() { init::Normal(weight); }

Tensor Embedding::Forward(const Tensor& indices) { return lockstep::Embedding(weight, indices); }

std::string Embedding::Description() const {
  return absl::StrCat("Embedding(", weight.size(0), ", ", weight.size(1), ")");
}

}  // namespace lockstep::nn
