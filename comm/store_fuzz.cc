// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry point for libFuzzer: bytes are what a connection to a store's server sends. The first byte
// says who sends them: a stranger, or a client that has proved to know the token (an adopted one).
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/store.pb.h"
#include "lockstep/comm/store_frames.h"

namespace lockstep::comm {
namespace {

// The client's end of a connection to a server that lives as long as the program.
UniqueFd Connect(StoreServer& server, bool stranger) {
  if (stranger) return ConnectTcp("127.0.0.1", server.port(), Deadline::After(absl::Seconds(60)));
  auto [ours, theirs] = MakeSocketPair();
  server.Adopt(theirs.release());
  return std::move(ours);
}

void TalkToServer(absl::string_view bytes, bool stranger) {
  static StoreServer* server = new StoreServer({.token = "secret"});
  const UniqueFd socket = Connect(*server, stranger);
  SendAll(socket.get(), bytes, Deadline::After(absl::Seconds(60)));
  // The server has read everything when it has answered the end of the stream with its own.
  shutdown(socket.get(), SHUT_WR);
  std::string answers;
  char chunk[4096];
  for (;;) {
    size_t got = 0;
    const IoResult result =
        ReceiveAll(socket.get(), chunk, sizeof(chunk), Deadline::After(absl::Seconds(60)), &got);
    answers.append(chunk, got);
    if (result == IoResult::kDeadline) __builtin_trap();
    if (result == IoResult::kClosed) break;
  }
  // A stranger gets no proof, whatever it sends.
  FrameReader frames(kMaxStoreFrameBytes);
  frames.Append(answers);
  for (StoreResponse response; frames.Next(&response);) {
    if (stranger && (!response.proof().empty() || !response.value().empty())) __builtin_trap();
  }
}

// The client's side: what a server might answer.
void CutIntoResponses(absl::string_view bytes) {
  FrameReader frames(kMaxHandshakeFrameBytes);
  frames.Append(bytes);
  for (StoreResponse response; frames.Next(&response);) {
    if (response.ByteSizeLong() > kMaxHandshakeFrameBytes) __builtin_trap();
  }
}

}  // namespace
}  // namespace lockstep::comm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  lockstep::comm::CutIntoResponses(bytes);
  lockstep::comm::TalkToServer(bytes, data[0] % 2 == 0);
  return 0;
}
