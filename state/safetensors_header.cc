// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Reading the JSON header. The parser is event driven with a fixed depth, so that a hostile header
// costs no more memory than its own size and no recursion.
#include "lockstep/state/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "nlohmann/json.hpp"

namespace lockstep::state {
namespace {

constexpr int64_t kLengthBytes = 8;
constexpr size_t kMaximumRank = 64;

struct DTypeCode {
  const char* code;
  DType dtype;
};
constexpr DTypeCode kDTypeCodes[] = {
    {"F32", DType::kFloat32}, {"BF16", DType::kBFloat16}, {"F16", DType::kFloat16},
    {"F64", DType::kFloat64}, {"I64", DType::kInt64},     {"I32", DType::kInt32},
    {"U8", DType::kUInt8},    {"BOOL", DType::kBool},
};

Error Damaged(absl::string_view what) {
  return DataLossError(absl::StrCat("safetensors header: ", what));
}

// Receives the parser's events. Depth 1 is the file's object, 2 a tensor's (or the metadata's), 3
// an array of numbers; anything deeper or elsewhere is refused.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeader header;

  bool null() override { return Fail("null"); }
  bool boolean(bool) override { return Fail("true or false"); }
  bool number_float(number_float_t, const string_t& text) override {
    return Fail(absl::StrCat("the number ", text));
  }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool number_integer(number_integer_t value) override {
    return Fail(absl::StrCat("the negative number ", value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return Fail(absl::StrCat("the number ", value));
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max())) {
      return Fail(absl::StrCat("the number ", value, ", which is beyond 2^63"));
    }
    if (numbers_.size() >= kMaximumRank) {
      return Fail(absl::StrCat("more than ", kMaximumRank, " numbers"));
    }
    numbers_.push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& text) override {
    if (depth_ != 2) return Fail("a string");
    if (in_metadata_) {
      if (!header.metadata.emplace(key_, text).second) return Fail("a repeated key");
      return true;
    }
    if (key_ != "dtype") return Fail("a string");
    const auto* found = std::find_if(std::begin(kDTypeCodes), std::end(kDTypeCodes),
                                     [&](const DTypeCode& c) { return text == c.code; });
    if (found == std::end(kDTypeCodes)) return Fail(absl::StrCat("the dtype '", text, "'"));
    entry_.dtype = found->dtype;
    return SetField(kHasDType);
  }

  bool start_object(std::size_t) override {
    if (depth_ >= 2) return Fail("a nested object");
    ++depth_;
    if (depth_ == 2) {
      entry_ = {};
      fields_ = 0;
      in_metadata_ = tensor_name_ == "__metadata__";
      entry_.name = tensor_name_;
    }
    return true;
  }

  bool key(string_t& text) override {
    if (depth_ == 2) {
      key_ = text;
      return true;
    }
    tensor_name_ = text;
    key_.clear();
    if (!names_.insert(text).second) return Fail("a second time");
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ == 1 && !in_metadata_) {
      if (fields_ != (kHasDType | kHasShape | kHasOffsets)) {
        return Fail("without one of dtype, shape, data_offsets");
      }
      header.entries.push_back(std::move(entry_));
    }
    if (depth_ == 1) {
      tensor_name_.clear();
      key_.clear();
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || (key_ != "shape" && key_ != "data_offsets")) {
      return Fail("an array");
    }
    ++depth_;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    --depth_;
    if (key_ == "shape") {
      entry_.shape.assign(numbers_.begin(), numbers_.end());
      return SetField(kHasShape);
    }
    if (numbers_.size() != 2) return Fail(absl::StrCat(numbers_.size(), " offsets instead of 2"));
    entry_.begin_bytes = numbers_[0];
    entry_.end_bytes = numbers_[1];
    return SetField(kHasOffsets);
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    // Errors of this class have been recorded already.
    if (reason_.empty()) reason_ = absl::StrCat("no valid JSON at byte ", position);
    return false;
  }

  // REQUIRES: the parser returned false.
  Error error() const { return Damaged(reason_); }

 private:
  enum Field { kHasDType = 1, kHasShape = 2, kHasOffsets = 4 };

  bool SetField(Field field) {
    if ((fields_ & field) != 0) return Fail("a repeated field");
    fields_ |= field;
    return true;
  }

