// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Strangers at rank 0's port: whatever they do, the ranks are admitted without waiting for them.
#include "lockstep/comm/gloo/admission.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"
#include "lockstep/comm/socket.h"
#include "lockstep/comm/store_token.h"

namespace lockstep::comm::gloo {
namespace {

constexpr char kSecret[] = "secret";
constexpr size_t kGreetingBytes = kNonceBytes + 4;  // nonce and rank

Deadline In(double seconds) { return Deadline::After(absl::Seconds(seconds)); }

class AdmissionTest : public testing::Test {
 protected:
  UniqueFd Connect() const { return ConnectTcp("127.0.0.1", PortOf(listener_.get()), In(60)); }
  // One that says this, and then nothing.
  void AddStranger(const std::string& words) {
    strangers_.push_back(Connect());
    EXPECT_EQ(SendAll(strangers_.back().get(), words, In(60)), IoResult::kOk);
  }
  bool Prove(int rank, const std::string& secret = kSecret) const {
    const UniqueFd socket = Connect();
    return ProveRank(socket.get(), secret, rank, In(60));
  }
  // Starts to admit, in a thread of its own.
  void Admit(int world_size, Deadline deadline) {
    first_ = std::thread([=, this] {
      const Stopwatch watch;
      links_ = AdmitRanks(listener_.get(), kSecret, world_size, deadline);
      seconds_ = watch.ElapsedSeconds();
    });
  }
  std::vector<int> Admitted() {
    first_.join();
    std::vector<int> ranks;
    for (size_t rank = 0; rank < links_.size(); ++rank) {
      if (links_[rank].valid()) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  const UniqueFd listener_ = ListenTcp("127.0.0.1", 0);
  std::vector<UniqueFd> strangers_;
  std::vector<UniqueFd> links_;
  std::thread first_;
  double seconds_ = 0;
};

using Ranks = std::vector<int>;

TEST_F(AdmissionTest, SilentStrangersHoldUpNobody) {
  for (int i = 0; i < 10; ++i) {
    AddStranger("");
    AddStranger("GET / HTTP/1.0\r\n\r\n");           // less than a greeting
    AddStranger(std::string(1000, 'x'));             // more, and no proof
    AddStranger(std::string(kGreetingBytes, '\0'));  // a greeting without a proof
  }
  Admit(4, In(60));
  for (const int rank : {3, 1, 2}) EXPECT_TRUE(Prove(rank)) << rank;
  EXPECT_EQ(Admitted(), (Ranks{1, 2, 3}));
  std::printf("40 strangers, 3 ranks: %.3f s\n", seconds_);
  // One after another they would take their patience, ten seconds each.
  EXPECT_LT(seconds_, 9);
}

TEST_F(AdmissionTest, AFloodMakesRoomForRanks) {
  for (int i = 0; i < 300; ++i) AddStranger("");
  Admit(3, In(60));
  for (const int rank : {1, 2}) EXPECT_TRUE(Prove(rank)) << rank;
  EXPECT_EQ(Admitted(), (Ranks{1, 2}));
  EXPECT_LT(seconds_, 9);
}

// All have said who they are before one proves it, as on hosts that are busy.
TEST_F(AdmissionTest, ManyRanksAtOnceTakeNoRoomFromEachOther) {
  constexpr int kRanks = 200;
  const std::string nonce = NewNonce();
  std::vector<UniqueFd> ranks;
  for (int32_t rank = 1; rank < kRanks; ++rank) {
    ranks.push_back(Connect());
    std::string greeting = nonce;
    greeting.append(reinterpret_cast<const char*>(&rank), sizeof(rank));
    EXPECT_EQ(SendAll(ranks.back().get(), greeting, In(60)), IoResult::kOk);
  }
  Admit(kRanks, In(60));
  std::vector<std::string> theirs;
  for (const UniqueFd& rank : ranks) {
    theirs.emplace_back(kNonceBytes, '\0');
    EXPECT_EQ(ReceiveAll(rank.get(), theirs.back().data(), kNonceBytes, In(60)), IoResult::kOk);
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string proof = ClientProof(kSecret, nonce, theirs[i]);
    EXPECT_EQ(SendAll(ranks[i].get(), proof, In(60)), IoResult::kOk) << "rank " << i + 1;
    char answer = 0;
    EXPECT_EQ(ReceiveAll(ranks[i].get(), &answer, 1, In(60)), IoResult::kOk) << "rank " << i + 1;
  }
  EXPECT_EQ(Admitted().size(), ranks.size());
}

TEST_F(AdmissionTest, OnlyThoseWhoKnowTheSecretOnceEach) {
  Admit(3, In(60));
  EXPECT_FALSE(Prove(1, "another"));
  for (const int none : {0, -1, 3, 1 << 30}) EXPECT_FALSE(Prove(none)) << none;
  const UniqueFd one = Connect();
  EXPECT_TRUE(ProveRank(one.get(), kSecret, 1, In(60)));
  EXPECT_FALSE(Prove(1)) << "rank 1 is there already";
  EXPECT_TRUE(Prove(2));
  EXPECT_EQ(Admitted(), (Ranks{1, 2}));
  // The one that came first is rank 1.
  EXPECT_EQ(SendAll(one.get(), "!", In(60)), IoResult::kOk);
  char byte = 0;
  EXPECT_EQ(ReceiveAll(links_[1].get(), &byte, 1, In(60)), IoResult::kOk);
  EXPECT_EQ(byte, '!');
}

TEST_F(AdmissionTest, AtTheDeadlineItGivesWhomItHas) {
  AddStranger("");
  Admit(3, In(1.5));
  EXPECT_TRUE(Prove(2));
  EXPECT_EQ(Admitted(), (Ranks{2}));
  EXPECT_GE(seconds_, 1.4);
  EXPECT_LT(seconds_, 15);
}

}  // namespace
}  // namespace lockstep::comm::gloo
