// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Type promotion and broadcasting are PyTorch's: the dtype, the values and the refusals of all
// pairs of dtypes, operands without dimensions, and scalars (make_promotion_goldens.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tests/parity/goldens.h"
#include "lockstep/tests/parity/ops/arguments.h"
#include "lockstep/tests/parity/ops/bindings.h"
#include "lockstep/tests/parity/ops/golden_case.h"

namespace lockstep::parity {
namespace {

using nlohmann::json;

const json& Goldens() {
  static const auto& goldens = *new json(ReadGoldens("tests/parity/ops/promotion_goldens.json"));
  return goldens;
}

std::vector<DType> DTypes() {
  std::vector<DType> dtypes;
  for (const auto& name : Goldens()["dtypes"]) {
    dtypes.push_back(ParseDType(name.get<std::string>()));
  }
  return dtypes;
}

// operand() of make_promotion_goldens.py.
Tensor Operand(DType dtype, bool second, bool dimensions) {
  std::vector<int64_t> values = second ? std::vector<int64_t>{3, 2} : std::vector<int64_t>{7, 1};
  if (dtype == DType::kBool) values = {1, second};
  if (!dimensions) values.resize(1);
  return To(FromVector<int64_t>(values, dimensions ? Shape{2} : Shape{}), dtype);
}

// The bindings, and forms in place.
const BindingTable& PromotionBindings() {
  static const auto& table = *[] {
    auto* const all = new BindingTable(Bindings());
    const auto add = [all](const char* name, Tensor (*in_place)(const Tensor&, const Scalar&)) {
      (*all)[name] = [in_place](TensorSpan x, const json& a) {
        return std::vector<Tensor>{in_place(Clone(x[0]), ScalarOf(a["value"]))};
      };
    };
    add("AddScalarInPlace", &AddInPlace);
    add("MulScalarInPlace", &MulInPlace);
    add("DivScalarInPlace", &DivInPlace);
    (*all)["AddInPlace"] = [](TensorSpan x, const json&) {
      return std::vector<Tensor>{AddInPlace(Clone(x[0]), x[1])};
    };
    (*all)["MulInPlace"] = [](TensorSpan x, const json&) {
      return std::vector<Tensor>{MulInPlace(Clone(x[0]), x[1])};
    };
    return all;
  }();
  return table;
}

// Where Lockstep differs from PyTorch: docs/numerics.md says why.
bool DiffersOnPurpose(const std::string& call) {
  static const auto& calls = *new std::vector<std::regex>{
      // A result is not narrowed to be stored in place.
      std::regex("(Add|Mul)InPlace (tensors|zero_dims) (float32 float64|b?float16 float(32|64)|"
                 "bfloat16 float16|float16 bfloat16|int32 int64|uint8 int(32|64))"),
      // A number is not wrapped around to fit the dtype, and is compared as it is.
      std::regex("(Add|Sub|RSub|Mul)Scalar (negative|large) uint8"),
      std::regex("(Where|Less)Scalar negative uint8"),
      std::regex("(Add|Mul)ScalarInPlace (negative|large) uint8|Fill negative uint8"),
      std::regex("PowScalar large uint8"),
      // Differences of a bool and a number, as their sums.
      std::regex(
          "Sub [a-z_]+ (bool (float|bfloat|int|uint)[0-9]+|(float|bfloat|int|uint)[0-9]+ bool)"),
      std::regex("R?SubScalar bool (float|bfloat|int|uint)[0-9]+"),
      std::regex("R?SubScalar (int|float|whole_float|large|negative) bool"),
      // A bool is not a number.
      std::regex("PowScalar bool bool|Sign bool"),
      std::regex("MatMul tensors uint8 uint8"),
      std::regex("Gelu (int64|int32|uint8|bool)"),
  };
  return std::any_of(calls.begin(), calls.end(),
                     [&](const std::regex& known) { return std::regex_match(call, known); });
}

char LetterOf(DType dtype) {
  const std::vector<DType> dtypes = DTypes();
  const auto at = std::find(dtypes.begin(), dtypes.end(), dtype) - dtypes.begin();
  return Goldens()["letters"].get<std::string>().at(static_cast<size_t>(at));
}

// Functions that are not exact differ by a rounding step: op_parity_test measures them.
double RelativeTolerance(DType dtype) { return IsReducedFloat(dtype) ? 0x1p-7 : 1e-6; }

std::string ValueDifference(const Tensor& result, const json& expected) {
  const std::vector<double> actual = result.ToVector<double>();
  if (actual.size() != expected.size()) return absl::StrCat(actual.size(), " elements");
  for (size_t i = 0; i < actual.size(); ++i) {
    const double value = expected[i].is_null() ? HUGE_VAL : expected[i].get<double>();
    const bool near = std::isfinite(value) ? std::abs(actual[i] - value) <=
                                                 RelativeTolerance(result.dtype()) * std::abs(value)
                                           : !std::isfinite(actual[i]);
    if (!near) return absl::StrCat("element ", i, " is ", actual[i]);
  }
  return "";
}

// "", or how the call differs from PyTorch's, which gives `letter` ('!': refuses it) and `values`.
std::string CallDifference(const std::string& op, const std::vector<Tensor>& inputs,
                           const json& args, char letter, const json& values) {
  Tensor result;
  try {
    result = PromotionBindings().at(op)(inputs, args)[0];
  } catch (const Error& error) {
    return letter == '!' ? "" : error.message();
  }
  if (LetterOf(result.dtype()) != letter) return result.DebugString();
  return ValueDifference(result, values);
}

// Compares calls with a table of goldens, in its order.
class TableChecker {
 public:
  explicit TableChecker(const json& table) : letters_(table["letters"]), values_(table["values"]) {}

