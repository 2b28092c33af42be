// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

// Of the OpenMP runtime that base/parallel.cc links; its header would need the compiler flag.
extern "C" int omp_get_max_threads();

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Range = std::pair<int64_t, int64_t>;

std::set<Range> RangesOf(int threads, int64_t count, int64_t chunk) {
  std::mutex mutex;
  std::set<Range> ranges;
  ParallelFor(threads, count, chunk, [&](int64_t begin, int64_t end) {
    std::lock_guard<std::mutex> lock(mutex);
    EXPECT_TRUE(ranges.emplace(begin, end).second) << begin << " ran twice";
  });
  return ranges;
}

TEST(ChunkCountTest, RoundsUp) {
  EXPECT_EQ(ChunkCount(0, 4), 0);
  EXPECT_EQ(ChunkCount(1, 4), 1);
  EXPECT_EQ(ChunkCount(4, 4), 1);
  EXPECT_EQ(ChunkCount(5, 4), 2);
  EXPECT_EQ(ChunkCount(INT64_MAX, INT64_MAX), 1);
  EXPECT_EQ(ChunkCount(INT64_MAX, 1), INT64_MAX);
}

TEST(ParallelForTest, ChunkBordersDependOnSizesOnly) {
  for (const int64_t count : {0, 1, 2, 3, 5, 15, 16, 17, 1000}) {
    for (const int64_t chunk : {1, 3, 5, 16, 2000}) {
      std::set<Range> expected;
      for (int64_t begin = 0; begin < count; begin += chunk) {
        expected.emplace(begin, std::min(begin + chunk, count));
      }
      EXPECT_EQ(static_cast<int64_t>(expected.size()), ChunkCount(count, chunk));
      for (const int threads : {-1, 0, 1, 2, 3, 4, 7}) {
        EXPECT_EQ(RangesOf(threads, count, chunk), expected)
            << "count " << count << " chunk " << chunk << " threads " << threads;
      }
    }
  }
}

TEST(ParallelForTest, WritesEachElementOnce) {
  std::vector<int> hits(10007, 0);
  ParallelFor(3, static_cast<int64_t>(hits.size()), 13, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
  });
  for (size_t i = 0; i < hits.size(); ++i) ASSERT_EQ(hits[i], 1) << i;
}

