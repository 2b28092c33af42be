// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/pipeline/schedule.h"
#include "lockstep/strategies/pipeline/schedule_index.h"

namespace lockstep::pipeline {
namespace {

constexpr auto kF = ActionKind::kForward;
constexpr auto kB = ActionKind::kBackward;
constexpr auto kI = ActionKind::kBackwardInput;
constexpr auto kW = ActionKind::kBackwardWeight;

template <typename... Parts>
[[noreturn]] void Refuse(const Schedule& schedule, const Parts&... parts) {
  throw InvalidArgumentError(absl::StrCat("schedule \"", schedule.name, "\": ", parts...));
}

bool IsForwardTransfer(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kRecvForward;
}

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward;
}

std::string EdgeText(const StageEdge& edge) { return absl::StrCat(edge.from, ">", edge.to); }

void CheckPlacement(const Schedule& schedule) {
  const int stages = schedule.stage_count();
  const int ranks = schedule.rank_count();
  if (schedule.micro_batches < 1) {
    Refuse(schedule, schedule.micro_batches, " micro-batches; there must be at least one");
  }
  if (stages < 1 || ranks < 1) {
    Refuse(schedule, stages, " stages on ", ranks, " ranks; there must be at least one of each");
  }
  std::vector<bool> has_stage(schedule.ranks.size(), false);
  for (int stage = 0; stage < stages; ++stage) {
    const int rank = schedule.rank_of_stage[static_cast<size_t>(stage)];
    if (rank < 0 || rank >= ranks) {
      Refuse(schedule, "stage ", stage, " is on rank ", rank, ", and there are lists for ", ranks,
             " ranks");
    }
    has_stage[static_cast<size_t>(rank)] = true;
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (!has_stage[static_cast<size_t>(rank)]) Refuse(schedule, "rank ", rank, " has no stage");
  }
}

void CheckEdges(const Schedule& schedule) {
  const int stages = schedule.stage_count();
  std::vector<bool> has_input(static_cast<size_t>(stages), false);
  std::vector<bool> has_output(static_cast<size_t>(stages), false);
  const StageEdge* previous = nullptr;
  for (const StageEdge& edge : schedule.edges) {
    if (edge.from < 0 || edge.to >= stages || edge.from >= edge.to) {
      Refuse(schedule, "edge ", EdgeText(edge), ": an edge goes from an earlier stage to a later ",
             "one of ", stages);
    }
    if (previous != nullptr &&
        std::pair(previous->from, previous->to) >= std::pair(edge.from, edge.to)) {
      Refuse(schedule, "edge ", EdgeText(edge), " comes after ", EdgeText(*previous),
             ": edges are sorted, each once");
    }
    has_output[static_cast<size_t>(edge.from)] = true;
    has_input[static_cast<size_t>(edge.to)] = true;
    previous = &edge;
  }
  for (int stage = 0; stage < stages; ++stage) {
    if (stage > 0 && !has_input[static_cast<size_t>(stage)]) {
      Refuse(schedule, "stage ", stage, " has no inputs: no edge leads to it");
    }
    if (stage + 1 < stages && !has_output[static_cast<size_t>(stage)]) {
      Refuse(schedule, "the outputs of stage ", stage, " go nowhere: no edge begins at it");
    }
  }
}

// What can be said of an action alone.
class Checker {
 public:
  explicit Checker(const Schedule& schedule) : schedule_(schedule), index_(schedule) {}

  void CheckActions() const {
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      const std::vector<Action>& list = schedule_.ranks[rank];
      for (size_t i = 0; i < list.size(); ++i) {
        CheckAction(static_cast<int>(rank), static_cast<int>(i), list[i]);
      }
    }
  }

  void CheckComputations() const {
    for (int stage = 0; stage < schedule_.stage_count(); ++stage) {
      for (int i = 0; i < schedule_.micro_batches; ++i) CheckMicroBatch(stage, i);
    }
  }