  void Check(const std::string& call, const std::string& op, const std::vector<Tensor>& inputs,
             const json& args) {
    const char letter = letters_.at(next_);
    const std::string difference = CallDifference(op, inputs, args, letter, values_.at(next_));
    ++next_;
    if (DiffersOnPurpose(call)) {
      EXPECT_NE(difference, "") << call << " is as in PyTorch: take it off the list";
    } else {
      EXPECT_EQ(difference, "") << call << ": PyTorch gives " << letter;
    }
  }

  bool AtEnd() const { return next_ == letters_.size(); }

 private:
  std::string letters_;
  json values_;
  size_t next_ = 0;
};

// Whether each operand has a dimension.
struct Form {
  bool left, right;
};
const std::map<std::string, Form>& Forms() {
  static const auto& forms = *new std::map<std::string, Form>{{"tensors", {true, true}},
                                                              {"zero_dim_right", {true, false}},
                                                              {"zero_dim_left", {false, true}},
                                                              {"zero_dims", {false, false}}};
  return forms;
}

Tensor Condition() { return FromVector<bool>({true, false}, {2}); }

void CheckPairs(const std::string& op, const std::string& form, const json& table) {
  TableChecker checker(table);
  for (const DType a : DTypes()) {
    for (const DType b : DTypes()) {
      std::vector<Tensor> inputs = {Operand(a, false, Forms().at(form).left),
                                    Operand(b, true, Forms().at(form).right)};
      if (op == "Where") inputs.insert(inputs.begin(), Condition());
      checker.Check(absl::StrCat(op, " ", form, " ", DTypeName(a), " ", DTypeName(b)), op, inputs,
                    {{"dim", 0}});
    }
  }
  EXPECT_TRUE(checker.AtEnd());
}

TEST(Promotion, PairsOfTensors) {
  for (const auto& [op, forms] : Goldens()["pairs"].items()) {
    for (const auto& [form, table] : forms.items()) CheckPairs(op, form, table);
  }
}

TEST(Promotion, TensorsAndScalars) {
  for (const auto& [op, kinds] : Goldens()["scalars"].items()) {
    for (const auto& [kind, table] : kinds.items()) {
      TableChecker checker(table);
      for (const DType dtype : DTypes()) {
        std::vector<Tensor> inputs = {Operand(dtype, false, true)};
        if (op == "WhereScalar") inputs.insert(inputs.begin(), Condition());
        checker.Check(absl::StrCat(op, " ", kind, " ", DTypeName(dtype)), op, inputs,
                      {{"value", table["value"]}});
      }
      EXPECT_TRUE(checker.AtEnd());
    }
  }
}

void CheckOneTensor(const std::string& op, const std::string& kind, const json& table,
                    const json& args) {
  TableChecker checker(table);
  for (const DType dtype : DTypes()) {
    checker.Check(absl::StrCat(op, kind, " ", DTypeName(dtype)), op, {Operand(dtype, true, true)},
                  args);
  }
  EXPECT_TRUE(checker.AtEnd());
}

TEST(Promotion, Clamps) {
  for (const auto& [kind, table] : Goldens()["clamps"].items()) {
    CheckOneTensor("Clamp", " " + kind, table, {{"low", table["low"]}, {"high", table["high"]}});
  }
}

TEST(Promotion, OneTensor) {
  for (const auto& [op, table] : Goldens()["unary"].items()) {
    CheckOneTensor(op, "", table, {{"dim", 0}});
  }
}

TEST(Broadcasting, ShapesOfSums) {
  int refused = 0;
  for (const json& row : Goldens()["broadcasts"]) {
    const Tensor a = Zeros(ParseShape(row[0])), b = Zeros(ParseShape(row[1]));
    if (row[2].is_null()) {
      EXPECT_THROW(Add(a, b), Error) << row;
      ++refused;
    } else {
      EXPECT_EQ(Add(a, b).shape(), ParseShape(row[2])) << row;
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace lockstep::parity
