// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/rank_checks.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/tensor_memory.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::comm {

void Require(bool condition, absl::string_view text) {
  if (!condition) throw lockstep::InternalError(text);
}

void RequireError(absl::StatusCode code, const std::vector<std::string>& parts,
                  const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    Require(error.code() == code, absl::StrCat("unexpected error: ", error.what()));
    for (const std::string& part : parts) {
      Require(absl::StrContains(error.message(), part),
              absl::StrCat("\"", part, "\" is missing in: ", error.message()));
    }
    return;
  }
  throw lockstep::InternalError(
      absl::StrCat("nothing was thrown; expected \"", parts.empty() ? "" : parts.front(), "\""));
}

void FillWith(const Tensor& tensor, const std::function<double(int64_t)>& value) {
  std::vector<double> values(static_cast<size_t>(tensor.numel()));
  for (int64_t i = 0; i < tensor.numel(); ++i) values[static_cast<size_t>(i)] = value(i);
  Unpack(FromVector<double>(values, ShapeSpan(tensor.shape()), {tensor.dtype(), {}}), tensor);
}

void RequireValues(const Tensor& tensor, const std::function<double(int64_t)>& expected,
                   absl::string_view what) {
  const std::vector<double> values = tensor.ToVector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    const double wanted = expected(static_cast<int64_t>(i));
    if (values[i] == wanted) continue;
    throw lockstep::InternalError(
        absl::StrCat(what, ": element ", i, " is ", values[i], " and should be ", wanted));
  }
}

Tensor StridedView(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                   int64_t elements) {
  const Tensor base = Empty({elements});
  FillWith(base, [](int64_t) { return -99; });
  return Tensor(MakeRef<TensorImpl>(base.storage(), shape, strides, int64_t{1}, DType::kFloat32,
                                    base.device()));
}

void RequireGapsUntouched(const Tensor& view, int64_t elements) {
  const std::vector<float> all =
      FromStorage(view.storage(), ShapeSpan({elements}), DType::kFloat32).ToVector<float>();
  Require(std::count(all.begin(), all.end(), -99.0f) == elements - view.numel(),
          "memory between the elements of a strided output was written");
}

ProcessGroupOptions TestGroupOptions(const RankContext& context, std::string name) {
  ProcessGroupOptions options = context.group_options(std::move(name));
  for (absl::string_view word : absl::StrSplit(context.argument, ' ')) {
    if (word == "staged") options.peer_memory_access = PeerMemoryAccess::kStaged;
    if (word == "verified") options.verify_payload = true;
    if (word == "direct" && options.backend == "shm") {
      options.peer_memory_access = PeerMemoryAccess::kDirect;
    }
    if (absl::ConsumePrefix(&word, "backend=")) options.backend = std::string(word);
    if (!absl::ConsumePrefix(&word, "hosts=")) continue;
    const std::vector<std::string> hosts = absl::StrSplit(word, ',');
    options.host_id = absl::StrCat(
        "host ", word == "own" ? absl::StrCat(context.rank)
                               : hosts[static_cast<size_t>(context.rank) % hosts.size()]);
  }
  return options;
}

std::shared_ptr<Communicator> MakeTestGroup(const RankContext& context, absl::Duration timeout,
                                            std::string name) {
  ProcessGroupOptions options = TestGroupOptions(context, std::move(name));
  options.timeout = timeout;
  return InitProcessGroup(options);
}

void ExpectAllOk(const SpawnResult& result) {
  for (const RankExit& exit : result.ranks) EXPECT_TRUE(exit.ok()) << exit.ToString();
}

}  // namespace lockstep::comm
