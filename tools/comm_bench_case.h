// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What comm_bench measures: one op on one size, with inputs whose results are known exactly.
//
//   Case c(*comm, "all_reduce", 1 << 20, /*in_place=*/false, /*allocated=*/true);
//   const Measurement m = Measure(*comm, c);   // on all ranks
#ifndef LOCKSTEP_TOOLS_COMM_BENCH_CASE_H_
#define LOCKSTEP_TOOLS_COMM_BENCH_CASE_H_

#include <cstdint>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/work.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::comm_bench {

// Its tensors, its call, and what must come out.
class Case {
 public:
  // `op`: of OpNames(). `bytes`: of the larger of a rank's tensors, rounded to whole elements and
  // parts. `comm` must outlive it.
  Case(comm::Communicator& comm, const std::string& op, int64_t bytes, bool in_place,
       bool allocated);

  static bool HasInPlace(const std::string& op);

  int64_t bytes() const { return whole_ * 4; }
  const Tensor& output() const { return output_; }

  // Writes the input.
  void Fill();
  comm::Work Call();
  // Elements of this rank's output that are wrong after Fill() and one Call().
  int64_t Errors() const;

 private:
  Tensor New(int64_t count, bool allocated);
  Tensor MyPart(const Tensor& whole) const;
  float Sum(int64_t i) const;
  float Expected(int64_t i) const;

  comm::Communicator& comm_;
  const std::string op_;
  const int ranks_;
  const int me_;
  int64_t part_ = 0;
  int64_t whole_ = 0;
  Tensor input_;
  Tensor output_;
};

struct Measurement {
  double seconds = 0;  // a call: the median of batches, as one late wake-up must not decide
  int64_t errors = 0;  // on all ranks, in the first call
};

// Checks one call and times many.
Measurement Measure(comm::Communicator& comm, Case& c);

}  // namespace lockstep::comm_bench

#endif  // LOCKSTEP_TOOLS_COMM_BENCH_CASE_H_
