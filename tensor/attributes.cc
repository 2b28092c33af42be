// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/attributes.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace internal {
namespace {

uint64_t BitsOf(double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

[[noreturn]] void Refuse(const char* name, absl::string_view value, absl::string_view expected) {
  throw InvalidArgumentError(absl::StrCat("Attributes::Parse: field ", name, " has the value '",
                                          value, "'; ", expected, " is needed"));
}

int64_t ParseInt64(const char* name, absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value)) Refuse(name, text, "an integer");
  return value;
}

// 17 significant digits give every finite double back; a NaN keeps its bits.
std::string ExactText(double value) {
  if (std::isnan(value)) return absl::StrFormat("nan(%016x)", BitsOf(value));
  return absl::StrFormat("%.17g", value);
}

double ParseDouble(const char* name, absl::string_view text) {
  constexpr absl::string_view kExpected = "a number, inf or nan(bits)";
  absl::string_view digits = text;
  double value = 0;
  if (absl::ConsumePrefix(&digits, "nan(") && absl::ConsumeSuffix(&digits, ")")) {
    uint64_t bits = 0;
    if (digits.size() != 16 || !absl::SimpleHexAtoi(digits, &bits)) Refuse(name, text, kExpected);
    std::memcpy(&value, &bits, sizeof(value));
    if (!std::isnan(value)) Refuse(name, text, kExpected);
    return value;
  }
  if (!absl::SimpleAtod(text, &value) || std::isnan(value)) Refuse(name, text, kExpected);
  return value;
}

}  // namespace

// The hash is part of kernel-cache keys on disk: it must not differ between processes.
void FieldHasher::operator()(const char*, int64_t value) {
  uint64_t mixed = (hash_ ^ static_cast<uint64_t>(value)) * 0x9e3779b97f4a7c15u;
  mixed ^= mixed >> 32;
  hash_ = mixed * 0xd6e8feb86659fd93u;
  hash_ ^= hash_ >> 29;
}

void FieldHasher::operator()(const char* name, double value) {
  (*this)(name, static_cast<int64_t>(BitsOf(value)));
}

void FieldHasher::operator()(const char* name, const Shape& value) {
  // The length separates two neighbouring lists.
  (*this)(name, static_cast<int64_t>(value.size()));
  for (const int64_t size : value) (*this)(name, size);
}

void FieldPrinter::Add(const char* name, absl::string_view value) {
  absl::StrAppend(&text_, text_.empty() ? "" : ", ", name, "=", value);
}

void FieldPrinter::operator()(const char* name, int64_t value) { Add(name, absl::StrCat(value)); }
void FieldPrinter::operator()(const char* name, bool value) { Add(name, value ? "true" : "false"); }
void FieldPrinter::operator()(const char* name, double value) { Add(name, ExactText(value)); }
void FieldPrinter::operator()(const char* name, Device value) {
  Add(name, lockstep::ToString(value));
}
void FieldPrinter::operator()(const char* name, DType value) { Add(name, DTypeName(value)); }
void FieldPrinter::operator()(const char* name, const Shape& value) {
  Add(name, lockstep::ToString(value));
}

FieldParser::FieldParser(absl::string_view text) {
  absl::string_view inner = absl::StripAsciiWhitespace(text);
  if (!absl::ConsumePrefix(&inner, "{") || !absl::ConsumeSuffix(&inner, "}")) {
    throw InvalidArgumentError(
        absl::StrCat("Attributes::Parse: '", text, "' is not of the form ", "{name=value, ...}"));
  }
  rest_ = std::string(absl::StripAsciiWhitespace(inner));
}

std::string FieldParser::Next(const char* name) {
  absl::string_view rest = rest_;
  if (!absl::ConsumePrefix(&rest, absl::StrCat(name, "="))) {
    throw InvalidArgumentError(
        absl::StrCat("Attributes::Parse: field ", name, " is missing at '", rest_, "'"));
  }
  // A value ends at a comma outside of brackets.
  size_t length = 0;
  for (int depth = 0; length < rest.size(); ++length) {
    if (rest[length] == '[') ++depth;
    if (rest[length] == ']') --depth;
    if (rest[length] == ',' && depth == 0) break;
  }
  const std::string value(absl::StripAsciiWhitespace(rest.substr(0, length)));
  rest.remove_prefix(length);
  const bool comma = absl::ConsumePrefix(&rest, ",");
  const absl::string_view following = absl::StripLeadingAsciiWhitespace(rest);
  if (comma && following.empty()) {
    throw InvalidArgumentError(
        absl::StrCat("Attributes::Parse: nothing follows the comma after field ", name));
  }
  rest_ = std::string(following);
  return value;
}

void FieldParser::operator()(const char* name, int64_t& value) {
  value = ParseInt64(name, Next(name));
}

void FieldParser::operator()(const char* name, bool& value) {
  const std::string text = Next(name);
  if (text != "true" && text != "false") Refuse(name, text, "true or false");
  value = text == "true";
}

void FieldParser::operator()(const char* name, double& value) {
  value = ParseDouble(name, Next(name));
}

void FieldParser::operator()(const char* name, Device& value) { value = ParseDevice(Next(name)); }
void FieldParser::operator()(const char* name, DType& value) { value = ParseDType(Next(name)); }

void FieldParser::operator()(const char* name, Shape& value) {
  const std::string text = Next(name);
  absl::string_view inner = text;
  if (!absl::ConsumePrefix(&inner, "[") || !absl::ConsumeSuffix(&inner, "]")) {
    Refuse(name, text, "a list in brackets");
  }
  Shape parsed;
  if (!inner.empty()) {
    for (const absl::string_view item : absl::StrSplit(inner, ',')) {
      parsed.push_back(ParseInt64(name, absl::StripAsciiWhitespace(item)));
    }
  }
  value = parsed;
}

void FieldParser::RefuseEnum(const char* name, int64_t number) {
  Refuse(name, absl::StrCat(number), "a value of the enumeration");
}

void FieldParser::Finish() const {
  if (!rest_.empty()) {
    throw InvalidArgumentError(
        absl::StrCat("Attributes::Parse: '", rest_, "' follows the last field"));
  }
}

}  // namespace internal

const NoAttributes& EmptyAttributes() {
  static const NoAttributes* const kEmpty = new NoAttributes;  // outlives all static destructors
  return *kEmpty;
}

}  // namespace lockstep
