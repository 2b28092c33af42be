// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests of op functions: meta tensors, expected errors, and a record of what was dispatched.
#ifndef LOCKSTEP_TENSOR_OPS_TESTING_H_
#define LOCKSTEP_TENSOR_OPS_TESTING_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/tensor/dispatch.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {
namespace testing_util {

// Shape and dtype without elements: dispatch runs the shape rule and no kernel.
Tensor Meta(const Shape& shape, DType dtype = DType::kFloat32);

// "float32[3, 5]"; strides and offset follow where they are not row-major from 0:
// "float32[3, 5]/[1, 3]+2".
std::string Describe(const Tensor& tensor);
std::string Describe(const std::vector<Tensor>& tensors);

// `call` throws an Error with `code` whose message contains `part` and begins with an op's name.
void ExpectError(absl::StatusCode code, const std::string& part, const std::function<void()>& call);
// The same for InvalidArgument.
void ExpectInvalid(const std::string& part, const std::function<void()>& call);

// Records the ops that this thread dispatches while it lives; they run as usual.
class Recorder {
 public:
  struct Call {
    OpId op;
    bool in_place;
    std::vector<Tensor> inputs;
    Scalars scalars;
    std::string attributes;
  };

  Recorder();
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  const std::vector<Call>& calls() const { return calls_; }
  // "Cast Add", with a "!" behind ops in place.
  std::string Ops() const;
  // Forgets the calls so far.
  void Clear() { calls_.clear(); }

 private:
  static TensorList Record(const OpCall& call);
  std::vector<Call> calls_;
  LayerScope scope_;
};

}  // namespace testing_util
}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_OPS_TESTING_H_
