// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/wait_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm {
namespace {

std::string Ranks(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

std::string Sentence(const RankWait& wait) {
  const bool is_send = wait.op == CollectiveId::kSend;
  const bool is_transfer = is_send || wait.op == CollectiveId::kRecv;
  return absl::StrCat("rank ", wait.rank, " waits in group \"", wait.group, "\" for ",
                      is_transfer ? "message " : "collective ", wait.number, " (", wait.call,
                      "), which ", Ranks(wait.missing), wait.missing.size() == 1 ? " has" : " have",
                      " not ",
                      is_send       ? "received"
                      : is_transfer ? "sent"
                                    : "issued");
}

// A walk from rank to rank.
struct Walk {
  std::vector<RankWait> path;
  // The path ends where it has been before: from there on it is a circle.
  bool closed = false;
  size_t circle_begin = 0;
  int last = 0;  // open: the rank that waits for nobody

  bool BetterThan(const Walk& other) const {
    return closed != other.closed ? closed : path.size() > other.path.size();
  }
};

class Walker {
 public:
  explicit Walker(WaitsOf waits_of) : waits_of_(waits_of) {}

  // The walks that begin with `wait`: a circle if there is one, else the longest. Each rank is
  // entered once, so that the search is as long as the graph.
  Walk From(const RankWait& wait) {
    Walk walk;
    Extend(wait, &walk);
    return best_;
  }

 private:
  void Extend(const RankWait& wait, Walk* walk) {
    walk->path.push_back(wait);
    entered_.insert(wait.rank);
    for (const int next : wait.missing) {
      if (best_.closed) break;
      const auto again = std::find_if(walk->path.begin(), walk->path.end(),
                                      [next](const RankWait& w) { return w.rank == next; });
      if (again != walk->path.end()) {
        Keep(walk, /*closed=*/true, static_cast<size_t>(again - walk->path.begin()), next);
        break;
      }
      if (entered_.count(next) > 0) continue;
      const std::vector<RankWait> waits = waits_of_(next);
      if (waits.empty()) {
        entered_.insert(next);
        Keep(walk, /*closed=*/false, 0, next);
      }
      for (const RankWait& theirs : waits) Extend(theirs, walk);
    }
    walk->path.pop_back();
  }

  void Keep(Walk* walk, bool closed, size_t circle_begin, int last) {
    walk->closed = closed;
    walk->circle_begin = circle_begin;
    walk->last = last;
    if (best_.path.empty() || walk->BetterThan(best_)) best_ = *walk;
  }

  WaitsOf waits_of_;
  std::set<int> entered_;
  Walk best_;
};

std::string Conclusion(const Walk& walk) {
  if (!walk.closed) {
    return absl::StrCat("rank ", walk.last,
                        " is not known to wait for anyone (it is busy, stopped, or took another "
                        "path)");
  }
  std::set<std::string> groups;
  for (size_t i = walk.circle_begin; i < walk.path.size(); ++i) {
    groups.insert(absl::StrCat("\"", walk.path[i].group, "\""));
  }
  if (groups.size() == 1) return "the ranks wait for each other";
  const std::string last = *groups.rbegin();
  groups.erase(last);
  return absl::StrCat("the ranks enter groups ", absl::StrJoin(groups, ", "), " and ", last,
                      " in different order");
}

}  // namespace

std::string ExplainWait(const RankWait& wait, WaitsOf waits_of) {
  const Walk walk = Walker(waits_of).From(wait);
  std::vector<std::string> parts;
  for (const RankWait& step : walk.path) parts.push_back(Sentence(step));
  if (parts.empty()) parts.push_back(Sentence(wait));  // everybody it waits for is this rank itself
  parts.push_back(Conclusion(walk));
  return absl::StrJoin(parts, ": ");
}

bool IsCircle(const RankWait& wait, WaitsOf waits_of) { return Walker(waits_of).From(wait).closed; }

}  // namespace lockstep::comm
