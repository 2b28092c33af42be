// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Storages, memory statistics, streams, thread state and generators.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/ref_counted.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/caching_allocator.h"
#include "lockstep/tensor/capacity_limit.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/storage.h"
#include "lockstep/tensor/stream.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep {
namespace {

int64_t SumOfCategories(const MemoryStats& stats) {
  int64_t sum = 0;
  for (int64_t bytes : stats.current.bytes) sum += bytes;
  return sum;
}

bool CanMap(size_t bytes) {
  void* range = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (range == MAP_FAILED) return false;
  munmap(range, bytes);
  return true;
}

TEST(MemoryTest, CategoriesAddUpAndPeaksAreTheirOwn) {
  const Device device = Cpu(3);
  ResetPeakBytes(device);
  const int64_t before = GetMemoryStats(device).current_bytes;
  {
    CategoryScope parameters(MemoryCategory::kParameter);
    RefPtr<Storage> a = Storage::Allocate(device, 1000);
    {
      CategoryScope data(MemoryCategory::kData);
      RefPtr<Storage> b = Storage::Allocate(device, 300);
      EXPECT_EQ(SumOfCategories(GetMemoryStats(device)), GetMemoryStats(device).current_bytes);
    }
    RefPtr<Storage> c = Storage::Allocate(device, 100);
    const MemoryStats stats = GetMemoryStats(device);
    EXPECT_EQ(stats.current_bytes - before, 1100);
    EXPECT_EQ(stats.peak_bytes - before, 1300);
    EXPECT_EQ(stats.peak[MemoryCategory::kParameter], 1100);
    EXPECT_EQ(stats.peak[MemoryCategory::kData], 300);
    EXPECT_EQ(stats.current[MemoryCategory::kData], 0);
    c->SetCategory(MemoryCategory::kOptimizer);
    EXPECT_EQ(GetMemoryStats(device).current[MemoryCategory::kParameter], 1000);
    EXPECT_EQ(GetMemoryStats(device).current[MemoryCategory::kOptimizer], 100);
  }
  EXPECT_EQ(GetMemoryStats(device).current_bytes, before);
  EXPECT_EQ(CurrentThreadState().category, MemoryCategory::kOther);
}

TEST(MemoryTest, CapacityLimitNamesHoldersAndLeavesTheProgramUsable) {
  const Device device = Cpu(4);
  CategoryScope scope(MemoryCategory::kActivation);
  EXPECT_EQ(CapacityLimit(device), std::nullopt);
  SetCapacityLimit(device, 1000);
  EXPECT_EQ(CapacityLimit(device), 1000);
  RefPtr<Storage> a = Storage::Allocate(device, 900);
  const Error error = ErrorOf([&] { Storage::Allocate(device, 101); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(error.message().find("cpu:4: 101 more bytes"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("900 activation"), std::string::npos) << error.message();
  EXPECT_EQ(GetMemoryStats(device).current_bytes, 900);
  EXPECT_NO_THROW(Storage::Allocate(device, 100));
  SetCapacityLimit(device, std::nullopt);
  EXPECT_EQ(CapacityLimit(device), std::nullopt);
  EXPECT_NO_THROW(Storage::Allocate(device, 5000));
  EXPECT_EQ(ErrorOf([&] { SetCapacityLimit(device, -1); }).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(MemoryTest, MoreThanTheSystemHasIsAnError) {
  const Error error = ErrorOf([] { Storage::Allocate(Cpu(5), int64_t{1} << 60); });
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetMemoryStats(Cpu(5)).current_bytes, 0);
}

TEST(MemoryTest, DevicesWithoutBackendNameTheTarget) {
  const Error error = ErrorOf([] { Storage::Allocate(Cuda(1), 8); });
  EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(error.message().find("//tensor/cuda"), std::string::npos);
}

TEST(CachingAllocatorTest, ASecondRoundAsksTheSystemForNothing) {
  CachingAllocator allocator;
  std::vector<int64_t> sizes = {1025, 4096, 5000, 1 << 20, (3 << 20) + 17};
  int64_t after_first = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> blocks;
    for (int64_t size : sizes) {
      blocks.push_back(allocator.Allocate(size, kStorageAlignment, 0, MemoryCategory::kOther));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back()) % kStorageAlignment, 0u);
      std::memset(blocks.back(), round, static_cast<size_t>(size));
    }
    if (round == 0) after_first = allocator.SystemAllocationCount();
    EXPECT_EQ(allocator.SystemAllocationCount(), after_first);
    for (size_t i = 0; i < sizes.size(); ++i) allocator.Free(blocks[i], sizes[i], 0);
  }
  EXPECT_GE(after_first, 4);  // three small blocks, and at least once for the large ones
  EXPECT_GT(allocator.CachedBytes(), 4 << 20);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.CachedBytes(), 0);
}

TEST(CachingAllocatorTest, LargeBlocksServeOtherSizes) {
  CachingAllocator allocator;
  constexpr int64_t kSize = int64_t{40} << 20;
  const auto allocate = [&](int64_t bytes, MemoryCategory category) {
    return allocator.Allocate(bytes, kStorageAlignment, 0, category);
  };
  void* first = allocate(kSize, MemoryCategory::kActivation);
  void* second = allocate(kSize, MemoryCategory::kActivation);
  allocator.Free(first, kSize, 0);
  allocator.Free(second, kSize, 0);
  const int64_t before = allocator.SystemAllocationCount();
  void* both = allocate(2 * kSize, MemoryCategory::kBackward);
  EXPECT_EQ(both, first);
  EXPECT_EQ(allocator.SystemAllocationCount(), before);
  EXPECT_EQ(allocator.CachedBytes(), 0);
  allocator.Free(both, 2 * kSize, 0);
  // What stays for long does not come to lie there.
  for (const auto category : {MemoryCategory::kParameter, MemoryCategory::kOptimizer}) {
    void* kept = allocate(kSize, category);
    EXPECT_TRUE(kept < first || kept >= static_cast<char*>(first) + 2 * kSize);
    std::memset(kept, 1, kSize);
    allocator.Free(kept, kSize, 0);
  }
  EXPECT_GT(allocator.CachedBytes(), 0);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.CachedBytes(), 0);
}

