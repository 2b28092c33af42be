// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The 16-bit copies of parameters that an autocast scope has made. Internal.
#ifndef LOCKSTEP_AMP_CAST_CACHE_H_
#define LOCKSTEP_AMP_CAST_CACHE_H_

#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::amp::internal {

// Thread-safe: backwards on other threads run under the scope's state.
class CastCache {
 public:
  // `parameter`, a leaf that requires a gradient, in `dtype`: a copy made before, when the
  // parameter has not changed since and the copy has a history if one is wanted now; else a new
  // one, kept unless the cache is closed.
  Tensor Cast(const Tensor& parameter, DType dtype);

  void Clear();
  // Clears, and keeps nothing from now on.
  void Close();
  int64_t bytes() const;

 private:
  struct Entry {
    Tensor parameter;  // held, so that its address is not another's
    Tensor cast;
    int64_t version = 0;
    bool recorded = false;
  };
  using Key = std::pair<const TensorImpl*, DType>;

  mutable std::mutex mutex_;
  absl::flat_hash_map<Key, Entry> entries_;
  bool closed_ = false;
};

}  // namespace lockstep::amp::internal

#endif  // LOCKSTEP_AMP_CAST_CACHE_H_
