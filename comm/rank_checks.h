// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// For tests whose ranks are threads or processes. gtest's assertions go nowhere in another process:
// these throw, and the test looks at what Spawn returns.
#ifndef LOCKSTEP_COMM_RANK_CHECKS_H_
#define LOCKSTEP_COMM_RANK_CHECKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/spawn.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

void Require(bool condition, absl::string_view text);

// Runs `call`, which must throw an Error of `code` whose message holds all of `parts`.
void RequireError(absl::StatusCode code, const std::vector<std::string>& parts,
                  const std::function<void()>& call);

// Element i, in row-major order, becomes value(i); any strides.
void FillWith(const Tensor& tensor, const std::function<double(int64_t)>& value);
void RequireValues(const Tensor& tensor, const std::function<double(int64_t)>& expected,
                   absl::string_view what);

// A float32 view with these strides at offset 1 of new memory of `elements` elements, all -99.
Tensor StridedView(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                   int64_t elements);
// Fails unless exactly the elements that `view` shows have been changed from -99.
void RequireGapsUntouched(const Tensor& view, int64_t elements);

// Options for a group of all ranks, from words in the ranks' argument:
//
//   staged, direct   how shm reaches memory
//   verified         payloads have checksums
//   backend=gloo     instead of shm
//   hosts=0,1,1      ranks 0, 1, 2, ... play hosts of these numbers, and so on from the start
//   hosts=own        every rank plays a host of its own
//
// Words that it does not know mean something to others.
ProcessGroupOptions TestGroupOptions(const RankContext& context, std::string name = "world");
// And the group. Its timeout is for everything that waits.
std::shared_ptr<Communicator> MakeTestGroup(const RankContext& context,
                                            absl::Duration timeout = absl::Seconds(30),
                                            std::string name = "world");

// gtest failures for the ranks that failed.
void ExpectAllOk(const SpawnResult& result);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_RANK_CHECKS_H_
