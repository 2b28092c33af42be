// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/wait_board.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "lockstep/base/error.h"
#include "nlohmann/json.hpp"

namespace lockstep::comm {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kStorePatience = absl::Milliseconds(500);
// How long the waits of a call that has failed stay of interest.
constexpr absl::Duration kAfterFailure = absl::Seconds(30);

std::string ToText(const std::vector<RankWait>& waits, bool blocked, bool failed) {
  Json json = {{"blocked", blocked}, {"waits", Json::array()}};
  // Wall time, since readers may be on other hosts.
  if (failed) json["failed_ms"] = absl::ToUnixMillis(absl::Now());
  for (const RankWait& wait : waits) {
    json["waits"].push_back({{"group", wait.group},
                             {"op", static_cast<int>(wait.op)},
                             {"number", wait.number},
                             {"call", wait.call},
                             {"missing", wait.missing}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// What still counts. Whatever is malformed does not.
void ParseText(const std::string& text, int rank, std::vector<RankWait>* waits) {
  try {
    const Json json = Json::parse(text);
    if (!json.at("blocked").get<bool>()) return;
    if (json.contains("failed_ms") &&
        absl::Now() - absl::FromUnixMillis(json["failed_ms"].get<int64_t>()) > kAfterFailure) {
      return;
    }
    for (const Json& item : json.at("waits")) {
      const int op = item.at("op").get<int>();
      RankWait wait = {.rank = rank,
                       .group = item.at("group").get<std::string>(),
                       .op = static_cast<CollectiveId>(op),
                       .number = item.at("number").get<int64_t>(),
                       .call = item.at("call").get<std::string>(),
                       .missing = item.at("missing").get<std::vector<int>>()};
      if (!wait.missing.empty()) waits->push_back(std::move(wait));
    }
  } catch (const std::exception&) {
  }
}

}  // namespace

WaitBoard::WaitBoard(Options options) : options_(std::move(options)) {
  for (size_t r = 0; r < options_.world_ranks.size(); ++r) {
    if (options_.world_ranks[r] != static_cast<int>(r)) renumbered_ = true;
  }
}

WaitBoard::~WaitBoard() { Clear(/*failed=*/false); }

absl::Duration WaitBoard::Threshold(absl::Duration timeout) const {
  return std::min(options_.slow_warning, timeout / 2);
}

bool WaitBoard::IsDue(int64_t since_ns, absl::Duration timeout) const {
  return absl::Nanoseconds(MonotonicNanoseconds() - since_ns) >= 0.8 * Threshold(timeout);
}

RankWait WaitBoard::ToRankWait(const Wait& wait) const {
  RankWait result = {.rank = options_.world_ranks[static_cast<size_t>(options_.rank)],
                     .group = options_.group,
                     .op = wait.signature.op,
                     .number = wait.number,
                     .call = wait.signature.ToString(wait.counts)};
  for (const int rank : wait.missing) {
    result.missing.push_back(options_.world_ranks[static_cast<size_t>(rank)]);
  }
  return result;
}

void WaitBoard::Tell(const std::vector<Wait>& waits) {
  std::vector<RankWait> now;
  for (const Wait& wait : waits) {
    if (IsDue(wait.since_ns, wait.timeout)) now.push_back(ToRankWait(wait));
  }
  const bool blocked = options_.blocked == nullptr || options_.blocked->load() > 0;
  if (now != published_ || blocked != published_blocked_) {
    published_ = std::move(now);
    published_blocked_ = blocked;
    Publish(/*failed=*/false);
  }
  std::vector<CallName> warned;
  for (const Wait& wait : waits) {
    const absl::Duration waited = absl::Nanoseconds(MonotonicNanoseconds() - wait.since_ns);
    if (waited < Threshold(wait.timeout)) continue;
    warned.emplace_back(wait.signature.op, wait.signature.peer, wait.number);
    if (std::find(warned_.begin(), warned_.end(), warned.back()) == warned_.end()) Warn(wait);
  }
  warned_ = std::move(warned);
}

void WaitBoard::Warn(const Wait& wait) {
  const Deadline deadline = Deadline::After(kStorePatience);
  const std::string text = absl::StrCat(
      "group \"", options_.group, "\": slow: for ",
      absl::FormatDuration(absl::Trunc(absl::Nanoseconds(MonotonicNanoseconds() - wait.since_ns),
                                       absl::Milliseconds(100))),
      ", ", renumbered_ ? "by rank of the job, " : "",
      ExplainWait(ToRankWait(wait), [&](int rank) { return ReadWaits(rank, deadline); }));
  if (options_.on_slow) {
    options_.on_slow(text);
  } else {
    LOG(WARNING) << text;
  }
}

std::string WaitBoard::Diagnose(const Wait& wait) {
  const Deadline deadline = Deadline::After(kStorePatience);
  bool known = false;
  const std::string text = ExplainWait(ToRankWait(wait), [&](int rank) {
    std::vector<RankWait> waits = ReadWaits(rank, deadline);
    known = known || !waits.empty();
    return waits;
  });
  if (!known) return "";
  return absl::StrCat(renumbered_ ? ": by rank of the job, " : ": ", text);
}

void WaitBoard::Clear(bool failed) {
  warned_.clear();
  if (!is_published_) return;
  if (!failed) published_.clear();
  Publish(failed);
  published_.clear();
  is_published_ = failed;  // and then still to be taken back
}

std::string WaitBoard::Key(int world_rank, const std::string& what) const {
  return absl::StrCat("waits/", world_rank, "/", what);
}

void WaitBoard::Publish(bool failed) {
  const Deadline deadline = Deadline::After(kStorePatience);
  try {
    if (slot_.empty()) {
      const int me = options_.world_ranks[static_cast<size_t>(options_.rank)];
      slot_ = Key(me, absl::StrCat(options_.store->Add(Key(me, "slots"), 1, deadline)));
    }
    options_.store->Set(slot_, ToText(published_, published_blocked_, failed), deadline);
    is_published_ = true;
  } catch (const Error&) {
  }
}

std::vector<RankWait> WaitBoard::ReadWaits(int world_rank, Deadline deadline) const {
  std::vector<RankWait> waits;
  try {
    const int64_t slots = options_.store->Add(Key(world_rank, "slots"), 0, deadline);
    for (int64_t slot = 1; slot <= slots; ++slot) {
      ParseText(options_.store->Get(Key(world_rank, absl::StrCat(slot)), deadline), world_rank,
                &waits);
    }
  } catch (const Error&) {  // what has been read is better than nothing
  }
  return waits;
}

}  // namespace lockstep::comm
