// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/store.h"

#include <sys/socket.h>
#include <unistd.h>

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
#include "lockstep/base/temp_folder.h"
#include "lockstep/base/testing.h"
#include "lockstep/comm/file_store.h"
#include "lockstep/comm/socket.h"

namespace lockstep::comm {
namespace {

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

enum class Kind { kLocal, kClient, kFile };

// The same tests for each kind of store.
class StoreTest : public testing::TestWithParam<Kind> {
 protected:
  StoreTest() : server_({.token = "secret"}) {
    if (GetParam() == Kind::kLocal) shared_ = std::make_shared<LocalStore>();
    if (GetParam() == Kind::kFile) {
      shared_ = std::make_shared<FileStore>(FileStoreOptions{.folder = NewFolder()});
    }
  }
  std::shared_ptr<Store> NewClient() {
    if (shared_ != nullptr) return shared_;
    return std::make_shared<StoreClient>(
        StoreClientOptions{.port = server_.port(), .token = "secret"});
  }

 private:
  StoreServer server_;
  std::shared_ptr<Store> shared_;
};
INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest,
                         testing::Values(Kind::kLocal, Kind::kClient, Kind::kFile),
                         [](const auto& info) {
                           if (info.param == Kind::kLocal) return "Local";
                           return info.param == Kind::kClient ? "Client" : "File";
                         });

TEST_P(StoreTest, SetGetDelete) {
  const auto a = NewClient();
  const auto b = NewClient();
  a->Set("k", "v\0w", In(5));
  const std::string bytes("binary\0\xff\n", 9);
  a->Set("k2", bytes, In(5));
  EXPECT_EQ(b->Get("k2", In(5)), bytes);
  a->Set("k2", "", In(5));
  EXPECT_EQ(b->Get("k2", In(5)), "");
  EXPECT_TRUE(b->Delete("k2", In(5)));
  EXPECT_FALSE(b->Delete("k2", In(5)));
  MessageOf(absl::StatusCode::kDeadlineExceeded, [&] { a->Get("k2", In(0.01)); });
}

TEST_P(StoreTest, GetWaitsForAnotherClient) {
  const auto a = NewClient();
  const auto b = NewClient();
  std::thread setter([&] {
    b->Wait({"go"}, In(10));
    b->Set("late", "1", In(10));
  });
  a->Set("go", "", In(10));
  EXPECT_EQ(a->Get("late", In(10)), "1");
  setter.join();
}

// Field report S-1: the error names the key, the client stays in step.
TEST_P(StoreTest, ATimeoutLeavesTheClientUsable) {
  const auto a = NewClient();
  const auto b = NewClient();
  const Stopwatch watch;
  const std::string text =
      MessageOf(absl::StatusCode::kDeadlineExceeded, [&] { a->Wait({"k"}, In(1)); });
  EXPECT_GE(watch.ElapsedSeconds(), 0.99);
  EXPECT_LE(watch.ElapsedSeconds(), 3);  // 1.5 on an idle machine
  EXPECT_TRUE(absl::StrContains(text, "key k ")) << text;
  EXPECT_TRUE(absl::StrContains(text, "store")) << text;
  a->Set("k2", "2", In(5));
  EXPECT_EQ(a->Get("k2", In(5)), "2");
  b->Set("k", "1", In(5));  // what the first wait was for: its answer must not be taken for another
  b->Set("k3", "3", In(5));
  EXPECT_EQ(a->Get("k3", In(5)), "3");
  EXPECT_EQ(a->Get("k", In(5)), "1");
}

TEST_P(StoreTest, WaitNamesWhatIsMissing) {
  const auto a = NewClient();
  a->Set("x", "", In(5));
  const std::string text = MessageOf(absl::StatusCode::kDeadlineExceeded, [&] {
    a->Wait({"x", "y", "z"}, In(0.05));
  });
  EXPECT_TRUE(absl::StrContains(text, "keys y, z ")) << text;
  a->Wait({}, In(0.05));
}

TEST_P(StoreTest, AddIsAtomic) {
  constexpr int kThreads = 16;
  constexpr int kAdds = 1000;
  std::vector<std::thread> threads;
  const auto shared = NewClient();
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      // Half of them share a client.
      const auto client = t % 2 == 0 ? shared : NewClient();
      for (int i = 0; i < kAdds; ++i) client->Add("n", 1, In(60));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shared->Add("n", 0, In(5)), kThreads * kAdds);
  EXPECT_EQ(shared->Get("n", In(5)), "16000");
  EXPECT_EQ(shared->Add("n", -16001, In(5)), -1);
}

TEST_P(StoreTest, RefusesBadArguments) {
  const auto a = NewClient();
  a->Set("text", "abc", In(5));
  MessageOf(absl::StatusCode::kFailedPrecondition, [&] { a->Add("text", 1, In(5)); });
  // The message quotes the key, which may be any bytes.
  const std::string binary("\xff\xfe\0k", 4);
  a->Set(binary, "abc", In(5));
  EXPECT_TRUE(absl::StrContains(
      MessageOf(absl::StatusCode::kFailedPrecondition, [&] { a->Add(binary, 1, In(5)); }), binary));
  a->Set("big", absl::StrCat(INT64_MAX), In(5));
  MessageOf(absl::StatusCode::kOutOfRange, [&] { a->Add("big", 1, In(5)); });
  MessageOf(absl::StatusCode::kInvalidArgument, [&] { a->Set("", "v", In(5)); });
  MessageOf(absl::StatusCode::kInvalidArgument,
            [&] { a->Get(std::string(kMaxStoreKeyBytes + 1, 'k'), In(5)); });
  MessageOf(absl::StatusCode::kInvalidArgument,
            [&] { a->Set("k", std::string(kMaxStoreValueBytes + 1, 'v'), In(5)); });
  const std::string largest(kMaxStoreValueBytes, 'v');
  a->Set(std::string(kMaxStoreKeyBytes, 'k'), largest, In(5));
  EXPECT_EQ(a->Get(std::string(kMaxStoreKeyBytes, 'k'), In(5)), largest);
}

