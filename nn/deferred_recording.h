// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Under nn/deferred_init.h: the ops that made and changed tensors on meta, and their replay on a
// device with bytes.
//
// A recording numbers its calls in their order and its memories: what would be a storage on another
// device, with the calls that wrote it. The state of a memory before call t is that of replaying
// its writers before t, each on the state of its own operands before itself. A replay runs the
// calls that one memory needs, in their order, each memory being one real tensor that the calls
// write and read as in the original run.
#ifndef LOCKSTEP_NN_DEFERRED_RECORDING_H_
#define LOCKSTEP_NN_DEFERRED_RECORDING_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/meta_recorder.h"
#include "lockstep/tensor/op.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn::internal {

// Thread-safe. Lives as long as a tensor that it knows is on meta.
class Recording : public MetaRecorder, public std::enable_shared_from_this<Recording> {
 public:
  void OnEmpty(const Tensor& made) override;
  void OnValues(const Tensor& made, const Tensor& values) override;
  void OnOp(const OpCall& call, TensorSpan outputs) override;

  // Why `memory` cannot be replayed; empty when it can.
  std::string Problem(int memory) const;
  // What `memory` holds now, made on `device`: the tensor that its storage was first made for. One
  // at a time. Throws FailedPrecondition with Problem(), and what its ops throw.
  Tensor Replay(int memory, Device device) const;

  // The memory of a tensor of this recording has been written by an op that it did not see.
  void SetUnknown(int memory);

 private:
  struct Operand {
    int memory = -1;  // with the shape, strides and offset of a tensor in it
    Shape shape;
    Strides strides;
    int64_t offset = 0;
    Tensor real;  // one that has bytes
    int64_t version = 0;
    std::string stranger;  // a tensor on meta that this recording does not know, in words
  };
  struct Call {
    OpId op;
    std::vector<Operand> inputs;
    Scalars scalars;
    std::shared_ptr<const Attributes> attributes;
    bool in_place = false;
    MemoryCategory category;   // of what it makes
    std::vector<int> outputs;  // memories it makes
    int blind = -1;            // input that it writes without reading its memory
  };
  struct Writer {
    int call;
    bool whole;  // all of the memory, without a look at what was there
  };
  struct Memory {
    Shape shape;
    Strides strides;
    DType dtype;
    MemoryCategory category;
    std::vector<Writer> writers;  // the call that makes it, if one does, is the first
    bool unknown = false;
  };
  struct Plan {
    std::vector<int> calls;  // ascending
    std::string problem;
  };
  friend class Replayer;

  // `strangers` gets the origins of tensors of other recordings that the call writes.
  void RecordOp(const OpCall& op_call, TensorSpan outputs,
                std::vector<RefPtr<MetaOrigin>>& strangers);

  // All below: REQUIRES mutex_ held.
  int AddMemory(const Tensor& made);
  Operand OperandOf(const Tensor& input) const;
  void NoteWrites(const OpCall& op_call, int number, Call& call,
                  std::vector<RefPtr<MetaOrigin>>& strangers);
  static bool IsBlind(const Call& call, size_t index);
  bool CoversMemory(const Operand& operand) const;
  // Adds the calls that leave `memory` as it is before call `before`. Whether there are any.
  bool AddWriters(int memory, int before, std::vector<int>& pending) const;
  Plan PlanFor(int memory) const;

  mutable std::mutex mutex_;
  std::vector<Call> calls_;
  std::vector<Memory> memories_;
};

// What a tensor on meta has of its recording.
class RecordedOrigin : public MetaOrigin {
 public:
  RecordedOrigin(std::shared_ptr<Recording> recording, int memory)
      : recording_(std::move(recording)), memory_(memory) {}
  void OnUnrecordedWrite() override { recording_->SetUnknown(memory_); }

  const std::shared_ptr<Recording>& recording() const { return recording_; }
  int memory() const { return memory_; }

 private:
  const std::shared_ptr<Recording> recording_;
  const int memory_;
};

// The elements of `base`'s storage that lie at `offset` with these strides; `base` when it is that.
Tensor PartOf(const Tensor& base, const Shape& shape, const Strides& strides, int64_t offset);

// Null for a tensor that no Recording knows. REQUIRES: defined.
const RecordedOrigin* OriginOf(const Tensor& tensor);

}  // namespace lockstep::nn::internal

#endif  // LOCKSTEP_NN_DEFERRED_RECORDING_H_
