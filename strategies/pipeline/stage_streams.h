// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The random streams of each stage and micro-batch. They depend on neither the schedule nor the
// placement, so that a pipeline drops out what accumulation on one device does:
//
//   const RandomStreams start = ThreadGenerators();
//   for (int m = 0; m < micro_batches; ++m) {
//     for (int s = 0; s < stages; ++s) {
//       ThreadGenerators() = StageStreams(start, s, stages, m);
//       x = stage[s](x);
//     }
//     ...
//   }
//   ThreadGenerators() = StreamsAfter(start, stages, micro_batches);
#ifndef LOCKSTEP_STRATEGIES_PIPELINE_STAGE_STREAMS_H_
#define LOCKSTEP_STRATEGIES_PIPELINE_STAGE_STREAMS_H_

#include "lockstep/tensor/random.h"

namespace lockstep::pipeline {

// `start` with the dropout generator 2^32 * (micro_batch * stages + stage) elements further: a
// stage draws fewer than that for a micro-batch. The data generator (noise that a stage adds) goes
// to as far as that one, in a stream that nothing else has: the caller's own is left alone. The
// parameter generator is the caller's.
RandomStreams StageStreams(const RandomStreams& start, int stage, int stages, int micro_batch);

// Where the streams are after a run of all stages and micro-batches: `start` with the dropout
// generator behind all of them.
RandomStreams StreamsAfter(const RandomStreams& start, int stages, int micro_batches);

}  // namespace lockstep::pipeline

#endif  // LOCKSTEP_STRATEGIES_PIPELINE_STAGE_STREAMS_H_
