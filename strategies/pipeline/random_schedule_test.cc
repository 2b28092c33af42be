// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random schedules are valid, and Validate() agrees about each damaged one with a second opinion
// that shares no code with it.

#include "lockstep/strategies/pipeline/random_schedule.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/strategies/pipeline/schedule.h"

namespace lockstep::pipeline {
namespace {

int Below(int limit, std::mt19937& random) {
  return static_cast<int>(random() % static_cast<unsigned>(limit));
}

// Of a schedule whose placement and edges are good: the multiset of actions must be one of those
// allowed, and the graph of what must be before what (the order of each list, data, transfers) must
// have no circle. Actions are their texts.
class SecondOpinion {
 public:
  explicit SecondOpinion(const Schedule& schedule) : schedule_(schedule) {}

  bool IsValid() {
    for (size_t rank = 0; rank < schedule_.ranks.size(); ++rank) {
      for (const Action& action : schedule_.ranks[rank]) {
        transfers_ = transfers_ || IsTransfer(action.kind);
        const std::string text = ToString(action);
        if (action.stage >= schedule_.stage_count() || RankOf(action.stage) != rank) return false;
        if (!actions_.insert(text).second) return false;
        if (!lists_[rank].empty()) Before(lists_[rank].back(), text);
        lists_[rank].push_back(text);
      }
    }
    std::set<std::string> expected;
    for (int i = 0; i < schedule_.micro_batches; ++i) Expect(i, &expected);
    return actions_ == expected && InOneOrder() && !HasCircle();
  }

 private:
  size_t RankOf(int stage) const {
    return static_cast<size_t>(schedule_.rank_of_stage[static_cast<size_t>(stage)]);
  }
  void Before(const std::string& first, const std::string& then) { after_[first].insert(then); }
  bool Has(const std::string& action) const { return actions_.count(action) > 0; }

  std::string Gradient(int stage, int i) const {
    const std::string whole = absl::StrCat(stage, "B", i);
    return Has(whole) ? whole : absl::StrCat(stage, "I", i);
  }

  void Expect(int i, std::set<std::string>* expected) {
    for (int stage = 0; stage < schedule_.stage_count(); ++stage) {
      expected->insert(absl::StrCat(stage, "F", i));
      if (schedule_.forward_only) continue;
      const std::string gradient = Gradient(stage, i);
      expected->insert(gradient);
      Before(absl::StrCat(stage, "F", i), gradient);
      if (Has(absl::StrCat(stage, "B", i))) continue;
      expected->insert(absl::StrCat(stage, "W", i));
      Before(gradient, absl::StrCat(stage, "W", i));
    }
    for (const StageEdge& edge : schedule_.edges) {
      Flow(edge.from, edge.to, absl::StrCat("_F", i), absl::StrCat(edge.from, "F", i),
           absl::StrCat(edge.to, "F", i), expected);
      if (schedule_.forward_only) continue;
      Flow(edge.to, edge.from, absl::StrCat("_B", i), Gradient(edge.to, i), Gradient(edge.from, i),
           expected);
    }
  }

  void Flow(int from, int to, const std::string& what, const std::string& maker,
            const std::string& user, std::set<std::string>* expected) {
    if (!transfers_ || RankOf(from) == RankOf(to)) {
      Before(maker, user);
      return;
    }
    const std::string send = absl::StrCat(from, "SEND", what, ">", to);
    const std::string recv = absl::StrCat(to, "RECV", what, "<", from);
    expected->insert(send);
    expected->insert(recv);
    Before(maker, send);
    Before(send, user);
    // The RECV stands before its user in the user's list, whatever may run.
    const std::vector<std::string>& list = lists_[RankOf(to)];
    recv_too_late_ = recv_too_late_ || std::find(list.begin(), list.end(), recv) >
                                           std::find(list.begin(), list.end(), user);
  }

