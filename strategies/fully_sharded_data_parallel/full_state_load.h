// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Loading a whole state into the parts that a rank has. Behind LoadFullStateDict and LoadFullState.
#ifndef LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FULL_STATE_LOAD_H_
#define LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FULL_STATE_LOAD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/state/tensor_source.h"
#include "lockstep/tensor/named_tensors.h"
#include "lockstep/tensor/shape.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

// What a rank has of a sharded parameter.
struct ShardedPiece {
  std::string name;
  Shape shape;        // of the whole
  int64_t begin = 0;  // elements [begin, end), row-major
  int64_t end = 0;
  Tensor tensor;  // [end - begin]
};

class FullStateLoad {
 public:
  // Compares `source` with the module: `pieces` of what is sharded, and all its tensors by all
  // their names (Module::StateTensors). A name that only repeats a shared parameter may be missing;
  // where several of its names are there, this rank's elements of them are the same. Throws
  // InvalidArgument, which begins with `call`, with every missing or unknown name, wrong shape and
  // dtype that does not convert. All of them outlive this object.
  FullStateLoad(absl::string_view call, const std::vector<ShardedPiece>& pieces,
                const NamedTensors& state_tensors, const state::TensorSource& source);

  // Copies this rank's elements, with the memory of one piece, or of one tensor that is not
  // sharded, at a time. Throws what the source throws; some have been copied then.
  void Run() const;

 private:
  struct Copy {
    std::string name;  // in the source
    int64_t begin = 0;
    int64_t end = 0;
    Tensor into;
  };
  const state::TensorSource& source_;
  std::vector<Copy> copies_;
};

}  // namespace lockstep::strategies

#endif  // LOCKSTEP_STRATEGIES_FULLY_SHARDED_DATA_PARALLEL_FULL_STATE_LOAD_H_
