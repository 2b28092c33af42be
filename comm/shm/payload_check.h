// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Checksums of the data that ranks read from each other (ProcessGroupOptions::verify_payload):
// published by the rank that has the data, before the meeting that lets others read it, and
// compared by the rank that has read it.
//
//   check.Seal(PayloadCheck::kInput, slot, reader, data, bytes);      // the owner
//   ...                                                               // a meeting
//   check.Compare(PayloadCheck::kInput, slot, owner, reader, data, bytes);
#ifndef LOCKSTEP_COMM_SHM_PAYLOAD_CHECK_H_
#define LOCKSTEP_COMM_SHM_PAYLOAD_CHECK_H_

#include <cstdint>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/comm/shm/member.h"

namespace lockstep::comm::shm {

// Used by the communication thread. Does nothing unless the member verifies payloads.
class PayloadCheck {
 public:
  // What the sum is of. `part` tells apart what the data consist of: what rank `part` reads, or
  // works on.
  enum What {
    kInput,   // a part of the rank's input; `slot` is the member's
    kStaged,  // a part of what it has staged; `slot` is the half
    kResult,  // what it has reduced (part 0); `slot` is the member's, or the half if staged
  };

  explicit PayloadCheck(Member* member) : member_(*member) {}

  bool enabled() const { return member_.verifies_payload(); }

  void Seal(What what, int slot, int part, const void* data, int64_t bytes);
  // Fails the group with DataLoss when the data of `owner`, which may be this rank itself, are not
  // those that it has sealed.
  void Compare(What what, int slot, int owner, int part, const void* data, int64_t bytes);

  // The same for data that come in pieces, from all ranks at a time.
  void StartPieces();
  void AddPiece(int owner, const void* data, int64_t bytes);
  void ComparePieces(What what, int slot, int owner, int part);

 private:
  uint64_t& Sum(What what, int slot, int owner, int part) const;
  void Require(bool fits, int owner);

  Member& member_;
  std::vector<Hasher64> pieces_;
};

}  // namespace lockstep::comm::shm

#endif  // LOCKSTEP_COMM_SHM_PAYLOAD_CHECK_H_