TEST(CachingAllocatorTest, WithoutAddressesForAnArenaLargeBlocksGoByClass) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  const rlimit saved = limit;
  limit.rlim_cur = static_cast<rlim_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  // A sanitizer's shadow is larger than that.
  if (setrlimit(RLIMIT_AS, &limit) != 0 || !CanMap(64 << 20)) {
    setrlimit(RLIMIT_AS, &saved);
    GTEST_SKIP() << "the limit leaves no room for the test itself";
  }
  CachingAllocator allocator;
  constexpr int64_t kSize = 3 << 20;
  void* block = allocator.Allocate(kSize, kStorageAlignment, 0, MemoryCategory::kOther);
  setrlimit(RLIMIT_AS, &saved);
  std::memset(block, 1, kSize);
  allocator.Free(block, kSize, 0);
  EXPECT_EQ(allocator.CachedBytes(), CachingAllocator::SizeClass(kSize));
  EXPECT_EQ(allocator.Allocate(kSize, kStorageAlignment, 0, MemoryCategory::kOther), block);
  allocator.Free(block, kSize, 0);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(CachingAllocatorDeathTest, AddressSanitizerSeesCachedBlocksAsFreed) {
  CachingAllocator allocator;
  for (const int64_t bytes : {5000, 3 << 20}) {
    char* block =
        static_cast<char*>(allocator.Allocate(bytes, kStorageAlignment, 0, MemoryCategory::kOther));
    block[bytes - 1] = 1;
    allocator.Free(block, bytes, 0);
    EXPECT_DEATH(block[bytes / 2] = 1, "use-after-poison");
    block =
        static_cast<char*>(allocator.Allocate(bytes, kStorageAlignment, 0, MemoryCategory::kOther));
    block[bytes - 1] = 1;
    allocator.Free(block, bytes, 0);
  }
}
#endif

TEST(CachingAllocatorTest, SizeClassesWasteAtMostAnEighth) {
  for (int64_t bytes = 1025; bytes < (1 << 22); bytes += 1237) {
    const int64_t size = CachingAllocator::SizeClass(bytes);
    EXPECT_GE(size, bytes);
    EXPECT_LE(size - bytes, bytes / 8 + 1);
    EXPECT_EQ(CachingAllocator::SizeClass(size), size);
  }
}

TEST(CachingAllocatorTest, KeepsNoMoreThanWasInUse) {
  CachingAllocator allocator;
  // Each size once, freed at once: without the bound all of them would stay.
  for (int64_t megabytes = 1; megabytes <= 40; ++megabytes) {
    const int64_t bytes = megabytes << 20;
    allocator.Free(allocator.Allocate(bytes, 64, 0, MemoryCategory::kOther), bytes, 0);
    EXPECT_LE(allocator.CachedBytes(), 64 << 20);
  }
}

