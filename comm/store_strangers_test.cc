// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Strangers at the store's port: whatever they do, they are dropped and the job goes on.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <random>
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
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store.h"
#include "lockstep/comm/store.pb.h"
#include "lockstep/comm/store_frames.h"
#include "lockstep/comm/store_token.h"

namespace lockstep::comm {
namespace {

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

constexpr char kToken[] = "secret";

UniqueFd Stranger(const StoreServer& server) {
  return ConnectTcp("127.0.0.1", server.port(), In(20));
}

// Whether the other end closes the connection.
bool Ends(const UniqueFd& socket) {
  char byte;
  IoResult result = IoResult::kOk;
  while (result == IoResult::kOk) result = ReceiveAll(socket.get(), &byte, 1, In(20));
  return result == IoResult::kClosed;
}

// A job that exchanges values through the store until it is asked whether all went well.
class Job {
 public:
  explicit Job(const StoreServer& server)
      : a_({.port = server.port(), .token = kToken}),
        b_({.port = server.port(), .token = kToken}),
        left_([this] { Talk(a_, "a", "b"); }),
        right_([this] { Talk(b_, "b", "a"); }) {}
  ~Job() { Finish(); }

  // The values that each side has passed to the other.
  int64_t rounds() const { return rounds_.load(); }
  void Finish() {
    if (!left_.joinable()) return;
    stop_.store(true);
    left_.join();
    right_.join();
  }

 private:
  void Talk(StoreClient& store, const std::string& me, const std::string& other) {
    for (int round = 0;; ++round) {
      const bool last = me == "a" && stop_.load();
      store.Set(absl::StrCat(me, round), last ? "stop" : absl::StrCat("value", round), In(60));
      const std::string theirs = store.Get(absl::StrCat(other, round), In(60));
      if (last || theirs == "stop") return;
      EXPECT_EQ(theirs, absl::StrCat("value", round));
      rounds_.fetch_add(1);
    }
  }

