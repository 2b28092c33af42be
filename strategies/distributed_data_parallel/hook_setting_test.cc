// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/hook_setting.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing.h"
#include "lockstep/strategies/distributed_data_parallel/compression_hooks.h"
#include "lockstep/strategies/distributed_data_parallel/power_sgd.h"

namespace lockstep::strategies {
namespace {

template <typename Hook>
bool Is(const char* text) {
  return dynamic_cast<Hook*>(ParseCommunicationHook(text).get()) != nullptr;
}

TEST(HookSettingTest, NamesMakeHooksAndOthersAreRefused) {
  EXPECT_EQ(ParseCommunicationHook("none"), nullptr);
  EXPECT_TRUE(Is<NoOpHook>("noop"));
  EXPECT_TRUE(Is<CompressionHook>("fp16"));
  EXPECT_TRUE(Is<CompressionHook>("bf16"));
  for (const char* text : {"powersgd", "powersgd:4", "powersgd:4:20"}) {
    EXPECT_TRUE(Is<PowerSgdHook>(text)) << text;
  }
  const auto hook =
      std::dynamic_pointer_cast<PowerSgdHook>(ParseCommunicationHook("powersgd:4:20"));
  EXPECT_EQ(hook->options().rank, 4);
  EXPECT_EQ(hook->options().start_step, 20);
  for (const char* text : {"", "fp8", "powersgd:", "powersgd:2:x", "powersgd:2:20:3", "fp16:2"}) {
    EXPECT_THAT(MessageOf([&] { ParseCommunicationHook(text); }),
                ::testing::HasSubstr("give none, noop, fp16"))
        << text;
  }
  EXPECT_THAT(MessageOf([] { ParseCommunicationHook("powersgd:0"); }),
              ::testing::HasSubstr("rank 0"));
}

}  // namespace
}  // namespace lockstep::strategies
