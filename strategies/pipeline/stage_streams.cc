// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/pipeline/stage_streams.h"

#include <cstdint>

namespace lockstep::pipeline {

RandomStreams StageStreams(const RandomStreams& start, int stage, int stages, int micro_batch) {
  RandomStreams streams = start;
  const auto unit = static_cast<uint64_t>(micro_batch) * static_cast<uint64_t>(stages) +
                    static_cast<uint64_t>(stage);
  streams.dropout.key.offset += unit << 32;
  return streams;
}

RandomStreams StreamsAfter(const RandomStreams& start, int stages, int micro_batches) {
  return StageStreams(start, 0, stages, micro_batches);
}

}  // namespace lockstep::pipeline
