// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/stage_streams.h"

#include <cstdint>

namespace lockstep::pipeline {
namespace {

// Data streams of stages, beyond those of replicas (strategies/data_parallel/parallel_apply.cc).
constexpr uint64_t kStageDataStream = uint64_t{1} << 44;

RandomStreams DropoutAt(const RandomStreams& start, uint64_t unit) {
  RandomStreams streams = start;
  streams.dropout.key.offset += unit << 32;
  return streams;
}

}  // namespace

RandomStreams StageStreams(const RandomStreams& start, int stage, int stages, int micro_batch) {
  RandomStreams streams =
      DropoutAt(start, static_cast<uint64_t>(micro_batch) * static_cast<uint64_t>(stages) +
                           static_cast<uint64_t>(stage));
  streams.data.key.stream += kStageDataStream;
  streams.data.key.offset = streams.dropout.key.offset;
  return streams;
}

RandomStreams StreamsAfter(const RandomStreams& start, int stages, int micro_batches) {
  return DropoutAt(start, static_cast<uint64_t>(micro_batches) * static_cast<uint64_t>(stages));
}

}  // namespace lockstep::pipeline
