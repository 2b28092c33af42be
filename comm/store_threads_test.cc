// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Several threads on one StoreClient: none waits for another's answer.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {
namespace {

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

// Threads that each run one call, joined at the end.
class Threads {
 public:
  ~Threads() { Join(); }
  void Add(std::function<void()> call) { threads_.emplace_back(std::move(call)); }
  void Join() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::vector<std::thread> threads_;
};

TEST(StoreThreads, GetsOfLateKeysHoldUpNobody) {
  StoreServer server({.token = "secret"});
  StoreClient client({.port = server.port(), .token = "secret"});
  constexpr int kGets = 8;
  Threads threads;
  for (int i = 0; i < kGets; ++i) {
    threads.Add([&, i] {
      EXPECT_EQ(client.Get(absl::StrCat("late", i), In(60)), absl::StrCat("value", i * 7));
    });
  }
  // Each Get is awaited before or after this, but all of them are under way most of the time.
  for (int beat = 1; beat <= 200; ++beat) EXPECT_EQ(client.Add("beat", 1, In(20)), beat);
  for (int i = kGets - 1; i >= 0; --i) {
    client.Set(absl::StrCat("late", i), absl::StrCat("value", i * 7), In(20));
    EXPECT_EQ(client.Get("beat", In(20)), "200");
  }
}

// The threads read for each other: the one that reads leaves, and another has to take over.
TEST(StoreThreads, AReaderThatGivesUpLeavesTheReadingToAnother) {
  StoreServer server({});
  StoreClient client({.port = server.port()});
  for (int round = 0; round < 20; ++round) {
    const std::string key = absl::StrCat("key", round);
    std::atomic<int> late{0};
    Threads patient;
    {
      Threads impatient;
      for (int i = 0; i < 3; ++i) {
        impatient.Add([&] {
          MessageOf(absl::StatusCode::kDeadlineExceeded, [&] { client.Get("never", In(0.01)); });
          late.fetch_add(1);
        });
        patient.Add([&] { EXPECT_EQ(client.Get(key, In(30)), key); });
      }
    }
    EXPECT_EQ(late.load(), 3);
    server.local()->Set(key, key, In(20));
  }
}

TEST(StoreThreads, OneSetAnswersAllWithALargeValue) {
  StoreServer server({});
  StoreClient client({.port = server.port()});
  std::string value(kMaxStoreValueBytes, 'v');
  for (size_t i = 0; i < value.size(); i += 4096) value[i] = static_cast<char>('a' + i / 4096 % 26);
  Threads threads;
  std::atomic<int> right{0};
  for (int i = 0; i < kMaxStoreCallsInFlight; ++i) {
    threads.Add([&] { right.fetch_add(client.Get("big", In(60)) == value ? 1 : 0); });
  }
  server.local()->Set("big", value, In(20));
  threads.Join();
  EXPECT_EQ(right.load(), kMaxStoreCallsInFlight);
}

TEST(StoreThreads, CallsBeyondThePlacesWaitForOne) {
  StoreServer server({});
  StoreClient client({.port = server.port()});
  Threads threads;
  for (int i = 0; i < kMaxStoreCallsInFlight; ++i) {
    threads.Add([&, i] { client.Get(absl::StrCat("place", i), In(60)); });
  }
  // Until all of them are under way; each try leaves the client as it was.
  std::string text;
  const Deadline patience = In(20);
  while (text.empty() && !patience.Expired()) {
    try {
      client.Set("k", "v", In(0.02));
    } catch (const Error& error) {
      text = error.message();
    }
  }
  EXPECT_TRUE(absl::StrContains(text, "Set of key k: 32 other threads' calls")) << text;
  // One place is enough.
  server.local()->Set("place5", "", In(20));
  client.Set("k", "v", In(20));
  for (int i = 0; i < kMaxStoreCallsInFlight; ++i) {
    client.Set(absl::StrCat("place", i), "", In(20));
  }
}

TEST(StoreThreads, TheEndOfTheServerEndsEveryCall) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions{});
  StoreClient client({.port = server->port()});
  Threads threads;
  std::atomic<int> ended{0};
  for (int i = 0; i < 8; ++i) {
    threads.Add([&, i] {
      const std::string text = MessageOf(absl::StatusCode::kUnavailable, [&] {
        client.Get(absl::StrCat("key", i), Deadline::Infinite());
      });
      EXPECT_TRUE(absl::StrContains(text, absl::StrCat("key", i))) << text;
      ended.fetch_add(1);
    });
  }
  client.Set("k", "v", In(20));
  server.reset();
  threads.Join();
  EXPECT_EQ(ended.load(), 8);
  MessageOf(absl::StatusCode::kUnavailable, [&] { client.Set("k", "v", In(20)); });
}

}  // namespace
}  // namespace lockstep::comm
