// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/loss_factors.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {

std::vector<double> LossFactors(absl::Span<const double> counts, comm::Communicator& group) {
  double sum = 0;
  for (const double count : counts) {
    // NaN in the sum tells the other ranks.
    sum += std::isfinite(count) && count >= 0 ? count : std::numeric_limits<double>::quiet_NaN();
  }
  const Tensor total = FromVector<double>({sum}, {1}, {.device = Cpu()});
  group.AllReduce(total).Wait();
  const double all = total.Item<double>();
  if (!std::isfinite(all)) {
    throw InvalidArgumentError(absl::StrCat(
        "LossFactors: counts are finite and not negative; those of ",
        std::isfinite(sum)
            ? "another rank are not"
            : absl::StrCat("rank ", group.rank(), " are ", absl::StrJoin(counts, ", "))));
  }
  std::vector<double> factors;
  for (const double count : counts) {
    factors.push_back(all > 0 ? count * static_cast<double>(group.size()) / all : 0);
  }
  return factors;
}

}  // namespace lockstep::strategies
