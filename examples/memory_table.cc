// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/memory_table.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::examples {

void PrintMemory(comm::Communicator& world, std::vector<Device> devices) {
  devices.push_back(kHost);
  std::vector<int64_t> mine;
  for (const Device& device : devices) {
    const MemoryStats stats = GetMemoryStats(device);
    for (const int64_t bytes : stats.peak.bytes) mine.push_back(bytes);
    mine.push_back(stats.peak_bytes);
  }
  const int64_t count = static_cast<int64_t>(mine.size());
  const Tensor all = Empty({world.size(), count}, {.dtype = DType::kInt64, .device = Cpu()});
  world.AllGather(FromVector<int64_t>(mine, {count}, {.device = Cpu()}), all).Wait();
  if (world.rank() != 0) return;

  std::string table = "peak MB    ";
  for (int category = 0; category < kMemoryCategoryCount; ++category) {
    absl::StrAppendFormat(&table, "%14s",
                          std::string(MemoryCategoryName(static_cast<MemoryCategory>(category))));
  }
  absl::StrAppendFormat(&table, "%14s\n", "all at once");
  const std::vector<int64_t> bytes = all.ToVector<int64_t>();
  size_t next = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    for (const Device& device : devices) {
      absl::StrAppendFormat(&table, "%3d %-7s", rank, ToString(device));
      for (int column = 0; column <= kMemoryCategoryCount; ++column) {
        absl::StrAppendFormat(&table, "%14.2f", static_cast<double>(bytes[next++]) / 1e6);
      }
      absl::StrAppend(&table, "\n");
    }
  }
  std::printf("%s", table.c_str());
  std::fflush(stdout);
}

}  // namespace lockstep::examples
