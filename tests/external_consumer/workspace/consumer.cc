// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Lockstep beside a library whose headers have the commonest names, and beside a folder of the same
// name as one of Lockstep's. Prints where each name came from.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <string>

#include "config.h"
#include "lockstep/amp/autocast.h"
#include "lockstep/base/error.h"
#include "lockstep/base/parallel.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"
#include "logging.h"
#include "tensor/tensor.h"
#include "types.h"
#include "utils.h"

int main() {
  std::printf("%s\n%s\n%s\n%s\n", FAKE_CONFIG, FAKE_TYPES, FAKE_LOGGING, FAKE_UTILS);
  std::printf("%s\n", ConsumerTensor());

  std::atomic<int64_t> sum{0};
  lockstep::ParallelFor(2, 101, 10, [&sum](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum += i;
  });
  std::printf("lockstep sum %lld\n", static_cast<long long>(sum));

  // Shapes need no kernel; numbers do, and none is linked here.
  lockstep::Tensor meta = lockstep::Zeros({3, 5}, {.device = lockstep::kMeta});
  std::printf("lockstep shape %lld\n", static_cast<long long>(lockstep::Add(meta, meta).numel()));
  {
    lockstep::amp::Autocast autocast;
    std::printf("lockstep autocast %s\n",
                std::string(lockstep::DTypeName(
                                lockstep::MatMul(meta, lockstep::Transpose(meta, 0, 1)).dtype()))
                    .c_str());
  }
  try {
    lockstep::Ones({3, 5});
    std::printf("a kernel ran although none is linked\n");
    return 1;
  } catch (const lockstep::Error& error) {
    std::printf("lockstep error %s\n", error.what());
  }
  return 0;
}
