// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What every collective checks of its tensors. All throw InvalidArgument, prefixed by `call`.
#ifndef LOCKSTEP_COMM_CHECKS_H_
#define LOCKSTEP_COMM_CHECKS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm {

void CheckDefined(absl::string_view call, absl::string_view which, const Tensor& tensor);

// For the end of a rooted collective that only the root has.
void CheckUndefined(absl::string_view call, absl::string_view which, const Tensor& tensor, int rank,
                    int root);

// No two elements share memory.
void CheckWritable(absl::string_view call, const Tensor& tensor);

// Of one dtype.
void CheckPair(absl::string_view call, const Tensor& input, const Tensor& output);

// Of as many elements.
void CheckSameCount(absl::string_view call, const Tensor& input, const Tensor& output);

// The same view, or without common memory.
void CheckInPlace(absl::string_view call, const Tensor& input, const Tensor& output);

// `part` is row-major and begins at element `begin` of row-major `whole`, or they share no memory.
void CheckPartOverlap(absl::string_view call, const Tensor& part, const Tensor& whole, int rank,
                      int64_t begin);

void CheckNoOverlap(absl::string_view call, const Tensor& input, const Tensor& output);

// `counts`, an option called `name`, are `size` numbers, none negative, that add up to `total`
// (where `total` is not negative).
void CheckCounts(absl::string_view call, absl::string_view name, const std::vector<int64_t>& counts,
                 int size, int64_t total);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_CHECKS_H_