// ---- Server ----

TEST(StoreServerTest, PortZeroGivesTheRealPort) {
  StoreServer server({});
  EXPECT_GT(server.port(), 0);
  StoreClient client({.port = server.port()});
  EXPECT_EQ(client.Describe(), absl::StrCat("store at 127.0.0.1:", server.port()));
  EXPECT_TRUE(absl::StrContains(MessageOf(absl::StatusCode::kUnavailable,
                                          [&] { StoreServer again({.port = server.port()}); }),
                                absl::StrCat("127.0.0.1:", server.port())));
  server.local()->Set("k", "v", In(5));
  EXPECT_EQ(client.Get("k", In(5)), "v");
}

TEST(StoreServerTest, RefusesAForeignAddress) {
  MessageOf(absl::StatusCode::kInvalidArgument,
            [] { StoreServer server({.address = "192.0.2.1"}); });
  MessageOf(absl::StatusCode::kInvalidArgument, [] { StoreServer server({.address = "no such"}); });
}

TEST(StoreServerTest, TokenIsRequired) {
  StoreServer server({.token = "secret"});
  for (const char* token : {"", "secre", "secretsecret", "Secret"}) {
    const Stopwatch watch;
    const std::string text = MessageOf(absl::StatusCode::kInvalidArgument, [&] {
      StoreClient client({.port = server.port(), .token = token});
    });
    EXPECT_TRUE(absl::StrContains(text, absl::StrCat("127.0.0.1:", server.port()))) << text;
    EXPECT_TRUE(absl::StrContains(text, "refuses our token")) << text;
    EXPECT_FALSE(absl::StrContains(text, "secret")) << text;
    EXPECT_LT(watch.ElapsedSeconds(), 10);  // 0.001: a refusal is not retried
  }
  // A request before the token is not served.
  UniqueFd socket = ConnectTcp("127.0.0.1", server.port(), In(5));
  StoreClient client(socket.release(), "raw");
  MessageOf(absl::StatusCode::kUnavailable, [&] { client.Set("k", "v", In(5)); });
  StoreClient good({.port = server.port(), .token = "secret"});
  good.Set("k", "v", In(5));
}

TEST(StoreServerTest, RefusesBadOptions) {
  EXPECT_TRUE(absl::StrContains(
      MessageOf(absl::StatusCode::kInvalidArgument,
                [] { StoreServer server({.handshake_timeout = absl::ZeroDuration()}); }),
      "handshake_timeout is 0"));
}

TEST(StoreServerTest, AdoptedConnectionsNeedNoToken) {
  StoreServer server({.token = "secret", .listen = false});
  EXPECT_EQ(server.port(), 0);
  auto [ours, theirs] = MakeSocketPair();
  server.Adopt(theirs.release());
  StoreClient client(ours.release(), "adopted");
  client.Set("k", "v", In(5));
  EXPECT_EQ(server.local()->Get("k", In(5)), "v");
}

TEST(StoreClientTest, WaitsForAServerThatStartsLater) {
  UniqueFd reserved = ListenTcp("127.0.0.1", 0);
  const int port = PortOf(reserved.get());
  reserved.reset();
  std::thread client_thread([port] {
    StoreClient client({.port = port, .connect_timeout = absl::Seconds(30)});
    client.Set("k", "v", In(10));
  });
  // Any start after the client's first attempts will do; those begin at once.
  usleep(50000);
  StoreServer server({.port = port});
  EXPECT_EQ(server.local()->Get("k", In(30)), "v");
  client_thread.join();
}

TEST(StoreClientTest, GivesUpOnAServerThatIsNotThere) {
  UniqueFd reserved = ListenTcp("127.0.0.1", 0);
  const int port = PortOf(reserved.get());
  reserved.reset();
  const std::string text = MessageOf(absl::StatusCode::kDeadlineExceeded, [port] {
    StoreClient client({.port = port, .connect_timeout = absl::Milliseconds(300)});
  });
  EXPECT_TRUE(absl::StrContains(text, absl::StrCat("127.0.0.1:", port))) << text;
  // One that accepts and says nothing.
  const UniqueFd mute = ListenTcp("127.0.0.1", 0);
  MessageOf(absl::StatusCode::kDeadlineExceeded, [&] {
    StoreClient client({.port = PortOf(mute.get()), .connect_timeout = absl::Milliseconds(300)});
  });
}

TEST(StoreClientTest, NoticesTheEndOfTheServer) {
  auto server = std::make_unique<StoreServer>(StoreServerOptions{});
  StoreClient client({.port = server->port()});
  client.Set("k", "v", In(5));
  server.reset();
  MessageOf(absl::StatusCode::kUnavailable, [&] { client.Get("k", In(5)); });
  MessageOf(absl::StatusCode::kUnavailable, [&] { client.Get("k", In(5)); });
}

}  // namespace
}  // namespace lockstep::comm
