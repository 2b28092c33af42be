// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/control_message.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/signature.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::comm::gloo {
namespace {

Signature SomeSignature() {
  Signature s;
  s.count = 123456789012;
  s.tag = -7;
  s.factor = 0.25;
  s.list = 0xfedcba9876543210u;
  s.tensors = 3;
  s.root = 2;
  s.peer = 1;
  s.op = CollectiveId::kReduceScatter;
  s.dtype = DType::kBFloat16;
  s.reduce_op = ReduceOp::kPreMultipliedSum;
  s.reduces = true;
  s.uneven = true;
  return s;
}

std::vector<ControlMessage> SomeMessages() {
  std::vector<ControlMessage> messages(6);
  messages[0].kind = MessageKind::kCall;
  messages[0].sequence = -1;
  messages[0].signature = SomeSignature();
  messages[0].counts = {5, 0, int64_t{1} << 40};
  messages[1].kind = MessageKind::kGo;
  messages[1].sequence = 17;
  messages[2].kind = MessageKind::kExpired;
  messages[2].sequence = 18;
  messages[2].timeout = absl::Milliseconds(1500);
  messages[3].kind = MessageKind::kFailed;
  messages[3].code = absl::StatusCode::kUnavailable;
  messages[3].text = "rank 2 has died";
  messages[4].kind = MessageKind::kLeft;
  messages[4].rank = 3;
  messages[5].kind = MessageKind::kAlive;
  return messages;
}

void ExpectDataLoss(absl::string_view bytes, absl::string_view part) {
  ControlMessage message;
  try {
    DecodeMessage(bytes, &message);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(absl::StrContains(error.message(), part)) << error.message();
    return;
  }
  FAIL() << "damaged bytes were taken for a message: " << part;
}

TEST(ControlMessageTest, EveryKindComesBack) {
  for (const ControlMessage& sent : SomeMessages()) {
    ControlMessage got;
    const std::string bytes = EncodeMessage(sent);
    ASSERT_EQ(DecodeMessage(bytes, &got), bytes.size());
    EXPECT_EQ(got.kind, sent.kind);
    EXPECT_EQ(got.sequence, sent.sequence);
    EXPECT_EQ(got.rank, sent.rank);
    EXPECT_EQ(got.code, sent.code);
    EXPECT_EQ(got.timeout, sent.timeout);
    EXPECT_EQ(got.signature, sent.signature);
    EXPECT_EQ(got.counts, sent.counts);
    EXPECT_EQ(got.text, sent.text);
  }
}

TEST(ControlMessageTest, ComesInAnyPieces) {
  std::string bytes;
  for (const ControlMessage& message : SomeMessages()) bytes += EncodeMessage(message);
  std::string in;
  std::vector<MessageKind> kinds;
  for (const char c : bytes) {
    in += c;
    ControlMessage message;
    if (const size_t taken = DecodeMessage(in, &message)) {
      kinds.push_back(message.kind);
      in.erase(0, taken);
    }
  }
  EXPECT_EQ(in, "");
  ASSERT_EQ(kinds.size(), 6u);
  EXPECT_EQ(kinds.back(), MessageKind::kAlive);
}

TEST(ControlMessageTest, EveryDamagedByteIsNoticed) {
  const std::string bytes = EncodeMessage(SomeMessages()[0]);
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    ControlMessage message;
    try {
      // A length that has grown is waited for.
      EXPECT_EQ(DecodeMessage(damaged, &message), 0u) << "byte " << at;
      EXPECT_TRUE(at >= 8 && at < 12) << "byte " << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
    }
  }
  ExpectDataLoss(std::string(16, 'x'), "no control message");
}

TEST(ControlMessageTest, SignaturesOfTransfers) {
  const std::string frame = EncodeSignature(SomeSignature(), 42);
  ASSERT_EQ(frame.size(), kSignatureFrame);
  int64_t number = 0;
  EXPECT_EQ(DecodeSignature(frame, &number), SomeSignature());
  EXPECT_EQ(number, 42);
  std::string damaged = frame;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  EXPECT_THROW(DecodeSignature(damaged, &number), Error);
  EXPECT_THROW(DecodeSignature(std::string(kSignatureFrame, '\0'), &number), Error);
}

}  // namespace
}  // namespace lockstep::comm::gloo
