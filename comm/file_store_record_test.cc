// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/file_store_record.h"

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/store.h"

namespace lockstep::comm {
namespace {

void ExpectDataLoss(const std::function<void()>& parse, const std::string& text) {
  try {
    parse();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.what();
    EXPECT_TRUE(absl::StrContains(error.message(), text)) << error.what();
  }
}

TEST(FileRecord, RoundTrips) {
  const std::string key(kMaxStoreKeyBytes, 'k');
  const std::string value(kMaxStoreValueBytes, 'v');
  for (const FileRecord& record :
       {FileRecord{.key = "k", .value = std::string("a\0\n\xff", 4)}, FileRecord{.key = key},
        FileRecord{.key = key, .value = value}, FileRecord{.key = "k", .deleted = true}}) {
    const std::string bytes = EncodeFileRecord(record);
    EXPECT_LE(static_cast<int64_t>(bytes.size()), kMaxFileRecordBytes);
    const FileRecord parsed = ParseFileRecord(bytes);
    EXPECT_EQ(parsed.key, record.key);
    EXPECT_EQ(parsed.value, record.value);
    EXPECT_EQ(parsed.deleted, record.deleted);
  }
}

TEST(FileRecord, EveryCutAndEveryFlippedBitIsNoticed) {
  const std::string bytes = EncodeFileRecord({.key = "key", .value = "value"});
  for (size_t size = 0; size < bytes.size(); ++size) {
    ExpectDataLoss([&] { ParseFileRecord(bytes.substr(0, size)); }, "file store");
  }
  ExpectDataLoss([&] { ParseFileRecord(bytes + "x"); }, "file store");
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ExpectDataLoss([&] { ParseFileRecord(flipped); }, "file store");
  }
  ExpectDataLoss([&] { ParseFileRecord(std::string(100, 'x')); }, "no record of a store");
}

TEST(FileRecord, Members) {
  const std::string a(32, 'a');
  const std::string b(32, '0');
  EXPECT_EQ(ParseMembers(absl::StrCat(a, "\n", b), 2)[1], b);
  for (const std::string& wrong :
       {std::string(), a, absl::StrCat(a, "\n"), absl::StrCat(a, "\n", b, "\n", a),
        absl::StrCat(a, "\n", std::string(32, 'g')), absl::StrCat(a, "\n", b, "0")}) {
    ExpectDataLoss([&] { ParseMembers(wrong, 2); }, "does not name 2 ranks");
  }
}

}  // namespace
}  // namespace lockstep::comm
