// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/local_sgd/local_sgd.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

constexpr char kSteps[] = "steps";

void CheckInner(const LocalSgdOptions& options) {
  for (size_t i = 0; i < options.inner.size(); ++i) {
    const int64_t period = options.inner[i].period;
    const int64_t next =
        i + 1 < options.inner.size() ? options.inner[i + 1].period : options.period;
    if (options.inner[i].group != nullptr && period >= 1 && next > period && next % period == 0) {
      continue;
    }
    throw InvalidArgumentError(absl::StrCat(
        "LocalSgd: inner average ", i, " has ",
        options.inner[i].group == nullptr ? "no group and " : "", "period ", period,
        ", and the next one ", next, "; give groups, and periods that grow and divide the next"));
  }
}

}  // namespace

LocalSgd::LocalSgd(DistributedDataParallel& ddp, const LocalSgdOptions& options)
    : ddp_(ddp), options_(options) {
  if (options.period < 1 || options.warmup_steps < 0) {
    throw InvalidArgumentError(absl::StrCat("LocalSgd: period ", options.period, ", warmup_steps ",
                                            options.warmup_steps,
                                            "; give a period >= 1 and warmup_steps >= 0"));
  }
  CheckInner(options);
  if (ddp.staleness() > 0 || ddp.steps_in_backward()) {
    throw InvalidArgumentError(
        absl::StrCat("LocalSgd: the DistributedDataParallel has ",
                     ddp.staleness() > 0 ? "staleness" : "optimizer_in_backward",
                     ", which steps by averaged gradients; leave it out"));
  }
}

std::unique_ptr<DistributedDataParallel::NoSync> LocalSgd::BackwardScope() {
  if (steps_ < options_.warmup_steps) return nullptr;
  return std::make_unique<DistributedDataParallel::NoSync>(ddp_);
}

bool LocalSgd::AfterStep() {
  ++steps_;
  const int64_t local = steps_ - options_.warmup_steps;
  if (local <= 0) return false;
  if (local % options_.period == 0) {
    Average();
    return true;
  }
  for (auto inner = options_.inner.rbegin(); inner != options_.inner.rend(); ++inner) {
    if (local % inner->period != 0) continue;
    AverageOver(*inner->group);
    return true;
  }
  return false;
}

void LocalSgd::Average() { AverageOver(*ddp_.group()); }

void LocalSgd::AverageOver(comm::Communicator& group) {
  const autograd::NoGradScope no_grad;
  std::vector<comm::Work> works;
  for (const auto& [name, parameter] : ddp_.reduced_parameters()) {
    works.push_back(group.AllReduce(parameter, {.op = comm::ReduceOp::kAverage}));
  }
  comm::Work::All(works).Wait();
}

StrategyState LocalSgd::SaveState() const {
  return {{{kSteps, FromVector<int64_t>({steps_}, {1}, {.device = Cpu()})}}, {}};
}

void LocalSgd::LoadState(const StrategyState& state) {
  if (state.shared.size() != 1 || !state.shared.Contains(kSteps) || !state.own.empty()) {
    throw InvalidArgumentError(absl::StrCat("LocalSgd: a state of ", state.shared.size(),
                                            " shared and ", state.own.size(),
                                            " own tensors; its own has one shared one, ", kSteps));
  }
  steps_ = state.shared.At(kSteps).Item<int64_t>();
}

}  // namespace lockstep::strategies
