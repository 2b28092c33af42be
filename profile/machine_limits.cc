// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/profile/machine_limits.h"

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/median.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/ops/contraction.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::profile {
namespace {

double MedianSeconds(absl::FunctionRef<void()> run) {
  std::vector<double> seconds(5);
  run();  // touches the memory
  for (double& value : seconds) {
    const Stopwatch watch;
    run();
    value = watch.ElapsedSeconds();
  }
  return Median(seconds);
}

}  // namespace

MachineLimits MeasureMachineLimits() {
  // Nothing of the caller's state (recording, observers, device) but the number of threads.
  ThreadState state;
  state.intra_op_threads = IntraOpThreads();
  const ScopedThreadState scope(state);

  MachineLimits limits;
  constexpr int64_t kSide = 1536;
  const Tensor a = Ones({kSide, kSide});
  const Tensor b = Ones({kSide, kSide});
  limits.flops_per_second = 2.0 * kSide * kSide * kSide / MedianSeconds([&] { MatMul(a, b); });
  constexpr int64_t kBytes = int64_t{64} << 20;
  const Tensor from = Ones({kBytes / 4});
  const Tensor to = Ones({kBytes / 4});
  limits.bytes_per_second = 2.0 * kBytes / MedianSeconds([&] { CopyInto(to, from); });
  return limits;
}

}  // namespace lockstep::profile
