// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// What a rank spends in a call of the shm backend on comparing signatures: its own header is
// sealed, and the headers of its peers are checked and compared. At most 3 us are promised, for 8
// ranks.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "lockstep/comm/agreement.h"
#include "lockstep/comm/shm/control_block.h"
#include "lockstep/comm/shm/header_checksum.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm::shm {
namespace {

std::vector<Post> Posts(int64_t ranks) {
  Post post;
  post.signature.op = CollectiveId::kAllReduce;
  post.signature.dtype = DType::kFloat32;
  post.signature.count = 1 << 20;
  post.signature.reduces = true;
  return std::vector<Post>(static_cast<size_t>(ranks), post);
}

void CompareSignatures(benchmark::State& state, bool checksum) {
  std::vector<Post> posts = Posts(state.range(0));
  int64_t sequence = 0;
  for (auto _ : state) {
    ++sequence;
    Post& mine = posts[0];
    mine.sequence = sequence;
    if (checksum) mine.checksum = HeaderChecksum(mine, {});
    // A peer's header is as good as this one's, but for the place where it lies.
    for (Post& post : posts) {
      post.sequence = sequence;
      post.checksum = mine.checksum;
      benchmark::DoNotOptimize(&post);
    }
    benchmark::ClobberMemory();
    bool agree = true;
    for (size_t peer = 1; peer < posts.size(); ++peer) {
      const Post& theirs = posts[peer];
      if (checksum) agree = agree && theirs.checksum == HeaderChecksum(theirs, {});
      agree = agree && CallsAgree({0, sequence, mine.signature},
                                  {static_cast<int>(peer), theirs.sequence, theirs.signature});
    }
    benchmark::DoNotOptimize(agree);
  }
}

void WithoutChecksum(benchmark::State& state) { CompareSignatures(state, false); }
void WithChecksum(benchmark::State& state) { CompareSignatures(state, true); }
BENCHMARK(WithoutChecksum)->Arg(2)->Arg(4)->Arg(8)->Unit(benchmark::kMicrosecond);
BENCHMARK(WithChecksum)->Arg(2)->Arg(4)->Arg(8)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace lockstep::comm::shm
