// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Entry point for libFuzzer: bytes are what one end of a store's connection sends. The first byte
// says who sends them:
//   0  a stranger to a server;
//   1  a client that has proved to know the token (an adopted one);
//   2  a stranger that goes through the handshake, with a proof that the bytes spoil or leave as it
//      is;
//   3  a server to a client.
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/store.pb.h"
#include "lockstep/comm/store_frames.h"
#include "lockstep/comm/store_token.h"

namespace lockstep::comm {
namespace {

constexpr char kToken[] = "secret";

Deadline Patience() { return Deadline::After(absl::Seconds(60)); }

// Lives as long as the program.
StoreServer& Server() {
  static StoreServer* server = new StoreServer({.token = kToken});
  return *server;
}

UniqueFd ConnectAsStranger() { return ConnectTcp("127.0.0.1", Server().port(), Patience()); }

UniqueFd ConnectAsClient() {
  auto [ours, theirs] = MakeSocketPair();
  Server().Adopt(theirs.release());
  return std::move(ours);
}

// Sends, and returns all that comes back until the server has read everything: it answers the end
// of the stream with its own.
std::string Talk(const UniqueFd& socket, absl::string_view bytes) {
  SendAll(socket.get(), bytes, Patience());
  shutdown(socket.get(), SHUT_WR);
  std::string answers;
  char chunk[4096];
  for (;;) {
    size_t got = 0;
    const IoResult result = ReceiveAll(socket.get(), chunk, sizeof(chunk), Patience(), &got);
    answers.append(chunk, got);
    if (result == IoResult::kDeadline) __builtin_trap();
    if (result == IoResult::kClosed) return answers;
  }
}

// A stranger gets no proof and no value, whatever it sends.
void ExpectNothing(absl::string_view answers) {
  FrameReader frames(kMaxStoreFrameBytes);
  frames.Append(answers);
  for (StoreResponse response; frames.Next(&response);) {
    if (!response.proof().empty() || !response.value().empty()) __builtin_trap();
  }
}

// One step of a handshake; false when the server has ended the connection.
bool Step(const UniqueFd& socket, const StoreRequest& request, FrameReader* frames,
          StoreResponse* response) {
  SendAll(socket.get(), EncodeFrame(request), Patience());
  while (!frames->Next(response)) {
    if (!WaitReadable(socket.get(), Patience())) __builtin_trap();
    if (!frames->ReadFrom(socket.get())) return false;
  }
  return true;
}

// The first 32 bytes are the nonce; the next ones are what the proof is changed by; the rest is
// said after it.
void ShakeHands(absl::string_view bytes) {
  const UniqueFd socket = ConnectAsStranger();
  FrameReader frames(kMaxStoreFrameBytes);
  StoreRequest hello;
  StoreResponse challenge;
  hello.set_operation(StoreRequest::HELLO);
  hello.set_nonce(std::string(bytes.substr(0, kNonceBytes)));
  bytes.remove_prefix(hello.nonce().size());
  const bool challenged = Step(socket, hello, &frames, &challenge);
  if (challenged != (hello.nonce().size() == kNonceBytes)) __builtin_trap();
  if (!challenged) return;

  StoreRequest prove;
  StoreResponse verdict;
  std::string proof = ClientProof(kToken, hello.nonce(), challenge.nonce());
  const absl::string_view changes = bytes.substr(0, proof.size());
  bytes.remove_prefix(changes.size());
  bool right = true;
  for (size_t i = 0; i < changes.size(); ++i) {
    proof[i] = static_cast<char>(proof[i] ^ changes[i]);
    right = right && changes[i] == 0;
  }
  prove.set_operation(StoreRequest::PROVE);
  prove.set_proof(proof);
  if (!Step(socket, prove, &frames, &verdict)) __builtin_trap();
  if ((verdict.code() == 0) != right || verdict.proof().empty() == right) __builtin_trap();
  const std::string answers = Talk(socket, bytes);
  if (!right && !answers.empty()) __builtin_trap();
}

// The client gets a value or an Error.
void AnswerClient(absl::string_view bytes) {
  auto [ours, theirs] = MakeSocketPair();
  if (SendAll(theirs.get(), bytes, Deadline::After(absl::ZeroDuration())) != IoResult::kOk) return;
  shutdown(theirs.get(), SHUT_WR);
  StoreClient client(ours.release(), "fuzzer");
  for (int call = 0; call < 3; ++call) {
    try {
      if (call == 1) {
        client.Add("number", 1, Patience());
      } else {
        client.Get("key", Patience());
      }
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace lockstep::comm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      lockstep::comm::ExpectNothing(
          lockstep::comm::Talk(lockstep::comm::ConnectAsStranger(), bytes));
      break;
    case 1:
      lockstep::comm::Talk(lockstep::comm::ConnectAsClient(), bytes);
      break;
    case 2:
      lockstep::comm::ShakeHands(bytes);
      break;
    default:
      lockstep::comm::AnswerClient(bytes);
  }
  return 0;
}