  StoreClient a_;
  StoreClient b_;
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> rounds_{0};
  std::thread left_;
  std::thread right_;
};

// The job still makes progress, counted from now.
void ExpectGoesOn(const Job& job) {
  const int64_t before = job.rounds();
  const Deadline deadline = In(20);
  while (job.rounds() < before + 20 && !deadline.Expired()) std::this_thread::yield();
  EXPECT_GE(job.rounds(), before + 20);
}

TEST(StoreStrangers, GarbageIsDropped) {
  StoreServer server({.token = kToken, .handshake_timeout = absl::Minutes(10)});
  Job job(server);
  std::vector<std::string> garbage = {
      std::string("\xff\xff\xff\x7f", 4),              // a huge length
      std::string("\x01\x04\x00\x00", 4),              // 1025 bytes, too many for a handshake
      std::string("\x03\x00\x00\x00\xff\xff\xff", 7),  // not a message
      std::string("\x00\x00\x00\x00", 4),              // an empty message
      "GET / HTTP/1.1\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),  // the start of a TLS hello
  };
  std::mt19937 random(1);
  for (int i = 0; i < 100; ++i) {
    std::string bytes(64 << (i % 8), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    bytes[1] |= 0x40;  // a length of more than 1 KiB, so that nobody waits for the rest
    garbage.push_back(bytes);
  }
  for (const std::string& bytes : garbage) {
    const UniqueFd socket = Stranger(server);
    SendAll(socket.get(), bytes, In(20));
    EXPECT_TRUE(Ends(socket)) << bytes.size();
  }
  ExpectGoesOn(job);
}

TEST(StoreStrangers, StallingHalfWayIsDroppedAtTheTimeout) {
  StoreServer server({.token = kToken, .handshake_timeout = absl::Milliseconds(300)});
  Job job(server);
  StoreRequest hello;
  hello.set_operation(StoreRequest::HELLO);
  hello.set_nonce(NewNonce());
  const std::string frame = EncodeFrame(hello);
  // Nothing, half a length, half a frame, and all of it without the proof.
  for (const size_t bytes : {size_t{0}, size_t{2}, frame.size() / 2, frame.size()}) {
    const Stopwatch watch;
    const UniqueFd socket = Stranger(server);
    SendAll(socket.get(), absl::string_view(frame).substr(0, bytes), In(20));
    EXPECT_TRUE(Ends(socket)) << bytes;
    EXPECT_GE(watch.ElapsedSeconds(), 0.29) << bytes;
    EXPECT_LT(watch.ElapsedSeconds(), 10) << bytes;  // 0.3
  }
  // One that sends a byte now and then gets no more time. The pace is set by what is tested: a
  // drip's rate, not an order of events.
  const Stopwatch watch;
  const UniqueFd drip = Stranger(server);
  bool open = true;
  for (size_t i = 0; i + 1 < frame.size() && open; ++i) {
    open = SendAll(drip.get(), absl::string_view(frame).substr(i, 1), In(20)) == IoResult::kOk;
    pollfd entry = {drip.get(), POLLIN, 0};
    if (poll(&entry, 1, 20) > 0) open = false;
  }
  EXPECT_TRUE(Ends(drip));
  EXPECT_LT(watch.ElapsedSeconds(), 10);
  ExpectGoesOn(job);
}

// The server gives no stranger its five seconds here, but keeps to its bound.
TEST(StoreStrangers, AFloodHoldsABoundedNumberOfConnections) {
  StoreServer server({.token = kToken, .handshake_timeout = absl::Minutes(10)});
  Job job(server);
  constexpr int kFlood = 3 * kMaxStoreStrangers + 5;
  std::vector<UniqueFd> flood;
  for (int i = 0; i < kFlood; ++i) flood.push_back(Stranger(server));
  // A rank that comes during the flood gets in.
  const Stopwatch watch;
  StoreClient late({.port = server.port(), .token = kToken});
  EXPECT_LT(watch.ElapsedSeconds(), 20);  // 1.5: the flood's three rounds of half a second
  late.Set("late", "1", In(20));
  EXPECT_EQ(server.local()->Get("late", In(20)), "1");
  // Those that came first are gone, down to the bound.
  for (int i = 0; i < kFlood - kMaxStoreStrangers; ++i) EXPECT_TRUE(Ends(flood[i])) << i;
  int open = 0;
  for (const UniqueFd& socket : flood) open += PeerClosed(socket.get()) ? 0 : 1;
  EXPECT_LE(open, kMaxStoreStrangers);
  EXPECT_GE(open, kMaxStoreStrangers - 1);  // none was dropped without need
  ExpectGoesOn(job);
}

TEST(StoreStrangers, AFloodThatComesAgainAndAgain) {
  StoreServer server({.token = kToken});
  Job job(server);
  std::atomic<bool> stop{false};
  std::vector<std::thread> flooders;
  for (int t = 0; t < 4; ++t) {
    flooders.emplace_back([&] {
      while (!stop.load()) {
        std::vector<UniqueFd> sockets;
        for (int i = 0; i < 50; ++i) {
          sockets.push_back(Stranger(server));
          SendAll(sockets.back().get(), "x", In(20));
        }
      }
    });
  }
  for (int i = 0; i < 5; ++i) {
    StoreClient late({.port = server.port(), .token = kToken});
    late.Set(absl::StrCat("late", i), "1", In(20));
  }
  ExpectGoesOn(job);
  stop.store(true);
  for (std::thread& flooder : flooders) flooder.join();
}

// Out of descriptors the server waits for some instead of spinning or ending. Nothing here throws
// or meets a type for the first time while there are none: sanitizers need two to look at it.
TEST(StoreStrangers, NoDescriptorsLeft) {
  StoreServer server({.token = kToken});
  Job job(server);
  ExpectGoesOn(job);
  const UniqueFd waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_TRUE(waiting.valid());
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  rlimit low = limit;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  // Until this process, which is client and server, has no more.
  std::vector<UniqueFd> taken;
  for (int fd = dup(waiting.get()); fd >= 0; fd = dup(waiting.get())) taken.emplace_back(fd);
  const int error = errno;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server.port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected =
      connect(waiting.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  ExpectGoesOn(job);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  taken.clear();
  EXPECT_EQ(error, EMFILE);
  EXPECT_EQ(connected, 0);
  StoreClient late({.port = server.port(), .token = kToken});
  late.Set("late", "1", In(20));
  ExpectGoesOn(job);
}

// One that knows the token and then misbehaves loses its connection only.
TEST(StoreStrangers, GarbageFromAClientIsDropped) {
  StoreServer server({.token = kToken});
  Job job(server);
  auto [ours, theirs] = MakeSocketPair();
  server.Adopt(theirs.release());
  SendAll(ours.get(), std::string("\x03\x00\x00\x00\xff\xff\xff", 7), In(20));
  EXPECT_TRUE(Ends(ours));
  // Half a frame, and no more for as long as the test lasts.
  auto [stalled, adopted] = MakeSocketPair();
  server.Adopt(adopted.release());
  SendAll(stalled.get(), std::string("\x10\x00\x00\x00\x08", 5), In(20));
  // Asks and asks, and never reads an answer.
  auto [deaf, other] = MakeSocketPair();
  server.Adopt(other.release());
  server.local()->Set("big", std::string(kMaxStoreValueBytes, 'x'), In(20));
  StoreRequest get;
  get.set_operation(StoreRequest::WAIT);
  get.add_keys("big");
  for (int i = 0; i < 2 * kMaxStoreCallsInFlight; ++i)
    SendAll(deaf.get(), EncodeFrame(get), In(20));
  EXPECT_TRUE(Ends(deaf));
  ExpectGoesOn(job);
}

}  // namespace
}  // namespace lockstep::comm
