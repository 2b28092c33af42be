// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/state/state_format.h"

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/base/testing.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

using ::testing::HasSubstr;

nlohmann::ordered_json Parsed(const char* text) {
  return nlohmann::ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
}

TEST(StateFormatTest, OtherVersionsAreToldFromDamage) {
  CheckFormat(Parsed("{\"format\": \"thing 1\"}"), "thing 1");
  const auto refusal = [](const char* text) {
    const Error error = ErrorOf([&] { CheckFormat(Parsed(text), "thing 1"); });
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    return error.message();
  };
  EXPECT_EQ(refusal("{\"format\": \"thing 2\"}"),
            "not a 'thing 1' but a 'thing 2'; read it with the version of the program that wrote "
            "it, or go on from another state");
  EXPECT_THAT(refusal("{\"format\": \"a\\nb\"}"), HasSubstr("but a 'a\\nb'"));
  for (const char* text : {"", "{\"format\": \"thing 1\"", "[]", "7"}) {
    EXPECT_THAT(refusal(text), HasSubstr("not a 'thing 1', nor any JSON object")) << text;
  }
  for (const char* text : {"{}", "{\"format\": 1}"}) {
    EXPECT_THAT(refusal(text), HasSubstr("it has no \"format\"")) << text;
  }
}

}  // namespace
}  // namespace lockstep::state
