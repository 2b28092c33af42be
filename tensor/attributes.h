// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Attributes: what of an op call selects code (axes, flags, kinds, sizes). Numbers that may change
// from call to call are Scalars instead and never part of a cache key.
//
// An attribute struct lists its fields once; equality, hash (floats by their bits) and text
// (printed and parsed) derive from that list:
//
//   struct SliceAttributes : AttributesOf<SliceAttributes> {
//     Dim dim = 0, start = 0, length = 0, step = 1;
//     template <typename V> void VisitFields(V&& v) {
//       v("dim", dim); v("start", start); v("length", length); v("step", step);
//     }
//   };
#ifndef LOCKSTEP_TENSOR_ATTRIBUTES_H_
#define LOCKSTEP_TENSOR_ATTRIBUTES_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/shape.h"

namespace lockstep {

class Attributes {
 public:
  virtual ~Attributes() = default;
  virtual std::shared_ptr<const Attributes> Clone() const = 0;
  virtual bool Equals(const Attributes& other) const = 0;
  virtual uint64_t Hash() const = 0;
  // "{dim=1, start=0, length=3, step=1}".
  virtual std::string ToString() const = 0;
  // A copy with the fields replaced by what `text` (as from ToString, same fields in the same
  // order) says. Throws InvalidArgument.
  virtual std::shared_ptr<const Attributes> Parse(absl::string_view text) const = 0;

  // The struct itself; throws Internal when the op's attributes are of another type.
  template <typename T>
  const T& As() const {
    if (const T* typed = dynamic_cast<const T*>(this)) return *typed;
    throw InternalError("attributes of another op");
  }
};

namespace internal {

// Field visitors. Each supports int64 (Dim), bool, double, enums, DType, Device, Shape.
class FieldHasher {
 public:
  void operator()(const char* name, int64_t value);
  void operator()(const char* name, bool value) { (*this)(name, static_cast<int64_t>(value)); }
  void operator()(const char* name, double value);
  void operator()(const char* name, Device value) {
    (*this)(name, static_cast<int64_t>(value.ordinal()));
  }
  void operator()(const char* name, const Shape& value);
  template <typename E, std::enable_if_t<std::is_enum_v<E>, int> = 0>
  void operator()(const char* name, E value) {
    (*this)(name, static_cast<int64_t>(value));
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

class FieldPrinter {
 public:
  void operator()(const char* name, int64_t value);
  void operator()(const char* name, bool value);
  void operator()(const char* name, double value);
  void operator()(const char* name, Device value);
  void operator()(const char* name, DType value);
  void operator()(const char* name, const Shape& value);
  template <typename E, std::enable_if_t<std::is_enum_v<E> && !std::is_same_v<E, DType>, int> = 0>
  void operator()(const char* name, E value) {
    (*this)(name, static_cast<int64_t>(value));
  }
  std::string text() const { return "{" + text_ + "}"; }

 private:
  void Add(const char* name, absl::string_view value);
  std::string text_;
};

// Throws InvalidArgument on the first field that does not match.
class FieldParser {
 public:
  explicit FieldParser(absl::string_view text);
  void operator()(const char* name, int64_t& value);
  void operator()(const char* name, bool& value);
  void operator()(const char* name, double& value);
  void operator()(const char* name, Device& value);
  void operator()(const char* name, DType& value);
  void operator()(const char* name, Shape& value);
  template <typename E, std::enable_if_t<std::is_enum_v<E> && !std::is_same_v<E, DType>, int> = 0>
  void operator()(const char* name, E& value) {
    int64_t number = 0;
    (*this)(name, number);
    value = static_cast<E>(number);
    if (static_cast<int64_t>(value) != number) RefuseEnum(name, number);
  }
  // Throws InvalidArgument when text is left over.
  void Finish() const;

 private:
  [[noreturn]] static void RefuseEnum(const char* name, int64_t number);
  std::string Next(const char* name);
  std::string rest_;
};

}  // namespace internal

// Equality derives from the same list: text is exact (doubles print all their bits).
template <typename Derived>
struct AttributesOf : Attributes {
  std::shared_ptr<const Attributes> Clone() const override {
    return std::make_shared<Derived>(self());
  }
  bool Equals(const Attributes& other) const override {
    const auto* typed = dynamic_cast<const Derived*>(&other);
    return typed != nullptr && typed->Hash() == Hash() && typed->ToString() == ToString();
  }
  uint64_t Hash() const override {
    internal::FieldHasher hasher;
    const_cast<Derived&>(self()).VisitFields(hasher);
    return hasher.hash();
  }
  std::string ToString() const override {
    internal::FieldPrinter printer;
    const_cast<Derived&>(self()).VisitFields(printer);
    return printer.text();
  }
  std::shared_ptr<const Attributes> Parse(absl::string_view text) const override {
    auto copy = std::make_shared<Derived>(self());
    internal::FieldParser parser(text);
    copy->VisitFields(parser);
    parser.Finish();
    return copy;
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

struct NoAttributes : AttributesOf<NoAttributes> {
  template <typename V>
  void VisitFields(V&&) {}
};
const NoAttributes& EmptyAttributes();

}  // namespace lockstep

#endif  // LOCKSTEP_TENSOR_ATTRIBUTES_H_
