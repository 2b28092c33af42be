// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Every call ends at its deadline, or at once when the server dies, and says what it was.
#include <signal.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {
namespace {

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

struct NamedCall {
  std::string name;
  std::string key;
  std::function<void(Store&, Deadline)> call;
};

std::vector<NamedCall> Calls() {
  return {{"Set", "key a", [](Store& store, Deadline by) { store.Set("a", "v", by); }},
          {"Get", "key b", [](Store& store, Deadline by) { store.Get("b", by); }},
          {"Wait", "keys c, d",
           [](Store& store, Deadline by) {
             store.Wait({"c", "d"}, by);
           }},
          {"Add", "key e", [](Store& store, Deadline by) { store.Add("e", 1, by); }},
          {"Delete", "key f", [](Store& store, Deadline by) { store.Delete("f", by); }}};
}

// The message of `call`'s error; it names the call and the key.
std::string MessageOf(absl::StatusCode code, const NamedCall& call, Store& store,
                      Deadline deadline) {
  const std::string message = lockstep::MessageOf(code, [&] { call.call(store, deadline); });
  for (const std::string& part : {call.name, call.key, store.Describe()}) {
    EXPECT_TRUE(absl::StrContains(message, part)) << message << " lacks " << part;
  }
  return message;
}

TEST(StoreDeadline, AMuteServer) {
  for (const NamedCall& call : Calls()) {
    auto [ours, theirs] = MakeSocketPair();  // nobody reads the other end
    StoreClient client(ours.release(), "mute store");
    const Stopwatch watch;
    const std::string text = MessageOf(absl::StatusCode::kDeadlineExceeded, call, client, In(0.1));
    EXPECT_TRUE(absl::StrContains(text, "did not answer within ")) << text;
    EXPECT_GE(watch.ElapsedSeconds(), 0.1);
    EXPECT_LT(watch.ElapsedSeconds(), 5);
  }
}

TEST(StoreDeadline, AServerThatTakesNothing) {
  auto [ours, theirs] = MakeSocketPair();
  StoreClient client(ours.release(), "full store");
  const std::string large(kMaxStoreValueBytes, 'v');  // more than the socket's buffer holds
  const NamedCall set = {"Set", "key big",
                         [&](Store& store, Deadline by) { store.Set("big", large, by); }};
  const std::string text = MessageOf(absl::StatusCode::kDeadlineExceeded, set, client, In(0.1));
  EXPECT_TRUE(absl::StrContains(text, "took no request within ")) << text;
  // The request was cut in the middle: nothing more can be said on this connection.
  MessageOf(absl::StatusCode::kUnavailable, Calls()[1], client, In(5));
}

TEST(StoreDeadline, KeysThatDoNotCome) {
  StoreServer server({});
  StoreClient client({.port = server.port()});
  LocalStore local;
  for (Store* store : {static_cast<Store*>(&client), static_cast<Store*>(&local)}) {
    for (const int i : {1, 2}) {
      // The server has a second to say which keys are missing: on a machine that is busy with
      // other work it may miss it once, and the client then says so.
      std::string text;
      for (int attempt = 0; attempt < 10 && !absl::StrContains(text, "did not appear"); ++attempt) {
        text = MessageOf(absl::StatusCode::kDeadlineExceeded, Calls()[i], *store, In(0.1));
      }
      EXPECT_TRUE(absl::StrContains(text, "did not appear")) << text;
      EXPECT_TRUE(absl::StrContains(text, " within ")) << text;
    }
    // What is there is given even then.
    store->Set("b", "v", In(5));
    EXPECT_EQ(store->Get("b", In(0)), "v");
  }
}

// Rank 0 serves and is killed while rank 1 waits without a deadline in each call.
void KillTheServer(RankContext& context) {
  if (context.rank == 0) {
    StoreServer server({.token = "secret"});
    context.store->Set("port", absl::StrCat(server.port()), Deadline());
    server.local()->Get("waiting", Deadline());
    context.store->Set("killed_at", absl::StrCat(MonotonicNanoseconds()), Deadline());
    kill(getpid(), SIGKILL);
  }
  int port = 0;
  if (!absl::SimpleAtoi(context.store->Get("port", Deadline()), &port)) {
    throw InternalError("no port");
  }
  StoreClient waiting({.port = port, .token = "secret"});
  StoreClient other({.port = port, .token = "secret"});
  std::string text;
  double noticed_at = 0;
  std::thread waiter([&] {
    try {
      waiting.Get("never", Deadline());
    } catch (const Error& error) {
      noticed_at = static_cast<double>(MonotonicNanoseconds());
      text = error.message();
    }
  });
  try {
    other.Set("waiting", "", Deadline());
  } catch (const Error&) {
    // Rank 0 may be dead before it has answered.
  }
  waiter.join();
  double killed_at = 0;
  if (!absl::SimpleAtod(context.store->Get("killed_at", Deadline()), &killed_at)) {
    throw InternalError("no time of death");
  }
  const double seconds = (noticed_at - killed_at) * 1e-9;
  std::printf("the death of the store was noticed after %.3f s (promised: 1 s)\n", seconds);
  if (seconds > 10 || !absl::StrContains(text, "Get of key never") ||
      !absl::StrContains(text, "has ended")) {
    throw InternalError(absl::StrCat(seconds, " s: ", text));
  }
  for (const NamedCall& call : Calls()) {
    MessageOf(absl::StatusCode::kUnavailable, call, other, Deadline());
  }
  if (testing::Test::HasFailure()) throw InternalError("see above");
}

TEST(StoreDeadline, AKilledServerIsAnErrorAtOnce) {
  const SpawnResult result = Spawn(2, KillTheServer);
  EXPECT_EQ(result.ranks[0].signal, SIGKILL);
  EXPECT_TRUE(result.ranks[1].ok()) << result.ranks[1].ToString();
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  lockstep::comm::MaybeRunSpawnedRank(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
