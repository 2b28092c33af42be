// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The handshake as seen on the wire: a raw client against the server, and the client against raw
// servers.
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/store.pb.h"
#include "lockstep/comm/store_frames.h"
#include "lockstep/comm/store_token.h"

namespace lockstep::comm {
namespace {

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

// One end of a connection, frame by frame.
class Wire {
 public:
  explicit Wire(UniqueFd socket) : socket_(std::move(socket)) {}

  void Send(const google::protobuf::MessageLite& message) {
    SendAll(socket_.get(), EncodeFrame(message), In(10));
  }
  void SendBytes(const std::string& bytes) { SendAll(socket_.get(), bytes, In(10)); }
  // False at the end of the stream; fails after ten seconds.
  bool Receive(google::protobuf::MessageLite* message) {
    const Deadline deadline = In(10);
    while (!frames_.Next(message)) {
      if (!WaitReadable(socket_.get(), deadline)) {
        ADD_FAILURE() << "nothing came";
        return false;
      }
      if (!frames_.ReadFrom(socket_.get())) return false;
    }
    return true;
  }
  bool Ended() {
    StoreResponse response;
    return !Receive(&response);
  }

 private:
  UniqueFd socket_;
  FrameReader frames_{kMaxStoreFrameBytes};
};

Wire ConnectTo(const StoreServer& server) {
  return Wire(ConnectTcp("127.0.0.1", server.port(), In(10)));
}

StoreRequest Hello(const std::string& nonce) {
  StoreRequest request;
  request.set_id(1);
  request.set_operation(StoreRequest::HELLO);
  request.set_nonce(nonce);
  return request;
}

StoreRequest Prove(const std::string& proof) {
  StoreRequest request;
  request.set_id(2);
  request.set_operation(StoreRequest::PROVE);
  request.set_proof(proof);
  return request;
}

TEST(StoreHandshake, BothProveAndTheServerLast) {
  StoreServer server({.token = "secret"});
  Wire wire = ConnectTo(server);
  const std::string ours = NewNonce();
  StoreResponse challenge;
  wire.Send(Hello(ours));
  ASSERT_TRUE(wire.Receive(&challenge));
  EXPECT_EQ(challenge.nonce().size(), kNonceBytes);
  EXPECT_EQ(challenge.proof(), "");  // a stranger learns nothing to try tokens against
  wire.Send(Prove(ClientProof("secret", ours, challenge.nonce())));
  StoreResponse verdict;
  ASSERT_TRUE(wire.Receive(&verdict));
  EXPECT_EQ(verdict.code(), 0);
  EXPECT_EQ(verdict.proof(), ServerProof("secret", ours, challenge.nonce()));
}

TEST(StoreHandshake, ChallengesAreFreshAndProofsCannotBeReplayed) {
  StoreServer server({.token = "secret"});
  const std::string ours(kNonceBytes, 'n');
  Wire first = ConnectTo(server);
  Wire second = ConnectTo(server);
  StoreResponse a;
  StoreResponse b;
  first.Send(Hello(ours));
  second.Send(Hello(ours));
  ASSERT_TRUE(first.Receive(&a));
  ASSERT_TRUE(second.Receive(&b));
  EXPECT_NE(a.nonce(), b.nonce());
  const std::string proof = ClientProof("secret", ours, a.nonce());
  second.Send(Prove(proof));
  StoreResponse verdict;
  ASSERT_TRUE(second.Receive(&verdict));
  EXPECT_EQ(verdict.code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(verdict.proof(), "");
  EXPECT_TRUE(second.Ended());
  first.Send(Prove(proof));
  ASSERT_TRUE(first.Receive(&verdict));
  EXPECT_EQ(verdict.code(), 0);
}

TEST(StoreHandshake, OutOfTurnEndsTheConnection) {
  StoreServer server({.token = "secret"});
  const auto ends = [&](const std::function<void(Wire&)>& talk) {
    Wire wire = ConnectTo(server);
    talk(wire);
    return wire.Ended();
  };
  StoreRequest set;
  set.set_operation(StoreRequest::SET);
  set.add_keys("k");
  EXPECT_TRUE(ends([&](Wire& wire) { wire.Send(set); }));
  EXPECT_TRUE(ends([](Wire& wire) { wire.Send(Prove("")); }));
  EXPECT_TRUE(ends([](Wire& wire) { wire.Send(Prove(ClientProof("secret", "", ""))); }));
  for (const size_t bytes : {size_t{0}, kNonceBytes - 1, kNonceBytes + 1}) {
    EXPECT_TRUE(ends([&](Wire& wire) { wire.Send(Hello(std::string(bytes, 'n'))); })) << bytes;
  }
  EXPECT_TRUE(ends([&](Wire& wire) {
    StoreResponse challenge;
    wire.Send(Hello(NewNonce()));
    ASSERT_TRUE(wire.Receive(&challenge));
    wire.Send(Hello(NewNonce()));  // a second challenge
  }));
  EXPECT_TRUE(ends([&](Wire& wire) {
    StoreResponse challenge;
    wire.Send(Hello(NewNonce()));
    ASSERT_TRUE(wire.Receive(&challenge));
    wire.Send(set);
  }));
  ASSERT_TRUE(server.local()->Add("n", 1, In(5)) == 1);
  EXPECT_FALSE(server.local()->Delete("k", In(5)));
}

// A server that is none of ours: it answers as `impostor` does, and sees all that the client sends.
std::string ErrorAgainst(const std::function<void(Wire&, std::string* seen)>& impostor,
                         absl::StatusCode code, std::string* seen) {
  const UniqueFd listener = ListenTcp("127.0.0.1", 0);
  std::thread thread([&] {
    Wire wire(Accept(listener.get(), In(10)));
    impostor(wire, seen);
  });
  std::string text;
  try {
    StoreClient client(
        {.port = PortOf(listener.get()), .token = "secret", .connect_timeout = absl::Seconds(10)});
    ADD_FAILURE() << "connected";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    text = error.message();
  }
  thread.join();
  return text;
}

TEST(StoreHandshake, ClientsRefuseAServerThatDoesNotKnowTheToken) {
  for (const bool reflect : {false, true}) {
    std::string seen;
    const std::string text = ErrorAgainst(
        [reflect](Wire& wire, std::string* all) {
          StoreRequest hello;
          StoreRequest prove;
          StoreResponse response;
          ASSERT_TRUE(wire.Receive(&hello));
          response.set_id(hello.id());
          response.set_nonce(hello.nonce());  // also as a challenge, the client's own is no use
          wire.Send(response);
          ASSERT_TRUE(wire.Receive(&prove));
          *all = hello.SerializeAsString() + prove.SerializeAsString();
          response.set_id(prove.id());
          response.set_proof(reflect ? prove.proof() : std::string(32, 'p'));
          wire.Send(response);
        },
        absl::StatusCode::kUnavailable, &seen);
    EXPECT_TRUE(absl::StrContains(text, "does not know our token")) << text;
    EXPECT_GT(seen.size(), 2 * kNonceBytes);
    EXPECT_FALSE(absl::StrContains(seen, "secret"));
  }
}

TEST(StoreHandshake, ClientsRefuseOtherPrograms) {
  std::string seen;
  const Stopwatch watch;
  const std::string text = ErrorAgainst(
      [](Wire& wire, std::string*) { wire.SendBytes("HTTP/1.1 400 Bad Request\r\n\r\n"); },
      absl::StatusCode::kInvalidArgument, &seen);
  EXPECT_TRUE(absl::StrContains(text, "another program's port")) << text;
  EXPECT_LT(watch.ElapsedSeconds(), 9);  // at once
}

TEST(StoreHandshake, AConnectionThatEndsWithoutAnswerIsTriedAgain) {
  const UniqueFd listener = ListenTcp("127.0.0.1", 0);
  StoreServer server({.token = "secret"});
  // Ends the first two connections, then the store itself has the next ones: its port is another,
  // so this end passes the bytes on.
  std::thread thread([&] {
    for (int i = 0; i < 2; ++i) {
      StoreRequest hello;
      EXPECT_TRUE(Wire(Accept(listener.get(), In(10))).Receive(&hello));
    }
    Wire client(Accept(listener.get(), In(10)));
    Wire store = ConnectTo(server);
    for (StoreRequest request; client.Receive(&request);) {
      StoreResponse response;
      store.Send(request);
      if (!store.Receive(&response)) return;
      client.Send(response);
    }
  });
  {
    StoreClient client({.port = PortOf(listener.get()), .token = "secret"});
    client.Set("k", "v", In(10));
  }
  thread.join();
  EXPECT_EQ(server.local()->Get("k", In(10)), "v");
}

}  // namespace
}  // namespace lockstep::comm
