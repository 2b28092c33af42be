// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/agreement.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::comm {

bool CallsAgree(const RankCall& a, const RankCall& b) {
  if (a.sequence != b.sequence || a.signature != b.signature) return false;
  if (!a.signature.uneven) return true;
  if (a.signature.op != CollectiveId::kAllToAll) return a.counts == b.counts;
  const auto sent = [](const RankCall& from, const RankCall& to) {
    return from.counts[static_cast<size_t>(to.rank)];
  };
  const auto received = [](const RankCall& by, const RankCall& from) {
    return by.counts[by.counts.size() / 2 + static_cast<size_t>(from.rank)];
  };
  return a.counts.size() == b.counts.size() && sent(a, b) == received(b, a) &&
         sent(b, a) == received(a, b);
}

std::string DisagreementText(const RankCall& a, const RankCall& b) {
  const RankCall& low = a.rank < b.rank ? a : b;
  const RankCall& high = a.rank < b.rank ? b : a;
  return absl::StrCat("ranks disagree on collective ", low.sequence, ": rank ", low.rank,
                      " called ", low.ToString(), ", rank ", high.rank, " called ",
                      high.ToString());
}

std::string MissingText(absl::Span<const int> missing, absl::string_view verb, const RankCall& mine,
                        absl::Duration timeout) {
  return absl::StrCat(missing.size() == 1 ? "rank " : "ranks ", absl::StrJoin(missing, ", "),
                      " did not ", verb, " ", mine.ToString(), " within ",
                      absl::FormatDuration(timeout), " of rank ", mine.rank, ", as collective ",
                      mine.sequence);
}

std::string DamagedText(absl::string_view what, int peer, const RankCall& mine) {
  return absl::StrCat("rank ", mine.rank, " has damaged ", what, " from rank ", peer,
                      " in collective ", mine.sequence, ", ", mine.ToString(),
                      ": the checksum does not fit");
}

bool TransferFits(const Signature& send, const Signature& receive) {
  return send.count == receive.count && send.dtype == receive.dtype && send.tag == receive.tag;
}

Signature CounterpartOf(const Signature& transfer, int rank) {
  Signature other = transfer;
  other.op = transfer.op == CollectiveId::kSend ? CollectiveId::kRecv : CollectiveId::kSend;
  other.peer = rank;
  return other;
}

std::string TransferDisagreementText(int64_t number, int sender, const Signature& send,
                                     int receiver, const Signature& receive) {
  return absl::StrCat("ranks disagree on message ", number, " from rank ", sender, " to rank ",
                      receiver, ": rank ", sender, " called ", send.ToString(), ", rank ", receiver,
                      " called ", receive.ToString());
}

std::string MissingTransferText(int64_t number, int rank, const Signature& mine,
                                absl::string_view verb, absl::Duration timeout) {
  return absl::StrCat(
      "rank ", mine.peer, " did not ", verb, " ", CounterpartOf(mine, rank).ToString(), " within ",
      absl::FormatDuration(timeout), " of rank ", rank, ", as message ", number, " between them");
}

std::string DamagedTransferText(absl::string_view what, int64_t number, int rank,
                                const Signature& mine) {
  return absl::StrCat("rank ", rank, " has damaged ", what, " from rank ", mine.peer,
                      " in message ", number, ", for ", mine.ToString(),
                      ": the checksum does not fit");
}

std::string OutOfTurnTransferText(int64_t number, const Signature& theirs, int64_t due, int rank,
                                  const Signature& mine) {
  return absl::StrCat("rank ", rank, " has message ", number, " from rank ", mine.peer, ", ",
                      theirs.ToString(), ", where message ", due, ", for ", mine.ToString(),
                      ", is due: a message was lost, repeated or reordered");
}

}  // namespace lockstep::comm
