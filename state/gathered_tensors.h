// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Tensors that no rank has whole, and that are gathered one at a time while they are written: the
// file is that of whole ones, and the rank that writes it never holds more than one.
#ifndef LOCKSTEP_STATE_GATHERED_TENSORS_H_
#define LOCKSTEP_STATE_GATHERED_TENSORS_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/state/tensor_description.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::state {

struct GatheredTensors {
  std::vector<TensorDescription> tensors;  // in the order of the file; as many on every rank
  // Tensor `i`, on the rank that writes; what it returns elsewhere is not looked at. Every rank
  // calls it for 0, 1, ...
  std::function<Tensor(size_t i)> gather = nullptr;

  bool empty() const { return tensors.empty(); }
};

// Every rank calls it; the one that `writes` writes the file that WriteSafetensors would. When it
// cannot, it still takes part in what is gathered, and throws (as SafetensorsWriter does) at the
// end: the others return, and are told by whoever called (comm/on_every_rank.h).
void WriteGathered(const std::string& path, const GatheredTensors& gathered, bool writes);

}  // namespace lockstep::state

#endif  // LOCKSTEP_STATE_GATHERED_TENSORS_H_
