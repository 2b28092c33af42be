// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How values of tensors on the meta device come about, for who wants to make them later
// (nn/deferred_init.h). Off unless a scope puts a recorder into thread state.
//
// Views are no calls: a view has the origin of what it shows, and its own shape, strides and
// offset.
#ifndef LOCKSTEP_TENSOR_META_RECORDER_H_
#define LOCKSTEP_TENSOR_META_RECORDER_H_

#include "absl/types/span.h"
#include "lockstep/base/ref_counted.h"

namespace lockstep {

struct OpCall;
class Tensor;

// What a recorded tensor has in place of a storage, shared by its views and kept by SetData.
class MetaOrigin : public RefCounted<MetaOrigin> {
 public:
  virtual ~MetaOrigin() = default;
  // An op that the recorder of this origin did not see has written into the tensor or a view of it.
  virtual void OnUnrecordedWrite() = 0;
};

// Hears of all that makes or writes tensors on meta in its threads, in their order. It gives the
// tensors made their origin. Called from several threads where those have the same state.
class MetaRecorder {
 public:
  virtual ~MetaRecorder() = default;
  // Empty(): `made` has no values yet.
  virtual void OnEmpty(const Tensor& made) = 0;
  // FromVector(), after OnEmpty: `values`, in host memory, are what `made` would hold.
  virtual void OnValues(const Tensor& made, const Tensor& values) = 0;
  // An op where its kernel would run, with layers passed. It is none of kind view.
  virtual void OnOp(const OpCall& call, absl::Span<const Tensor> outputs) = 0;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_META_RECORDER_H_
