// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Random programs of collectives and transfers, checked against a serial reference: op, dtype,
// reduction, root, sizes of 0 to 1e5 elements (small ones more often), parts of one size or of any,
// in place or not, ordinary, allocated and strided memory, waited for at once or later.
#ifndef LOCKSTEP_COMM_BACKEND_TESTS_RANDOM_PROGRAMS_H_
#define LOCKSTEP_COMM_BACKEND_TESTS_RANDOM_PROGRAMS_H_

#include <cstdint>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// The calls of a program: some of them collectives, some rings of transfers.
inline constexpr int kStepsPerProgram = 6;

// Runs this rank's part of the program of that seed, which all ranks run. Throws the error of the
// call that failed, or Internal where a result is wrong; both name the seed.
void RunProgram(Communicator& comm, uint64_t seed);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_BACKEND_TESTS_RANDOM_PROGRAMS_H_
