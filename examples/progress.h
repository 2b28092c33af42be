// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What a training run shows: a bar that redraws itself on a terminal, plain lines elsewhere.
#ifndef LOCKSTEP_EXAMPLES_PROGRESS_H_
#define LOCKSTEP_EXAMPLES_PROGRESS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"

namespace lockstep::examples {

struct StepReport {
  int64_t step = 0;  // done so far
  double loss = 0;
  double tokens_per_second = 0;
  double communication_share = 0;  // of the time of recent steps
  int64_t peak_bytes = 0;          // of one rank
};

// For one thread.
class Progress {
 public:
  // A plain line every `line_every` steps.
  Progress(int64_t first_step, int64_t total_steps, int64_t line_every = 100);

  void Update(const StepReport& report);
  // A line of its own, between or after updates.
  void Line(absl::string_view text);

 private:
  std::string TimeLeft(int64_t step) const;

  int64_t first_step_;
  int64_t total_steps_;
  int64_t line_every_;
  bool terminal_;
  bool bar_shown_ = false;
  Stopwatch since_start_;
  absl::Duration last_drawn_ = -absl::InfiniteDuration();
};

// "1.5 MiB".
std::string HumanBytes(int64_t bytes);

}  // namespace lockstep::examples

#endif  // LOCKSTEP_EXAMPLES_PROGRESS_H_
