// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// How ranks tell each other what they wait for, once a wait is long: through the store, which works
// when the groups do not.
//
// A backend reports its waits while it waits, and asks when a deadline has passed:
//
//   if (board.IsDue(since_ns, timeout)) board.Tell({{signature, counts, sequence, since_ns,
//                                                   timeout, missing}});
//   ...
//   throw DeadlineExceededError(StrCat("rank 1 did not call ...", board.Diagnose(wait)));
//
// Until a wait is long nothing is done. Then it is published, at four fifths of the threshold, and
// at the threshold a warning is given, once a call, with what the other ranks have published by
// then: it may be a slow rank, or ranks that wait for each other in a circle. Neither is an error
// before the deadline.
#ifndef LOCKSTEP_COMM_WAIT_BOARD_H_
#define LOCKSTEP_COMM_WAIT_BOARD_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/signature.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/wait_graph.h"

namespace lockstep::comm {

// What one thread of one rank waits for in one group. Used by that thread alone. A store that does
// not answer costs half a second for each time that something is published or asked, and nothing
// else: it is never an error.
class WaitBoard {
 public:
  struct Options {
    std::shared_ptr<Store> store;
    std::string group;
    int rank = 0;                  // in the group
    std::vector<int> world_ranks;  // of the members, by rank
    // A wait is long after this time, or half of the call's timeout if that is less.
    absl::Duration slow_warning = absl::Seconds(10);
    // Null: the warning is logged.
    std::function<void(const std::string&)> on_slow = {};
    // How many threads are blocked in Wait() on works of this group, the only ones that can be part
    // of a circle. Null: unknown, taken as some.
    std::shared_ptr<const std::atomic<int>> blocked = {};
  };
  struct Wait {
    Signature signature;
    absl::Span<const int64_t> counts;
    int64_t number = 0;
    int64_t since_ns = 0;  // base/clock.h
    absl::Duration timeout;
    std::vector<int> missing;  // ranks of the group
  };

  explicit WaitBoard(Options options);
  // Takes back what is published.
  ~WaitBoard();
  WaitBoard(const WaitBoard&) = delete;
  WaitBoard& operator=(const WaitBoard&) = delete;

  // Whether a wait that began then is long.
  bool IsDue(int64_t since_ns, absl::Duration timeout) const;
  // What this thread waits for now: those of its waits that are due.
  void Tell(const std::vector<Wait>& waits);
  // The waits are over. After an error they stay known for half a minute: peers that wait for this
  // rank elsewhere reach their deadlines a moment later, and still want to know.
  void Clear(bool failed);

  // ": rank 1 waits in ...: ..." for the text of an error; says more than the names of the missing
  // ranks only if something is known of them, else "".
  std::string Diagnose(const Wait& wait);

 private:
  using CallName = std::tuple<CollectiveId, int32_t, int64_t>;  // op, peer, number

  absl::Duration Threshold(absl::Duration timeout) const;
  RankWait ToRankWait(const Wait& wait) const;
  void Publish(bool failed);
  void Warn(const Wait& wait);
  std::vector<RankWait> ReadWaits(int world_rank, Deadline deadline) const;
  std::string Key(int world_rank, const std::string& what) const;

  const Options options_;
  bool renumbered_ = false;  // the group's ranks are not the job's
  std::string slot_;         // key of what this object publishes; empty: nothing so far
  std::vector<RankWait> published_;
  bool published_blocked_ = false;
  bool is_published_ = false;
  // The calls that have been warned of, of those that wait.
  std::vector<CallName> warned_;
};

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_WAIT_BOARD_H_
