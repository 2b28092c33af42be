// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/tests/parity/goldens.h"

#include <cmath>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"

namespace lockstep::parity {

nlohmann::json ReadGoldens(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw NotFoundError(absl::StrCat("ReadGoldens: cannot open ", path));
  return nlohmann::json::parse(file);
}

Tensor DrawNormal(const Shape& shape, double offset, double scale, Generator& generator,
                  DType dtype) {
  const Tensor normal = RandomNormal(shape, 0, 1, {&generator, {DType::kFloat32, {}}});
  const Tensor exact = To(normal, DType::kFloat64) * Scalar(scale) + Scalar(offset);
  return To(To(exact, DType::kFloat32), dtype);
}

double RelativeDistance(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) {
    throw InvalidArgumentError(
        absl::StrCat("RelativeDistance: ", a.size(), " and ", b.size(), " elements"));
  }
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  const double result = std::sqrt(difference / size);
  return std::isnan(result) ? std::numeric_limits<double>::infinity() : result;
}

}  // namespace lockstep::parity
