// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Dropout: in training, each element is zero with probability p and divided by 1 - p otherwise; in
// evaluation the input passes unchanged.
//
// The mask comes from ThreadGenerators().dropout, which differs between the ranks that see
// different data.
#ifndef LOCKSTEP_NN_DROPOUT_H_
#define LOCKSTEP_NN_DROPOUT_H_

#include <string>

#include "lockstep/nn/module.h"

namespace lockstep::nn {

class Dropout : public UnaryModule {
 public:
  // Throws InvalidArgument unless 0 <= p <= 1.
  explicit Dropout(double p);

  Tensor Forward(const Tensor& x) override;
  std::string Description() const override;
  double p() const { return p_; }

 private:
  double p_;
};

}  // namespace lockstep::nn

#endif  // LOCKSTEP_NN_DROPOUT_H_
