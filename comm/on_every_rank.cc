// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/on_every_rank.h"

#include <cstddef>
#include <exception>
#include <optional>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/byte_strings.h"

namespace lockstep::comm {

std::vector<std::string> OnEveryRank(Communicator& group, absl::string_view call,
                                     absl::FunctionRef<std::string()> work) {
  constexpr char kDone = '+', kFailed = '-';
  std::optional<Error> failure;
  std::string mine;
  try {
    mine = kDone + work();
  } catch (const Error& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = InternalError(absl::StrCat(call, ": ", error.what()));
  }
  if (failure) mine = kFailed + failure->message();
  std::vector<std::string> all = AllGatherBytes(group, mine);
  if (failure) throw Error(*failure);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].front() == kFailed) {
      throw AbortedError(absl::StrCat(call, ": rank ", rank, " failed: ", all[rank].substr(1)));
    }
    all[rank].erase(0, 1);
  }
  return all;
}

void AllOrNone(Communicator& group, absl::string_view call, absl::FunctionRef<void()> work) {
  OnEveryRank(group, call, [&] {
    work();
    return std::string();
  });
}

}  // namespace lockstep::comm
