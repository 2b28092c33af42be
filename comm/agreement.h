// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Whether the calls of two ranks fit each other, and what is said when they do not or when a rank
// does not come: the same words in every backend.
#ifndef LOCKSTEP_COMM_AGREEMENT_H_
#define LOCKSTEP_COMM_AGREEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/comm/signature.h"

namespace lockstep::comm {

// What a rank has issued. A view: the counts, of an uneven call, are W, or 2 W for AllToAll.
struct RankCall {
  int rank = 0;
  int64_t sequence = 0;
  Signature signature;
  absl::Span<const int64_t> counts = {};

  std::string ToString() const { return signature.ToString(counts); }
};

// Sequence numbers, signatures and counts; for AllToAll, whether each of the two receives what the
// other sends it.
bool CallsAgree(const RankCall& a, const RankCall& b);

// "ranks disagree on collective 7: rank 0 called AllReduce(...), rank 1 called Barrier()": told
// from the lower rank's side, so that every rank says the same.
std::string DisagreementText(const RankCall& a, const RankCall& b);

// "ranks 2, 3 did not call AllReduce(...) within 1.5s of rank 0, as collective 7". `verb`: "call"
// or "finish".
std::string MissingText(absl::Span<const int> missing, absl::string_view verb, const RankCall& mine,
                        absl::Duration timeout);

// "rank 0 has damaged data from rank 1 in collective 7, AllReduce(...): the checksum does not fit".
// `what`: "data" or "header".
std::string DamagedText(absl::string_view what, int peer, const RankCall& mine);

// The same of transfers, where both ends are known by their calls: a Send and a Recv.
bool TransferFits(const Signature& send, const Signature& receive);
// The call that the peer of `rank` has to make.
Signature CounterpartOf(const Signature& transfer, int rank);
// "ranks disagree on message 3 from rank 0 to rank 1: rank 0 called Send(...), rank 1 called ...".
std::string TransferDisagreementText(int64_t number, int sender, const Signature& send,
                                     int receiver, const Signature& receive);
// "rank 1 did not call Recv(...) within 1.5s of rank 0, as message 3 between them".
std::string MissingTransferText(int64_t number, int rank, const Signature& mine,
                                absl::string_view verb, absl::Duration timeout);
// "rank 0 has damaged data from rank 1 in message 3, for Recv(...): the checksum does not fit".
std::string DamagedTransferText(absl::string_view what, int64_t number, int rank,
                                const Signature& mine);
// "rank 0 has message 4 from rank 1, Send(...), where message 3, for Recv(...), is due: ...".
std::string OutOfTurnTransferText(int64_t number, const Signature& theirs, int64_t due, int rank,
                                  const Signature& mine);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_AGREEMENT_H_