  bool Fail(absl::string_view what) {
    reason_ = tensor_name_.empty() ? absl::StrCat(what, " where tensors are listed")
                                   : absl::StrCat("tensor '", tensor_name_, "' has ", what);
    if (!key_.empty()) absl::StrAppend(&reason_, " in '", key_, "'");
    return false;
  }

  int depth_ = 0;
  bool in_metadata_ = false;
  std::string tensor_name_;
  std::string key_;
  SafetensorsHeader::Entry entry_;
  int fields_ = 0;
  std::vector<int64_t> numbers_;
  absl::flat_hash_set<std::string> names_;
  std::string reason_;
};

// Bytes of an entry's elements; throws when they pass int64.
int64_t ElementBytes(const SafetensorsHeader::Entry& entry) {
  int64_t bytes = ItemSize(entry.dtype);
  // A zero anywhere makes the product zero, whatever the other sizes are.
  if (std::find(entry.shape.begin(), entry.shape.end(), 0) != entry.shape.end()) return 0;
  for (int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes)) {
      throw Damaged(absl::StrCat("tensor '", entry.name, "' has shape ", ToString(entry.shape),
                                 ", more than 2^63 bytes"));
    }
  }
  return bytes;
}

// Each entry within the data and of the right size; together without overlap or hole.
void CheckLayout(std::vector<SafetensorsHeader::Entry>& entries, int64_t data_bytes) {
  // Empty tensors share a place: their names, which are unique, order them.
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin_bytes, a.end_bytes, a.name) <
           std::tie(b.begin_bytes, b.end_bytes, b.name);
  });
  int64_t expected = 0;
  for (const SafetensorsHeader::Entry& entry : entries) {
    const std::string range = absl::StrCat("tensor '", entry.name, "' has bytes [",
                                           entry.begin_bytes, ", ", entry.end_bytes, ")");
    if (entry.begin_bytes > entry.end_bytes) throw Damaged(absl::StrCat(range, ", backwards"));
    if (entry.end_bytes > data_bytes) {
      throw Damaged(absl::StrCat(range, " but the file has ", data_bytes, " bytes of data"));
    }
    const int64_t bytes = ElementBytes(entry);
    if (entry.end_bytes - entry.begin_bytes != bytes) {
      throw Damaged(absl::StrCat(range, " but ", DTypeName(entry.dtype), ToString(entry.shape),
                                 " takes ", bytes));
    }
    if (entry.begin_bytes < expected) {
      throw Damaged(absl::StrCat(range, ", which overlap another tensor's"));
    }
    if (entry.begin_bytes > expected) {
      throw Damaged(absl::StrCat(range, ", after a hole that begins at ", expected));
    }
    expected = entry.end_bytes;
  }
  if (expected != data_bytes) {
    throw Damaged(absl::StrCat("the tensors take ", expected, " bytes but the file has ",
                               data_bytes, " bytes of data"));
  }
}

}  // namespace

SafetensorsHeader ParseSafetensorsHeader(absl::string_view prefix, int64_t file_bytes) {
  if (file_bytes < kLengthBytes || static_cast<int64_t>(prefix.size()) < kLengthBytes) {
    throw Damaged(absl::StrCat("the file has ", file_bytes, " bytes, too few for a length"));
  }
  uint64_t length = 0;
  for (int i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<uint8_t>(prefix[static_cast<size_t>(i)])) << 8 * i;
  }
  if (length > static_cast<uint64_t>(kMaximumHeaderBytes) ||
      length > static_cast<uint64_t>(file_bytes - kLengthBytes) ||
      length > prefix.size() - kLengthBytes) {
    throw Damaged(absl::StrCat("a length of ", length, " bytes in a file of ", file_bytes,
                               " (at most ", kMaximumHeaderBytes, ")"));
  }
  const absl::string_view text = prefix.substr(kLengthBytes, length);
  if (text.empty() || text[0] != '{') throw Damaged("does not begin with '{'");
  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) throw reader.error();
  reader.header.data_begin_bytes = kLengthBytes + static_cast<int64_t>(length);
  CheckLayout(reader.header.entries, file_bytes - reader.header.data_begin_bytes);
  return std::move(reader.header);
}

}  // namespace lockstep::state