  void CheckTransfers() const {
    if (!index_.has_transfers()) return;
    for (const StageEdge& edge : schedule_.edges) {
      if (index_.RankOf(edge.from) == index_.RankOf(edge.to)) continue;
      for (int i = 0; i < schedule_.micro_batches; ++i) {
        CheckTransfer({ActionKind::kSendForward, edge.from, i, edge.to}, {kF, edge.from, i},
                      {kF, edge.to, i});
        if (schedule_.forward_only) continue;
        CheckTransfer({ActionKind::kSendBackward, edge.to, i, edge.from},
                      index_.InputGradient(edge.to, i), index_.InputGradient(edge.from, i));
      }
    }
    CheckTransferOrder();
  }

  void CheckProgress() const {
    const std::vector<int> done = index_.Execute([](int, int) {});
    std::vector<int> waiting;  // Follows who waits for whom until a rank comes again.
    for (int rank = 0; rank < schedule_.rank_count() && waiting.empty(); ++rank) {
      if (done[static_cast<size_t>(rank)] < Size(rank)) waiting.push_back(rank);
    }
    if (waiting.empty()) return;
    while (true) {
      const int next = index_.RankOf(Awaited(done, waiting.back()).stage);
      const auto again = std::find(waiting.begin(), waiting.end(), next);
      if (again == waiting.end()) {
        waiting.push_back(next);
        continue;
      }
      waiting.erase(waiting.begin(), again);
      break;
    }
    std::string text;
    for (const int rank : waiting) {
      const Action awaited = Awaited(done, rank);
      absl::StrAppend(&text, text.empty() ? "" : "; ", Where(rank, done[static_cast<size_t>(rank)]),
                      " waits for ", ToString(awaited), ", which is action ",
                      index_.Position(awaited), " of rank ", index_.RankOf(awaited.stage));
    }
    Refuse(schedule_, "it cannot run to its end: ", text);
  }

 private:
  int Size(int rank) const {
    return static_cast<int>(schedule_.ranks[static_cast<size_t>(rank)].size());
  }
  const Action& At(int rank, int position) const {
    return schedule_.ranks[static_cast<size_t>(rank)][static_cast<size_t>(position)];
  }
  std::string Where(int rank, int position) const {
    return absl::StrCat("rank ", rank, ", action ", position, " (", ToString(At(rank, position)),
                        ")");
  }
  // The rank and position of an action that the schedule has.
  std::string Where(const Action& action) const {
    return Where(index_.RankOf(action.stage), index_.Position(action));
  }

  void CheckAction(int rank, int position, const Action& action) const {
    const auto refuse = [&](const auto&... parts) {
      Refuse(schedule_, Where(rank, position), parts...);
    };
    const int stages = schedule_.stage_count();
    if (action.stage < 0 || action.stage >= stages) {
      refuse(": there is no stage ", action.stage, ", only ", stages, " stages");
    }
    if (action.micro_batch < 0 || action.micro_batch >= schedule_.micro_batches) {
      refuse(": there is no micro-batch ", action.micro_batch, ", only ", schedule_.micro_batches);
    }
    if (index_.RankOf(action.stage) != rank) {
      refuse(": stage ", action.stage, " is on rank ", index_.RankOf(action.stage));
    }
    if (schedule_.forward_only && action.kind != kF && !IsForwardTransfer(action.kind)) {
      refuse(": the schedule has forwards only");
    }
    if (IsTransfer(action.kind)) {
      CheckPeer(refuse, action);
    } else if (action.peer_stage != -1) {
      refuse(": a computation has no peer stage, and this has ", action.peer_stage);
    }
    if (const int first = index_.Position(action); first != position) {
      refuse(" is action ", first, " again");
    }
  }

  // `refuse` throws, naming the action.
  template <typename RefuseAction>
  void CheckPeer(const RefuseAction& refuse, const Action& action) const {
    const bool downward =
        action.kind == ActionKind::kSendForward || action.kind == ActionKind::kRecvBackward;
    const StageEdge edge = downward ? StageEdge{action.stage, action.peer_stage}
                                    : StageEdge{action.peer_stage, action.stage};
    if (std::find(schedule_.edges.begin(), schedule_.edges.end(), edge) == schedule_.edges.end()) {
      refuse(": there is no edge ", EdgeText(edge));
    }
    if (index_.RankOf(edge.from) == index_.RankOf(edge.to)) {
      refuse(": stages ", edge.from, " and ", edge.to, " are both on rank ",
             index_.RankOf(edge.from), ", where nothing is transferred");
    }
  }

