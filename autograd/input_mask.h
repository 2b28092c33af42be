// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// A set of input positions of one op call.
#ifndef LOCKSTEP_AUTOGRAD_INPUT_MASK_H_
#define LOCKSTEP_AUTOGRAD_INPUT_MASK_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"

namespace lockstep::autograd {

class InputMask {
 public:
  InputMask() = default;

  bool operator[](int index) const {
    const size_t word = static_cast<size_t>(index) / 64;
    return word < words_.size() && (words_[word] >> (index % 64) & 1) != 0;
  }
  void Set(int index) {
    const size_t word = static_cast<size_t>(index) / 64;
    if (word >= words_.size()) words_.resize(word + 1, 0);
    words_[word] |= uint64_t{1} << (index % 64);
  }
  bool any() const {
    for (uint64_t word : words_) {
      if (word != 0) return true;
    }
    return false;
  }

 private:
  absl::InlinedVector<uint64_t, 1> words_;
};

}  // namespace lockstep::autograd

#endif  // LOCKSTEP_AUTOGRAD_INPUT_MASK_H_
