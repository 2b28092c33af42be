// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Flight records as files (JSON).
//
//   WriteFlightRecord(communicator->flight_record(), "/var/log/job");     // world.rank2.json
//   ...
//   FlightRecord read = ReadFlightRecord("/var/log/job/world.rank2.json");
//
// The files of all ranks together say where the ranks parted: //tools:flight_recorder.
#ifndef LOCKSTEP_COMM_FLIGHT_RECORD_FILE_H_
#define LOCKSTEP_COMM_FLIGHT_RECORD_FILE_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/comm/flight_record.h"

namespace lockstep::comm {

// One line of JSON a call.
std::string ToJson(const FlightRecord& record);
// Throws DataLoss (no flight record, damaged or truncated), prefixed by `name`.
FlightRecord ParseFlightRecord(absl::string_view json, absl::string_view name);

// "world.rank2.json". Characters of the group's name that are not safe in a file's become "_", and
// a number made of the name keeps such names apart.
std::string FlightRecordFileName(absl::string_view group, int rank);

// Writes `<folder>/<FlightRecordFileName>`, whole or not at all: under a temporary name, then
// renamed. Returns the path. Throws NotFound (no such folder), ResourceExhausted, Unavailable.
std::string WriteFlightRecord(const FlightRecord& record, const std::string& folder);

// Throws NotFound (the file cannot be read), DataLoss.
FlightRecord ReadFlightRecord(const std::string& path);

}  // namespace lockstep::comm

#endif  // LOCKSTEP_COMM_FLIGHT_RECORD_FILE_H_
