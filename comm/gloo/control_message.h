// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What ranks tell each other over their control connections. This is the only place where these
// bytes are written and read.
//
//   frame    magic (4 bytes), kind (4), bytes of the body (4), CRC-32 of kind and body (4), body
//
// Numbers are in the byte order of the hosts, which Gloo wants to be the same everywhere.
#ifndef LOCKSTEP_COMM_GLOO_CONTROL_MESSAGE_H_
#define LOCKSTEP_COMM_GLOO_CONTROL_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/signature.h"

namespace lockstep::comm::gloo {

enum class MessageKind : uint32_t {
  kCall = 1,     // to rank 0: has entered `sequence` with `signature` and `counts`
  kGo = 2,       // from rank 0: every rank has entered `sequence`, with calls that fit
  kExpired = 3,  // to rank 0: has waited for `timeout`, and others have not entered `sequence`;
                 // `text` says what is known of why
  kFailed = 4,   // the group has failed, with `code` and `text`
  kLeft = 5,     // `rank` has destroyed its communicator
  kAlive = 6,    // nothing else to say
  kMissing = 7,  // from rank 0: those of `counts` have not entered `sequence` yet
};

// The fields that the kind does not name are not sent.
struct ControlMessage {
  MessageKind kind = MessageKind::kAlive;
  int64_t sequence = 0;
  int32_t rank = 0;
  absl::StatusCode code = absl::StatusCode::kOk;
  absl::Duration timeout;
  Signature signature;
  std::vector<int64_t> counts;
  std::string text;
};

// Room for the counts of 65536 ranks.
inline constexpr size_t kMaxControlBody = size_t{2} << 20;

std::string EncodeMessage(const ControlMessage& message);

// Takes the first message off the front of `bytes`: the length of its frame, or 0 if it has not all
// come yet. Throws DataLoss for bytes that are no message: what follows them cannot be understood
// either.
size_t DecodeMessage(absl::string_view bytes, ControlMessage* message);

// A signature alone, as transfers send it ahead of their data: kSignatureFrame bytes. Decoding
// throws DataLoss.
inline constexpr size_t kSignatureFrame = 96;
std::string EncodeSignature(const Signature& signature, int64_t number);
Signature DecodeSignature(absl::string_view frame, int64_t* number);

}  // namespace lockstep::comm::gloo

#endif  // LOCKSTEP_COMM_GLOO_CONTROL_MESSAGE_H_