TEST(StorageTest, WrappedMemoryIsCountedAndReleasedOnce) {
  int released = 0;
  char bytes[24];
  {
    RefPtr<Storage> storage = Storage::Wrap(
        Cpu(6), bytes, 24, [&] { ++released; }, MemoryCategory::kCommunication);
    RefPtr<Storage> second = storage;
    EXPECT_EQ(GetMemoryStats(Cpu(6)).current[MemoryCategory::kCommunication], 24);
  }
  EXPECT_EQ(released, 1);
  EXPECT_EQ(GetMemoryStats(Cpu(6)).current_bytes, 0);
  EXPECT_EQ(ErrorOf([] { Storage::Wrap(Cpu(), nullptr, 1, {}, MemoryCategory::kOther); }).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorOf([] { Storage::Allocate(Cpu(), -1); }).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(StorageTest, LentStoragesShowMemoryThatComesAndGoes) {
  const int64_t before = GetMemoryStats(Cpu(3)).current_bytes;
  const RefPtr<Storage> lent = Storage::Lent(Cpu(3), 4000);
  EXPECT_EQ(lent->bytes(), 4000);
  EXPECT_EQ(lent->data(), nullptr);
  // Owns nothing, and counts nothing, in any category.
  lent->SetCategory(MemoryCategory::kParameter);
  EXPECT_EQ(GetMemoryStats(Cpu(3)).current_bytes, before);
  EXPECT_EQ(ErrorOf([&] { lent->WaitReady(); }).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(MessageOf([&] { lent->WaitReady(); }).find("4000 bytes on cpu:3 have been given back"),
            std::string::npos);
  EXPECT_FALSE(lent->Detach());
  for (int i = 0; i < 3; ++i) {
    RefPtr<Storage> memory = Storage::Allocate(Cpu(3), 4000 + 16 * i);
    void* const address = memory->data();
    lent->Attach(memory);
    memory = nullptr;
    EXPECT_EQ(lent->data(), address);
    EXPECT_NO_THROW(lent->WaitReady());
    EXPECT_EQ(GetMemoryStats(Cpu(3)).current_bytes, before + 4000 + 16 * i);
    // Versions are its own.
    lent->BumpVersion();
    EXPECT_EQ(lent->version(), i + 1);
    const RefPtr<Storage> back = lent->Detach();
    EXPECT_EQ(back->data(), address);
    EXPECT_EQ(back->version(), 0);
    EXPECT_EQ(lent->data(), nullptr);
    EXPECT_THROW(lent->WaitReady(), Error);
  }
  EXPECT_EQ(GetMemoryStats(Cpu(3)).current_bytes, before);
}

TEST(StorageTest, LentStoragesKeepWhatTheyShow) {
  const int64_t before = GetMemoryStats(Cpu(3)).current_bytes;
  RefPtr<Storage> lent = Storage::Lent(Cpu(3), 1000);
  lent->Attach(Storage::Allocate(Cpu(3), 1000));
  EXPECT_EQ(GetMemoryStats(Cpu(3)).current_bytes, before + 1000);
  lent = nullptr;
  EXPECT_EQ(GetMemoryStats(Cpu(3)).current_bytes, before);
  // Of no bytes, there is nothing to be missing.
  const RefPtr<Storage> empty = Storage::Lent(Cpu(3), 0);
  EXPECT_NO_THROW(empty->WaitReady());
  empty->Attach(Storage::Allocate(Cpu(3), 0));
  EXPECT_NO_THROW(empty->WaitReady());
}

TEST(StorageTest, LentStoragesRefuseOtherMemory) {
  EXPECT_EQ(ErrorOf([] { Storage::Lent(Cpu(), -1); }).code(), absl::StatusCode::kInvalidArgument);
  const RefPtr<Storage> lent = Storage::Lent(Cpu(3), 100);
  EXPECT_THROW(lent->Attach(nullptr), Error);
  EXPECT_THROW(lent->Attach(Storage::Allocate(Cpu(3), 99)), Error);
  EXPECT_THROW(lent->Attach(Storage::Allocate(Cpu(2), 100)), Error);
  lent->Attach(Storage::Allocate(Cpu(3), 100));
  EXPECT_THROW(lent->Attach(Storage::Allocate(Cpu(3), 100)), Error);
  const RefPtr<Storage> owner = Storage::Allocate(Cpu(3), 100);
  EXPECT_THROW(owner->Attach(Storage::Allocate(Cpu(3), 100)), Error);
  EXPECT_FALSE(owner->Detach());
}

TEST(StorageTest, PendingCopyIsWaitedForAndItsErrorReachesEveryUser) {
  RefPtr<Storage> storage = Storage::Allocate(Cpu(), 8);
  Event first = Event::MakePending();
  storage->SetPending(first);
  std::thread completer([&]() mutable { first.Complete(); });
  storage->WaitReady();
  completer.join();
  EXPECT_TRUE(first.IsComplete());

  Event failed = Event::MakePending();
  failed.Complete(std::make_exception_ptr(DataLossError("copy failed")));
  storage->SetPending(failed);
  EXPECT_EQ(ErrorOf([&] { storage->WaitReady(); }).message(), "copy failed");
  EXPECT_EQ(ErrorOf([&] { storage->WaitReady(); }).message(), "copy failed");
}

TEST(StreamTest, CopyStreamKeepsOrderAndThreadState) {
  const Stream copy = Stream::Copy(Cpu(1));
  DeviceScope device(Cpu(5));
  std::vector<int> order;
  Device seen;
  for (int i = 0; i < 5; ++i) copy.Enqueue([&order, i] { order.push_back(i); });
  copy.Enqueue([&seen] { seen = CurrentDevice(); }).Wait();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(seen, Cpu(5));
}

TEST(StreamTest, ErrorsBelongToTheirWork) {
  for (const Stream stream : {Stream::Copy(Cpu(2)), Stream::Compute(Cpu(2))}) {
    Event bad = stream.Enqueue([] { throw DataLossError("lost"); });
    Event good = stream.Enqueue([] {});
    EXPECT_EQ(ErrorOf([&] { bad.Wait(); }).message(), "lost");
    EXPECT_EQ(ErrorOf([&] { bad.Wait(); }).message(), "lost");
    EXPECT_NO_THROW(good.Wait());
    EXPECT_NO_THROW(stream.Synchronize());
  }
}

TEST(StreamTest, WorkWaitsForEventsOfOthers) {
  const Stream copy = Stream::Copy(Cpu(7));
  Event gate = Event::MakePending();
  copy.WaitFor(gate);
  bool ran = false;
  Event done = copy.Enqueue([&] { ran = true; });
  EXPECT_FALSE(done.IsComplete());
  gate.Complete();
  done.Wait();
  EXPECT_TRUE(ran);
}

TEST(StreamTest, RecordedStorageOutlivesTheStreamsWork) {
  const Stream copy = Stream::Copy(Cpu(1));
  Event gate = Event::MakePending();
  copy.WaitFor(gate);
  bool released = false;
  char byte = 0;
  RefPtr<Storage> storage = Storage::Wrap(
      Cpu(1), &byte, 1, [&] { released = true; }, MemoryCategory::kOther);
  storage->RecordStream(copy);
  storage = nullptr;
  EXPECT_FALSE(released);
  gate.Complete();
  copy.Synchronize();
  EXPECT_TRUE(released);
}

TEST(StreamTest, UnknownStreamsAreRefused) {
  EXPECT_EQ(ErrorOf([] {
              Stream{Cpu(), 2}.Enqueue([] {});
            }).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(ErrorOf([] { Stream::Compute(Cuda()).Synchronize(); }).code(),
            absl::StatusCode::kUnimplemented);
}

TEST(ThreadStateTest, ScopesRestoreAndThreadsStartFresh) {
  ManualSeed(7);
  SetIntraOpThreads(3);
  ThreadState captured;
  {
    DeviceScope device(Cpu(2));
    CategoryScope category(MemoryCategory::kBackward);
    ThreadGenerators().data.Draw(5);
    captured = CurrentThreadState();
  }
  EXPECT_EQ(CurrentDevice(), Cpu(0));
  std::thread other([&] {
    EXPECT_EQ(CurrentDevice(), Cpu(0));
    EXPECT_EQ(ThreadGenerators().data.key.seed, 0u);
    ScopedThreadState scope(captured);
    EXPECT_EQ(CurrentDevice(), Cpu(2));
    EXPECT_EQ(CurrentThreadState().category, MemoryCategory::kBackward);
    EXPECT_EQ(IntraOpThreads(), 3);
    EXPECT_EQ(ThreadGenerators().data.key.offset, 8u);
  });
  other.join();
  SetIntraOpThreads(0);
  EXPECT_GE(IntraOpThreads(), 1);
  EXPECT_EQ(ErrorOf([] { SetIntraOpThreads(-1); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(GeneratorTest, DrawsAdvanceByMultiplesOfFourAndStreamsDiffer) {
  ManualSeed(123, 2);
  RandomStreams& random = ThreadGenerators();
  EXPECT_EQ(random.data.Draw(0).offset, 0u);
  EXPECT_EQ(random.data.Draw(1).offset, 0u);
  EXPECT_EQ(random.data.Draw(5).offset, 4u);
  EXPECT_EQ(random.data.Draw(1).offset, 12u);
  EXPECT_EQ(random.dropout.key.stream, kDropoutStreamBase + 2);
  EXPECT_EQ(random.parameters.key.stream, kParameterStream);
  EXPECT_EQ(random.parameters.key.seed, 123u);
  EXPECT_EQ(ErrorOf([] { ManualSeed(1, -1); }).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lockstep
