// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/join.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/work.h"
#include "lockstep/strategies/parameter_sync.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::strategies {
namespace {

void CheckModules(const std::vector<DistributedDataParallel*>& modules) {
  if (modules.empty()) throw InvalidArgumentError("Join: give the modules that are trained");
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto earlier = modules.begin() + static_cast<ptrdiff_t>(i);
    std::string wrong;
    if (modules[i] == nullptr) {
      wrong = "is null";
    } else if (std::find(modules.begin(), earlier, modules[i]) != earlier) {
      wrong = "is given twice";
    } else if (modules[i]->group() != modules[0]->group()) {
      wrong = absl::StrCat("is in group \"", modules[i]->group()->group_name(),
                           "\" and not in that of module 0; make a Join for each group");
    } else if (modules[i]->staleness() > 0) {
      wrong = "has staleness; give every rank as many steps";
    }
    if (!wrong.empty()) throw InvalidArgumentError(absl::StrCat("Join: module ", i, " ", wrong));
  }
}

std::shared_ptr<comm::Communicator> CheckedGroup(
    const std::vector<DistributedDataParallel*>& modules) {
  CheckModules(modules);
  return modules[0]->group();
}

}  // namespace

int64_t Join::Round::active() const {
  return std::count_if(actions.begin(), actions.end(), [](int64_t a) { return a != 0; });
}

int Join::Round::first_active() const {
  const auto first = std::find_if(actions.begin(), actions.end(), [](int64_t a) { return a != 0; });
  return static_cast<int>(first - actions.begin());
}

Join::Join(std::vector<DistributedDataParallel*> modules, const JoinOptions& options)
    : modules_(std::move(modules)), options_(options), group_(CheckedGroup(modules_)) {
  for (size_t i = 0; i < modules_.size(); ++i) {
    if (!modules_[i]->reducer_->has_announcement()) continue;
    throw AlreadyExistsError(
        absl::StrCat("Join: module ", i, " is in another Join; finish and destroy that one first"));
  }
  for (size_t i = 0; i < modules_.size(); ++i) {
    const int64_t backward = 1 + 2 * static_cast<int64_t>(i);
    modules_[i]->reducer_->SetAnnouncement([this, backward] { return Announce(backward).active(); },
                                           !options_.divide_by_initial_world_size);
    modules_[i]->buffers_->SetAnnouncement(
        [this, buffers = backward + 1] { return Announce(buffers).first_active(); });
  }
}

Join::~Join() {
  for (DistributedDataParallel* module : modules_) {
    module->reducer_->SetAnnouncement(nullptr, false);
    module->buffers_->SetAnnouncement(nullptr);
  }
  if (!over_) {
    group_->Abort(absl::StrCat("rank ", group_->rank(), " left a Join without Finish()"));
  }
}

Join::Round Join::Announce(int64_t action) {
  const size_t ranks = static_cast<size_t>(group_->size());
  std::vector<int64_t> mine(ranks, 0);
  mine[static_cast<size_t>(group_->rank())] = action;
  const Tensor all = FromVector<int64_t>(mine, {static_cast<int64_t>(ranks)}, {.device = Cpu()});
  group_->AllReduce(all).Wait();
  const Round round{all.ToVector<int64_t>()};
  if (round.active() == 0) return round;
  was_active_ = action != 0;
  const int64_t expected = round.actions[static_cast<size_t>(round.first_active())];
  for (const int64_t other : round.actions) {
    if (other == 0 || other == expected) continue;
    over_ = true;
    throw InvalidArgumentError(absl::StrCat(
        "Join: ranks do different things: ", absl::StrJoin(round.actions, ", "),
        " by rank (0: no inputs; 1 + 2 i: backward of module i, one more: its buffers)"));
  }
  if (options_.throw_on_early_termination && round.active() < group_->size()) {
    over_ = true;
    const auto ended = std::find(round.actions.begin(), round.actions.end(), 0);
    throw FailedPreconditionError(absl::StrCat(
        "Join: rank ", ended - round.actions.begin(), " has no inputs left and ", round.active(),
        " of ", group_->size(), " ranks have; throw_on_early_termination ends training here"));
  }
  return round;
}

void Join::Shadow(const Round& round) {
  const int64_t action = round.actions[static_cast<size_t>(round.first_active())] - 1;
  DistributedDataParallel& module = *modules_[static_cast<size_t>(action / 2)];
  if (action % 2 == 0) {
    module.reducer_->ShadowPass(round.active());
  } else {
    module.buffers_->Broadcast(round.first_active());
  }
}

int Join::ShareLastModel() {
  const Tensor last =
      FromVector<int64_t>({was_active_ ? group_->rank() : -1}, {1}, {.device = Cpu()});
  group_->AllReduce(last, {.op = comm::ReduceOp::kMax}).Wait();
  const int root = std::max(0, static_cast<int>(last.Item<int64_t>()));
  for (DistributedDataParallel* module : modules_) {
    BroadcastTensors(module->synced_, *group_, root);
  }
  return root;
}

int Join::Finish() {
  if (over_) throw FailedPreconditionError("Join::Finish: this Join is over; make another one");
  for (;;) {
    const Round round = Announce(0);
    if (round.active() == 0) break;
    Shadow(round);
  }
  const int root = ShareLastModel();
  over_ = true;
  return root;
}

}  // namespace lockstep::strategies
