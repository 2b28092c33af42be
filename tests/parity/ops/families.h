// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The families of parity cases: goldens/<family>.json.
#ifndef LOCKSTEP_TESTS_PARITY_OPS_FAMILIES_H_
#define LOCKSTEP_TESTS_PARITY_OPS_FAMILIES_H_

#include <string>
#include <vector>

namespace lockstep::parity {

inline const std::vector<std::string>& Families() {
  static const auto& families = *new std::vector<std::string>{
      "broadcasting",    "contractions", "copies",        "elementwise", "indexing",
      "losses",          "modules",      "normalization", "randoms",     "reductions",
      "scalar_operands", "updates",      "views"};
  return families;
}

}  // namespace lockstep::parity

#endif  // LOCKSTEP_TESTS_PARITY_OPS_FAMILIES_H_
