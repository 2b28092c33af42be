// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Layers of the user slot, and the one that takes other tensors.
#include "lockstep/tensor/substitution.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tensor/user_layer.h"

namespace lockstep {
namespace {

using Values = std::vector<double>;

// Writes its name when an op passes.
class Note : public UserLayer {
 public:
  Note(char name, std::string* log) : name_(name), log_(log) {}
  TensorList Run(const OpCall& call, Below below) const override {
    log_->push_back(name_);
    return below(call);
  }

 private:
  char name_;
  std::string* log_;
};

TEST(UserLayerTest, TheInnermostRunsFirstAndScopesEnd) {
  std::string log;
  const Tensor x = Full({3}, 2.0);
  {
    UserLayerScope a(std::make_shared<Note>('a', &log));
    {
      UserLayerScope b(std::make_shared<Note>('b', &log));
      EXPECT_EQ((x * 3.0).ToVector<double>(), (Values{6, 6, 6}));
      EXPECT_EQ(log, "ba");
    }
    static_cast<void>(x * 3.0);
    EXPECT_EQ(log, "baa");
  }
  static_cast<void>(x * 3.0);
  EXPECT_EQ(log, "baa");
}

TEST(UserLayerTest, GoesWithTheStateOfTheThread) {
  std::string log;
  const Tensor x = Full({2}, 2.0);
  UserLayerScope scope(std::make_shared<Note>('a', &log));
  std::thread plain([&] { static_cast<void>(x * 3.0); });
  plain.join();
  EXPECT_EQ(log, "");
  std::thread same([&, state = CurrentThreadState()] {
    ScopedThreadState of_parent(state);
    static_cast<void>(x * 3.0);
  });
  same.join();
  EXPECT_EQ(log, "a");
}

TEST(UserLayerTest, NullIsRefused) {
  EXPECT_EQ(ErrorOf([] { UserLayerScope scope(nullptr); }).message(),
            "UserLayerScope: no layer given");
}

std::shared_ptr<const Substitution> Pair(const Tensor& original, const Tensor& replacement) {
  Substitution substitution;
  substitution.Add(original, replacement);
  return std::make_shared<const Substitution>(std::move(substitution));
}

TEST(SubstitutionTest, OpsTakeTheOther) {
  const Tensor w = FromVector<float>({1, 2}, {2});
  const Tensor other = FromVector<float>({10, 30}, {2}, {.device = Cpu(1)});
  const Tensor x = FromVector<float>({1, 1}, {2}, {.device = Cpu(1)});
  {
    SubstitutionScope scope(Pair(w, other));
    EXPECT_TRUE(InSubstitution());
    EXPECT_TRUE(Substituted(w).IsSame(other));
    EXPECT_TRUE(Substituted(x).IsSame(x));
    EXPECT_FALSE(Substituted(Tensor()).defined());
    EXPECT_EQ((x + w).ToVector<double>(), (Values{11, 31}));
    EXPECT_EQ((w * w).ToVector<double>(), (Values{100, 900}));
    EXPECT_EQ(Slice(w, 0, 1).ToVector<double>(), (Values{30}));  // views are ops
    EXPECT_EQ(w.ToVector<double>(), (Values{1, 2}));             // reading is not
  }
  EXPECT_FALSE(InSubstitution());
  EXPECT_TRUE(Substituted(w).IsSame(w));
  EXPECT_EQ((w * w).ToVector<double>(), (Values{1, 4}));
  EXPECT_EQ(ErrorOf([&] { static_cast<void>(x + w); }).code(), absl::StatusCode::kInvalidArgument);
}

TEST(SubstitutionTest, InPlaceOpsWriteTheOther) {
  const Tensor w = FromVector<float>({1, 2}, {2});
  const Tensor other = FromVector<float>({10, 30}, {2}, {.device = Cpu(1)});
  const SubstitutionScope scope(Pair(w, other));
  const Tensor returned = AddInPlace(w, 1.0);
  EXPECT_TRUE(returned.IsSame(w));
  EXPECT_EQ(other.ToVector<double>(), (Values{11, 31}));
  EXPECT_EQ(w.ToVector<double>(), (Values{1, 2}));
  EXPECT_EQ((returned * 1.0).ToVector<double>(), (Values{11, 31}));
}

TEST(SubstitutionTest, TheInnermostCounts) {
  const Tensor w = Full({}, 1.0), a = Full({}, 2.0), b = Full({}, 3.0);
  const SubstitutionScope outer(Pair(w, a));
  {
    const SubstitutionScope inner(Pair(w, b));
    EXPECT_EQ((w * 1.0).Item<double>(), 3);
  }
  EXPECT_EQ((w * 1.0).Item<double>(), 2);
}

TEST(SubstitutionTest, BadPairsAreRefused) {
  const Tensor w = Full({2}, 1.0);
  Substitution substitution;
  const auto message = [&](const Tensor& original, const Tensor& replacement) {
    return ErrorOf([&] { substitution.Add(original, replacement); }).message();
  };
  EXPECT_EQ(message(w, Full({3}, 1.0)),
            "Substitution: float32[3] on cpu:0 for float32[2] on cpu:0; give one of the same shape "
            "and dtype");
  EXPECT_EQ(message(w, To(w, DType::kFloat64)),
            "Substitution: float64[2] on cpu:0 for float32[2] on cpu:0; give one of the same shape "
            "and dtype");
  EXPECT_EQ(message(w, Tensor()),
            "Substitution: undefined for float32[2] on cpu:0; give defined tensors");
  substitution.Add(w, w * 2.0);
  EXPECT_TRUE(absl::StrContains(message(w, w * 3.0), "was added before"));
  EXPECT_EQ(substitution.size(), 1u);
  EXPECT_EQ(ErrorOf([] { SubstitutionScope scope(nullptr); }).message(),
            "SubstitutionScope: no substitution given");
}

}  // namespace
}  // namespace lockstep