  bool Has(const Action& action) const { return index_.Position(action) >= 0; }

  void Require(const Action& action) const {
    if (!Has(action)) {
      Refuse(schedule_, "rank ", index_.RankOf(action.stage), " has no ", ToString(action));
    }
  }

  void RequireOrder(const Action& first, const Action& then) const {
    if (index_.Position(first) > index_.Position(then)) {
      Refuse(schedule_, Where(then), " comes before ", ToString(first), ", action ",
             index_.Position(first));
    }
  }

  void CheckMicroBatch(int stage, int micro_batch) const {
    const Action forward{kF, stage, micro_batch};
    Require(forward);
    if (schedule_.forward_only) return;
    const Action backward{kB, stage, micro_batch};
    const Action input{kI, stage, micro_batch};
    const Action weight{kW, stage, micro_batch};
    if (Has(backward) && (Has(input) || Has(weight))) {
      Refuse(schedule_, Where(Has(input) ? input : weight), " and ", ToString(backward),
             ", action ", index_.Position(backward), ", are the same gradients");
    }
    if (!Has(backward) && !Has(input) && !Has(weight)) {
      Refuse(schedule_, "rank ", index_.RankOf(stage), " has neither ", ToString(backward), " nor ",
             ToString(input), " and ", ToString(weight));
    }
    if (Has(backward)) {
      RequireOrder(forward, backward);
      return;
    }
    Require(input);
    Require(weight);
    RequireOrder(forward, input);
    RequireOrder(input, weight);
  }

  void CheckTransfer(const Action& send, const Action& maker, const Action& user) const {
    const Action recv = Counterpart(send);
    Require(send);
    Require(recv);
    RequireOrder(maker, send);
    RequireOrder(recv, user);
  }

  // Between two ranks the n-th SEND is the n-th RECV.
  void CheckTransferOrder() const {
    std::map<std::pair<int, int>, std::vector<Action>> sends;  // by sender and receiver
    for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
      for (const Action& action : schedule_.ranks[static_cast<size_t>(rank)]) {
        if (IsSend(action.kind)) sends[{rank, index_.RankOf(action.peer_stage)}].push_back(action);
      }
    }
    std::map<std::pair<int, int>, size_t> received;
    for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
      for (int i = 0; i < Size(rank); ++i) {
        const Action& recv = At(rank, i);
        if (!IsTransfer(recv.kind) || IsSend(recv.kind)) continue;
        const int sender = index_.RankOf(recv.peer_stage);
        const size_t n = received[{sender, rank}]++;
        const Action& send = sends[{sender, rank}][n];
        if (Counterpart(send) == recv) continue;
        Refuse(schedule_, Where(rank, i), " is receive ", n, " from rank ", sender, ", whose send ",
               n, " to rank ", rank, " is ", ToString(send));
      }
    }
  }

  // What the rank, which stands still, waits for.
  Action Awaited(const std::vector<int>& done, int rank) const {
    for (const Action& need : index_.WaitsFor(At(rank, done[static_cast<size_t>(rank)]))) {
      if (index_.Position(need) >= done[static_cast<size_t>(index_.RankOf(need.stage))]) {
        return need;
      }
    }
    throw InternalError("Validate: a rank stands still, and waits for nothing");
  }

  const Schedule& schedule_;
  const ScheduleIndex index_;
};

}  // namespace

void Validate(const Schedule& schedule) {
  CheckPlacement(schedule);
  CheckEdges(schedule);
  const Checker checker(schedule);
  checker.CheckActions();
  checker.CheckComputations();
  checker.CheckTransfers();
  checker.CheckProgress();
}

}  // namespace lockstep::pipeline
