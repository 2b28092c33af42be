// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tensor/attributes.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/error.h"

namespace lockstep {
namespace {

enum class Color : uint8_t { kRed = 0, kBlue = 2 };

struct Everything : AttributesOf<Everything> {
  Dim count = 0;
  bool flag = false;
  double ratio = 0;
  Device device;
  DType dtype = DType::kFloat32;
  Shape shape;
  Color color = Color::kRed;
  template <typename V>
  void VisitFields(V&& v) {
    v("count", count);
    v("flag", flag);
    v("ratio", ratio);
    v("device", device);
    v("dtype", dtype);
    v("shape", shape);
    v("color", color);
  }
};

Everything Sample() {
  Everything e;
  e.count = -3;
  e.flag = true;
  e.ratio = 0.1;
  e.device = Cuda(2);
  e.dtype = DType::kBFloat16;
  e.shape = {2, 0, 5};
  e.color = Color::kBlue;
  return e;
}

constexpr char kSampleText[] =
    "{count=-3, flag=true, ratio=0.10000000000000001, device=cuda:2, dtype=bfloat16, "
    "shape=[2, 0, 5], color=2}";

TEST(AttributesTest, PrintsAndParsesEveryKindOfField) {
  EXPECT_EQ(Sample().ToString(), kSampleText);
  const auto parsed = Everything().Parse(kSampleText);
  EXPECT_TRUE(parsed->Equals(Sample()));
  EXPECT_EQ(parsed->As<Everything>().shape, (Shape{2, 0, 5}));
  EXPECT_EQ(EmptyAttributes().ToString(), "{}");
  EXPECT_TRUE(EmptyAttributes().Parse(" { } ")->Equals(EmptyAttributes()));
}

TEST(AttributesTest, EachFieldTakesPartInEqualityAndHash) {
  std::vector<Everything> different(7, Sample());
  different[0].count = 3;
  different[1].flag = false;
  different[2].ratio = std::nextafter(0.1, 1.0);
  different[3].device = Cpu(2);
  different[4].dtype = DType::kFloat16;
  different[5].shape = {2, 0, 5, 1};
  different[6].color = Color::kRed;
  EXPECT_TRUE(Sample().Equals(*Sample().Clone()));
  EXPECT_EQ(Sample().Hash(), Sample().Clone()->Hash());
  for (size_t i = 0; i < different.size(); ++i) {
    EXPECT_FALSE(Sample().Equals(different[i])) << i;
    EXPECT_NE(Sample().Hash(), different[i].Hash()) << i;
    EXPECT_TRUE(Everything().Parse(different[i].ToString())->Equals(different[i])) << i;
  }
  EXPECT_FALSE(Sample().Equals(EmptyAttributes()));
}

// Cache files of other processes and builds carry these numbers.
TEST(AttributesTest, HashIsStable) {
  EXPECT_EQ(EmptyAttributes().Hash(), 0xcbf29ce484222325u);
  EXPECT_EQ(Sample().Hash(), 526933114022802941u);
}

TEST(AttributesTest, NeighbouringListsDoNotRunTogether) {
  struct Two : AttributesOf<Two> {
    Shape a, b;
    void VisitFields(internal::FieldHasher& v) { v("a", a), v("b", b); }
    void VisitFields(internal::FieldPrinter& v) { v("a", a), v("b", b); }
    void VisitFields(internal::FieldParser& v) { v("a", a), v("b", b); }
  };
  Two x, y;
  x.a = {1, 2};
  x.b = {3};
  y.a = {1};
  y.b = {2, 3};
  EXPECT_NE(x.Hash(), y.Hash());
  EXPECT_FALSE(x.Equals(y));
}

TEST(AttributesTest, DoublesAreExactInText) {
  std::mt19937_64 random(11);
  std::vector<double> values{0.0,
                             -0.0,
                             1.0 / 3,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::denorm_min(),
                             std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(),
                             std::bit_cast<double>(uint64_t{0x7ff8000000000001}),
                             std::bit_cast<double>(uint64_t{0xfff8000000000000})};
  for (int i = 0; i < 20000; ++i) values.push_back(std::bit_cast<double>(random()));
  for (const double value : values) {
    Everything e;
    e.ratio = value;
    const auto parsed = e.Parse(e.ToString());
    ASSERT_EQ(std::bit_cast<uint64_t>(parsed->As<Everything>().ratio),
              std::bit_cast<uint64_t>(value))
        << e.ToString();
    ASSERT_TRUE(parsed->Equals(e));
  }
  Everything plus, minus;
  plus.ratio = 0.0;
  minus.ratio = -0.0;
  EXPECT_FALSE(plus.Equals(minus));  // by bits
}

TEST(AttributesTest, RefusesTextThatDoesNotMatch) {
  const std::string good = kSampleText;
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::vector<std::string> bad{"",
                                     "count=-3",
                                     "{",
                                     "{}",
                                     good.substr(0, good.size() - 1),
                                     replaced("count=", "total="),
                                     replaced("-3", "three"),
                                     replaced("-3", ""),
                                     replaced("-3", "99999999999999999999"),
                                     replaced("true", "1"),
                                     replaced("0.10000000000000001", "tenth"),
                                     replaced("0.10000000000000001", "nan"),
                                     replaced("0.10000000000000001", "nan(0000000000000000)"),
                                     replaced("cuda:2", "gpu"),
                                     replaced("bfloat16", "float8"),
                                     replaced("[2, 0, 5]", "2"),
                                     replaced("[2, 0, 5]", "[2,, 5]"),
                                     replaced("[2, 0, 5]", "[2, 0, 5"),
                                     replaced("color=2", "color=300"),
                                     replaced("color=2", "color=2, extra=1"),
                                     replaced("color=2", "color=2,"),
                                     replaced("flag=true, ", "")};
  for (const std::string& text : bad) {
    try {
      Everything().Parse(text);
      ADD_FAILURE() << "accepted " << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), absl::StatusCode::kInvalidArgument) << text;
    }
  }
}

TEST(AttributesTest, AsRefusesAnotherType) {
  const Everything everything;
  const Attributes& attributes = everything;
  EXPECT_EQ(&attributes.As<Everything>(), &everything);
  try {
    attributes.As<NoAttributes>();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), absl::StatusCode::kInternal);
  }
}

}  // namespace
}  // namespace lockstep