// Each of the two bodies waits for the other: ends only if two threads take part.
TEST(ParallelForTest, RunsOnSeveralThreads) {
  std::atomic<int> arrived = 0;
  ParallelFor(2, 2, 1, [&](int64_t, int64_t) {
    EXPECT_TRUE(InParallelRegion());
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_FALSE(InParallelRegion());
}

// One thread is held in the first chunk of its share until all other chunks are done, so the rest
// of that share must be taken over by the other thread.
TEST(ParallelForTest, TakesOverTheShareOfASlowThread) {
  std::atomic<int> done = 0;
  ParallelFor(2, 10, 1, [&](int64_t begin, int64_t) {
    if (begin == 0) {
      while (done < 9) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done, 10);
}

TEST(ParallelForTest, SerialInOrderOnTheCallingThread) {
  for (const int threads : {-3, 0, 1}) {
    std::vector<int64_t> begins;
    ParallelFor(threads, 7, 3, [&](int64_t begin, int64_t) {
      EXPECT_FALSE(InParallelRegion());
      begins.push_back(begin);
    });
    EXPECT_THAT(begins, ElementsAre(0, 3, 6));
  }
}

TEST(ParallelForTest, OneChunkRunsOnTheCallingThread) {
  const std::thread::id caller = std::this_thread::get_id();
  ParallelFor(4, 5, 5, [&](int64_t, int64_t) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_FALSE(InParallelRegion());
  });
}

TEST(ParallelForTest, NestedRegionsAreSerial) {
  std::atomic<int> inner_chunks = 0;
  ParallelFor(2, 2, 1, [&](int64_t, int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    int64_t next = 0;
    ParallelFor(4, 6, 2, [&](int64_t begin, int64_t) {
      EXPECT_EQ(std::this_thread::get_id(), self);
      EXPECT_EQ(begin, next);
      next += 2;
      ++inner_chunks;
    });
  });
  EXPECT_EQ(inner_chunks, 6);
}

TEST(ParallelForTest, SeveralCallersAtOnce) {
  std::vector<int64_t> sums(3, 0);
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < sums.size(); ++caller) {
    callers.emplace_back([&sums, caller] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        sums[caller] += ParallelReduce(
            2, 100, 7, int64_t{0},
            [](int64_t begin, int64_t end) {
              int64_t sum = 0;
              for (int64_t i = begin; i < end; ++i) sum += i;
              return sum;
            },
            [](int64_t a, int64_t b) { return a + b; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_THAT(sums, ElementsAre(99000, 99000, 99000));
}

TEST(ParallelForTest, RethrowsTheFirstExceptionInChunkOrder) {
  for (const int threads : {1, 2, 3, 4}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      try {
        ParallelFor(threads, 64, 1, [&](int64_t begin, int64_t) {
          if (begin % 16 == 5) throw std::runtime_error(std::to_string(begin));
        });
        ADD_FAILURE() << "nothing was thrown";
      } catch (const std::runtime_error& e) {
        EXPECT_STREQ(e.what(), "5") << threads << " threads";
      }
    }
  }
}

// The later chunk fails first in time: the earlier one must still run, and win.
TEST(ParallelForTest, ALaterFailureDoesNotHideAnEarlierOne) {
  std::atomic<bool> later_threw = false;
  try {
    ParallelFor(2, 2, 1, [&](int64_t begin, int64_t) {
      if (begin == 1) {
        later_threw = true;
        throw std::runtime_error("later");
      }
      while (!later_threw) std::this_thread::yield();
      throw std::runtime_error("earlier");
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "earlier");
  }
}

TEST(ParallelForTest, WorksAfterAnException) {
  EXPECT_THROW(ParallelFor(2, 4, 1, [](int64_t, int64_t) { throw 1; }), int);
  EXPECT_EQ(RangesOf(2, 4, 2), (std::set<Range>{{0, 2}, {2, 4}}));
}

TEST(ParallelForTest, LargeIndicesDoNotOverflow) {
  std::atomic<int64_t> last_end = 0;
  const int64_t count = INT64_MAX;
  const int64_t chunk = INT64_MAX / 2;  // Three chunks; the last has one element.
  for (const int threads : {1, 2}) {
    last_end = 0;
    ParallelFor(threads, count, chunk, [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      EXPECT_LE(end - begin, chunk);
      if (end == count) last_end = end;
    });
    EXPECT_EQ(last_end, count);
  }
}

TEST(ParallelForTest, RefusesBadSizes) {
  const auto body = [](int64_t, int64_t) { ADD_FAILURE() << "ran"; };
  for (const Range& sizes : {Range{-1, 4}, Range{4, 0}, Range{4, -5}, Range{0, 0}}) {
    try {
      ParallelFor(2, sizes.first, sizes.second, body);
      ADD_FAILURE() << "accepted " << sizes.first << ", " << sizes.second;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(e.message(), HasSubstr("ParallelFor: count " + std::to_string(sizes.first) +
                                         " and chunk " + std::to_string(sizes.second)));
    }
  }
}

TEST(ParallelReduceTest, CombinesInChunkOrder) {
  for (const int threads : {1, 2, 3, 5}) {
    const std::string text = ParallelReduce(
        threads, 17, 3, std::string("<"),
        [](int64_t begin, int64_t end) {
          return std::to_string(begin) + "-" + std::to_string(end) + " ";
        },
        [](std::string a, std::string b) { return a + b; });
    EXPECT_EQ(text, "<0-3 3-6 6-9 9-12 12-15 15-17 ");
  }
}

TEST(ParallelReduceTest, EmptyRangeGivesIdentity) {
  const int value = ParallelReduce(
      4, 0, 8, -7,
      [](int64_t, int64_t) -> int {
        ADD_FAILURE() << "ran";
        return 0;
      },
      [](int, int) { return 0; });
  EXPECT_EQ(value, -7);
}

TEST(ParallelReduceTest, BoolPartialsDoNotShareBytes) {
  const bool all = ParallelReduce(
      3, 300, 1, true, [](int64_t, int64_t) { return true; },
      [](bool a, bool b) { return a && b; });
  EXPECT_TRUE(all);
}

TEST(RuntimeThreadsScopeTest, NestsAndRestores) {
  const int before = omp_get_max_threads();
  {
    RuntimeThreadsScope outer(3);
    EXPECT_EQ(omp_get_max_threads(), 3);
    {
      RuntimeThreadsScope inner(0);
      EXPECT_EQ(omp_get_max_threads(), 1);
    }
    EXPECT_EQ(omp_get_max_threads(), 3);
    int other_thread = 0;
    std::thread([&other_thread] { other_thread = omp_get_max_threads(); }).join();
    EXPECT_EQ(other_thread, before);
  }
  EXPECT_EQ(omp_get_max_threads(), before);
}

TEST(HardwareThreadsTest, FollowsTheAffinityOfTheThread) {
  EXPECT_GE(HardwareThreads(), 1);
  int narrowed = 0;
  std::thread([&narrowed] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    narrowed = HardwareThreads();
  }).join();
  EXPECT_EQ(narrowed, 1);
}

}  // namespace
}  // namespace lockstep