  // Of each pair of ranks, SENDs and RECVs are in one order.
  bool InOneOrder() {
    std::map<std::pair<size_t, size_t>, std::vector<std::string>> sent, received;
    for (const std::vector<Action>& list : schedule_.ranks) {
      for (const Action& action : list) {
        if (!IsTransfer(action.kind)) continue;
        const size_t here = RankOf(action.stage);
        const size_t there = RankOf(action.peer_stage);
        if (action.kind == ActionKind::kSendForward || action.kind == ActionKind::kSendBackward) {
          sent[{here, there}].push_back(
              absl::StrCat(action.micro_batch, " ", action.stage, " ", action.peer_stage));
        } else {
          received[{there, here}].push_back(
              absl::StrCat(action.micro_batch, " ", action.peer_stage, " ", action.stage));
        }
      }
    }
    return sent == received && !recv_too_late_;
  }

  bool HasCircle() const {
    std::map<std::string, int> state;  // 1: on the path, 2: done
    return std::any_of(actions_.begin(), actions_.end(),
                       [&](const std::string& action) { return Visit(action, &state); });
  }
  bool Visit(const std::string& action, std::map<std::string, int>* state) const {
    int& mine = (*state)[action];
    if (mine != 0) return mine == 1;
    mine = 1;
    if (const auto found = after_.find(action); found != after_.end()) {
      for (const std::string& next : found->second) {
        if (Visit(next, state)) return true;
      }
    }
    (*state)[action] = 2;
    return false;
  }

  const Schedule& schedule_;
  bool transfers_ = false;
  bool recv_too_late_ = false;
  std::set<std::string> actions_;
  std::map<size_t, std::vector<std::string>> lists_;
  std::map<std::string, std::set<std::string>> after_;
};

std::string Verdict(const Schedule& schedule) {
  try {
    Validate(schedule);
  } catch (const Error& error) {
    return error.message();
  }
  return "valid";
}

Schedule Any(std::mt19937& random) {
  RandomScheduleOptions options;
  options.stages = 1 + Below(6, random);
  options.ranks = 1 + Below(options.stages, random);
  options.micro_batches = 1 + Below(5, random);
  options.split_backward = Below(2, random) == 0;
  options.ordered = Below(2, random) == 0;
  options.forward_only = Below(5, random) == 0;
  if (Below(2, random) == 0) options.edges = RandomEdges(options.stages, random);
  return RandomSchedule(options, random);
}

TEST(RandomScheduleTest, AllAreValid) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const Schedule schedule = Any(random);
    SCOPED_TRACE(ToText(schedule));
    ASSERT_EQ(Verdict(schedule), "valid");
    ASSERT_TRUE(SecondOpinion(schedule).IsValid());
    const Schedule with = WithTransfers(schedule);
    ASSERT_EQ(Verdict(with), "valid") << ToText(with);
    ASSERT_TRUE(SecondOpinion(with).IsValid()) << ToText(with);
    ASSERT_EQ(ParseSchedule(ToText(with)).ranks, with.ranks);
  }
}

TEST(RandomScheduleTest, OrderedOnesAddGradientsInOrder) {
  std::mt19937 random(2);
  bool unordered = false;
  for (int i = 0; i < 40; ++i) {
    const bool ordered = i % 2 == 0;
    const Schedule schedule = RandomSchedule({.ordered = ordered}, random);
    std::map<int, int> next;
    for (const auto& list : schedule.ranks) {
      for (const Action& action : list) {
        if (action.kind != ActionKind::kBackward && action.kind != ActionKind::kBackwardWeight) {
          continue;
        }
        const bool in_order = action.micro_batch == next[action.stage]++;
        if (ordered) {
          ASSERT_TRUE(in_order) << ToText(schedule);
        }
        unordered = unordered || !in_order;
      }
    }
  }
  EXPECT_TRUE(unordered);
}

