// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The engine: runs nodes of a graph from given gradients to leaves or to chosen edges. Internal;
// backward.h and split_backward.h are its interface for users.
#ifndef LOCKSTEP_AUTOGRAD_ENGINE_H_
#define LOCKSTEP_AUTOGRAD_ENGINE_H_

#include <vector>

#include "lockstep/autograd/input_mask.h"
#include "lockstep/autograd/node.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::autograd::internal {

// A gradient that enters the graph.
struct Seed {
  Edge edge;
  Tensor gradient;
};

// A call of a node for some of its inputs, whose incoming gradients are complete and whose hooks
// have run.
struct NodeCall {
  RefPtr<Node> node;
  std::vector<Tensor> gradients;
  InputMask wanted;
};

struct EngineRequest {
  std::vector<Seed> seeds;
  std::vector<NodeCall> calls;
  // Only what leads to one of these runs; empty means everything.
  std::vector<Edge> targets;
  // Return the gradients of the targets instead of accumulating into them.
  bool capture = false;
  bool keep_graph = false;
  bool create_graph = false;
  // When set, gets what else would have to run without `targets`, instead of leaving it undone: the
  // other half of a split backward. Nodes in it keep what they saved.
  struct Rest {
    std::vector<Seed> seeds;
    std::vector<NodeCall> calls;
  };
  Rest* rest = nullptr;
};

// Returns one gradient for each target when capturing (undefined where nothing arrived). Blocks
// until all is done. Rethrows the first exception.
std::vector<Tensor> RunEngine(EngineRequest request);

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_ENGINE_H_
