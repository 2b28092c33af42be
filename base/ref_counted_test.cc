// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/ref_counted.h"

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

class Counted : public RefCounted<Counted> {
 public:
  explicit Counted(std::atomic<int>* deleted, int value = 0) : value(value), deleted_(deleted) {}
  ~Counted() { ++*deleted_; }

  int value;

 private:
  std::atomic<int>* deleted_;
};

TEST(RefPtrTest, DeletesWithTheLastReference) {
  std::atomic<int> deleted = 0;
  RefPtr<Counted> a = MakeRef<Counted>(&deleted, 7);
  EXPECT_EQ(a->ref_count(), 1);
  {
    RefPtr<Counted> b = a;
    EXPECT_EQ(a->ref_count(), 2);
    EXPECT_EQ(a, b);
    EXPECT_EQ((*b).value, 7);
  }
  EXPECT_EQ(a->ref_count(), 1);
  EXPECT_EQ(deleted, 0);
  a = nullptr;
  EXPECT_EQ(deleted, 1);
  EXPECT_FALSE(a);
}

TEST(RefPtrTest, MovesWithoutCounting) {
  std::atomic<int> deleted = 0;
  RefPtr<Counted> a = MakeRef<Counted>(&deleted);
  Counted* const address = a.get();
  RefPtr<Counted> b = std::move(a);
  EXPECT_EQ(b.get(), address);
  EXPECT_EQ(b->ref_count(), 1);
  EXPECT_FALSE(a);  // NOLINT: a moved-from RefPtr is null.
  b = std::move(b);
  EXPECT_EQ(b.get(), address);
  EXPECT_EQ(deleted, 0);
}

TEST(RefPtrTest, AssignmentReleasesTheOldObject) {
  std::atomic<int> first_deleted = 0;
  std::atomic<int> second_deleted = 0;
  RefPtr<Counted> a = MakeRef<Counted>(&first_deleted);
  const RefPtr<Counted> b = MakeRef<Counted>(&second_deleted);
  EXPECT_NE(a, b);
  a = b;
  EXPECT_EQ(first_deleted, 1);
  EXPECT_EQ(second_deleted, 0);
  EXPECT_EQ(b->ref_count(), 2);
  const RefPtr<Counted>& same = a;
  a = same;
  EXPECT_EQ(b->ref_count(), 2);
}

TEST(RefPtrTest, NullIsEmpty) {
  RefPtr<Counted> a;
  const RefPtr<Counted> b = a;
  EXPECT_FALSE(a);
  EXPECT_EQ(a, b);
  EXPECT_EQ(b.get(), nullptr);
}

TEST(RefPtrTest, ThreadsReleaseOnce) {
  std::atomic<int> deleted = 0;
  for (int repeat = 0; repeat < 50; ++repeat) {
    RefPtr<Counted> shared = MakeRef<Counted>(&deleted);
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([copy = shared]() mutable {
        for (int i = 0; i < 100; ++i) RefPtr<Counted> again = copy;
        copy = nullptr;
      });
    }
    shared = nullptr;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(deleted, repeat + 1);
  }
}

}  // namespace
}  // namespace lockstep