TEST(RandomScheduleTest, EdgesReachEachStageAndSkip) {
  std::mt19937 random(3);
  bool skips = false, lacks = false;
  for (int i = 0; i < 100; ++i) {
    const int stages = 1 + Below(6, random);
    const std::vector<StageEdge> edges = RandomEdges(stages, random);
    for (int stage = 0; stage < stages; ++stage) {
      const auto any = [&](auto&& is) { return std::any_of(edges.begin(), edges.end(), is); };
      EXPECT_TRUE(stage == 0 || any([&](const StageEdge& edge) { return edge.to == stage; }));
      EXPECT_TRUE(stage + 1 == stages ||
                  any([&](const StageEdge& edge) { return edge.from == stage; }));
      lacks = lacks || (stage > 0 && !any([&](const StageEdge& edge) {
                          return edge == StageEdge{stage - 1, stage};
                        }));
    }
    for (const StageEdge& edge : edges) skips = skips || edge.to > edge.from + 1;
  }
  EXPECT_TRUE(skips);
  EXPECT_TRUE(lacks);
}

// Swaps two actions of a list, drops one, doubles one, moves one, or moves one to another rank.
void Damage(Schedule* schedule, std::mt19937& random) {
  auto& list = schedule->ranks[static_cast<size_t>(Below(schedule->rank_count(), random))];
  const int size = static_cast<int>(list.size());
  if (size == 0) return;
  const int a = Below(size, random);
  const int b = Below(size, random);
  const Action action = list[static_cast<size_t>(a)];
  switch (Below(6, random)) {
    case 0:
      std::swap(list[static_cast<size_t>(a)], list[static_cast<size_t>(b)]);
      break;
    case 1:
      list.erase(list.begin() + a);
      break;
    case 2:
      list.insert(list.begin() + b, action);
      break;
    case 3:
      list.erase(list.begin() + a);
      schedule->ranks[static_cast<size_t>(Below(schedule->rank_count(), random))].push_back(action);
      break;
    case 4:
      // To its neighbour's place: often still valid.
      std::swap(list[static_cast<size_t>(a)], list[static_cast<size_t>((a + 1) % size)]);
      break;
    default:
      list.erase(list.begin() + a);
      list.insert(list.begin() + std::min(b, size - 1), action);
  }
}

// Whether the text names an action of a list that is not as it was: what is wrong, or what waits
// for it.
bool NamesADamagedAction(const std::string& text, const Schedule& before, const Schedule& after) {
  std::set<std::string> actions;
  for (size_t rank = 0; rank < after.ranks.size(); ++rank) {
    if (before.ranks[rank] == after.ranks[rank]) continue;
    for (const Action& action : before.ranks[rank]) actions.insert(ToString(action));
    for (const Action& action : after.ranks[rank]) actions.insert(ToString(action));
  }
  const std::vector<std::string> words = absl::StrSplit(text, absl::ByAnyChar(" ,.:;()\""));
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& word) { return actions.count(word) > 0; });
}

TEST(RandomScheduleTest, DamageIsJudgedAsASecondOpinionDoes) {
  std::mt19937 random(4);
  int valid = 0, deadlocks = 0, orders = 0;
  constexpr int kCases = 4000;
  for (int i = 0; i < kCases; ++i) {
    Schedule schedule = Any(random);
    if (Below(2, random) == 0) schedule = WithTransfers(schedule);
    const Schedule sound = schedule;
    const std::string before = ToText(schedule);
    for (int changes = 1 + Below(2, random); changes > 0; --changes) Damage(&schedule, random);
    const std::string verdict = Verdict(schedule);
    ASSERT_EQ(verdict == "valid", SecondOpinion(schedule).IsValid()) << verdict << "\n"
                                                                     << ToText(schedule) << "was\n"
                                                                     << before;
    if (verdict != "valid") {
      ASSERT_TRUE(NamesADamagedAction(verdict, sound, schedule)) << verdict << "\n"
                                                                 << ToText(schedule) << "was\n"
                                                                 << before;
    }
    valid += verdict == "valid" ? 1 : 0;
    deadlocks += verdict.find("cannot run to its end") != std::string::npos ? 1 : 0;
    orders += verdict.find("is receive") != std::string::npos ? 1 : 0;
  }
  // The cases say something of each kind.
  EXPECT_GT(valid, kCases / 20);
  EXPECT_GT(deadlocks, kCases / 50);
  EXPECT_GT(orders, kCases / 100);
}

}  // namespace
}  // namespace lockstep::pipeline
