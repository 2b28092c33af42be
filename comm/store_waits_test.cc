// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/store_waits.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/clock.h"

namespace lockstep::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class StoreWaitsTest : public testing::Test {
 protected:
  // Requests that are ready now that `key` has come.
  std::vector<uint64_t> Set(const std::string& key) {
    values_[key] = "v";
    std::vector<uint64_t> ready;
    waits_.KeyArrived(key, values_, [&](const StoreWait& wait) { ready.push_back(wait.request); });
    return ready;
  }
  std::vector<uint64_t> Expire() {
    std::vector<uint64_t> expired;
    waits_.Expire([&](const StoreWait& wait) { expired.push_back(wait.request); });
    return expired;
  }
  bool Add(uint64_t connection, uint64_t request, std::vector<std::string> keys,
           Deadline deadline = {}) {
    return waits_.Add({connection, request, std::move(keys), deadline}, values_);
  }

  StoreValues values_;
  StoreWaits waits_;
};

TEST_F(StoreWaitsTest, WhatIsThereIsNotWaitedFor) {
  Set("a");
  Set("b");
  EXPECT_FALSE(Add(1, 1, {}));
  EXPECT_FALSE(Add(1, 2, {"b", "a"}));
  EXPECT_TRUE(Add(1, 3, {"b", "c", "a"}));
  EXPECT_EQ(waits_.size(), 1u);
}

TEST_F(StoreWaitsTest, KeysInAnyOrder) {
  Add(1, 10, {"a", "b", "c"});
  Add(2, 11, {"c"});
  Add(1, 12, {"c", "b"});
  Add(3, 13, {"b", "b"});  // the same key twice
  EXPECT_THAT(Set("x"), IsEmpty());
  EXPECT_THAT(Set("c"), ElementsAre(11));
  EXPECT_THAT(Set("c"), IsEmpty());
  EXPECT_THAT(Set("b"), ElementsAre(12, 13));
  EXPECT_THAT(Set("a"), ElementsAre(10));
  EXPECT_EQ(waits_.size(), 0u);
}

TEST_F(StoreWaitsTest, AKeyThatWasDeletedMeanwhileIsAwaitedAgain) {
  Add(1, 1, {"a", "b"});
  EXPECT_THAT(Set("a"), IsEmpty());
  values_.erase("a");
  EXPECT_THAT(Set("b"), IsEmpty());
  values_.erase("b");
  EXPECT_THAT(Set("a"), IsEmpty());
  EXPECT_THAT(Set("b"), ElementsAre(1));
}

TEST_F(StoreWaitsTest, DeadlinesInTheirOrder) {
  EXPECT_TRUE(waits_.NextDeadline().IsInfinite());
  const Deadline past = Deadline::After(absl::ZeroDuration());
  const Deadline future = Deadline::After(absl::Hours(1));
  Add(1, 1, {"a"});
  EXPECT_TRUE(waits_.NextDeadline().IsInfinite());
  Add(1, 2, {"a"}, future);
  Add(1, 3, {"a", "b"}, past);
  Add(2, 4, {"b"}, past);
  EXPECT_EQ(waits_.NextDeadline(), past);
  EXPECT_THAT(Expire(), ElementsAre(3, 4));
  EXPECT_THAT(Expire(), IsEmpty());
  EXPECT_EQ(waits_.NextDeadline(), future);
  EXPECT_THAT(Set("b"), IsEmpty());
  EXPECT_THAT(Set("a"), ElementsAre(1, 2));
}

TEST_F(StoreWaitsTest, AConnectionThatEnds) {
  Add(1, 1, {"a"});
  Add(2, 2, {"a"}, Deadline::After(absl::ZeroDuration()));
  Add(1, 3, {"b"}, Deadline::After(absl::ZeroDuration()));
  Add(3, 4, {"a"});
  waits_.Forget(1);
  waits_.Forget(9);
  EXPECT_EQ(waits_.size(), 2u);
  EXPECT_THAT(Expire(), ElementsAre(2));
  EXPECT_THAT(Set("b"), IsEmpty());
  EXPECT_THAT(Set("a"), ElementsAre(4));
}

// The same answers as looking at every key of every wait each time.
TEST_F(StoreWaitsTest, AgreesWithLookingAtEverything) {
  uint64_t random = 1;
  const auto next = [&](uint64_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % below;
  };
  std::map<uint64_t, std::vector<std::string>> pending;
  for (uint64_t step = 0; step < 20000; ++step) {
    const std::string key = absl::StrCat("k", next(12));
    switch (next(3)) {
      case 0: {
        std::vector<std::string> keys;
        for (uint64_t i = 0; i < 1 + next(5); ++i) keys.push_back(absl::StrCat("k", next(12)));
        const bool missing = !MissingKeys(values_, keys).empty();
        ASSERT_EQ(Add(next(4), step, keys), missing);
        if (missing) pending[step] = keys;
        break;
      }
      case 1:
        values_.erase(key);
        break;
      default: {
        std::set<uint64_t> expected;
        const std::vector<uint64_t> ready = Set(key);
        for (const auto& [request, keys] : pending) {
          if (MissingKeys(values_, keys).empty()) expected.insert(request);
        }
        ASSERT_EQ(std::set<uint64_t>(ready.begin(), ready.end()), expected);
        for (const uint64_t request : ready) pending.erase(request);
      }
    }
  }
  EXPECT_EQ(waits_.size(), pending.size());
}

}  // namespace
}  // namespace lockstep::comm
