// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// What the flight records of all ranks say together: how far each group came, and who parted from
// whom.
//
//   const RecordFolder read = ReadRecords("/var/log/job");
//   std::printf("%s", ToText(Analyze(read.records)).c_str());
#ifndef LOCKSTEP_TOOLS_FLIGHT_REPORT_H_
#define LOCKSTEP_TOOLS_FLIGHT_REPORT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "lockstep/comm/flight_record.h"

namespace lockstep::flight_recorder {

// Ranks are those of the group, unless said otherwise.
using Ranks = std::vector<int>;

// A call, and the ranks that issued it.
struct CallOfRanks {
  std::string call;
  Ranks ranks;
  friend bool operator==(const CallOfRanks&, const CallOfRanks&) = default;
};

struct RankError {
  absl::StatusCode code;
  Ranks ranks;
  std::string message;  // that of the lowest rank
};

// A rank that issued a collective later than the first did.
struct LateRank {
  int rank = 0;
  int64_t number = 0;
  std::string call;
  double seconds = 0;
};

// The first message from one rank to another that did not arrive on both ends.
struct OpenTransfer {
  int from = 0;
  int to = 0;
  int64_t number = 0;
  std::string sent;      // the sender's call; "": none, or no file
  std::string received;  // the receiver's call
};

struct GroupReport {
  std::string group;
  std::string key;  // of groups of one name
  int size = 0;
  Ranks without_file;
  std::vector<RankError> errors;
  // The last collective that all ranks with a file completed; -1: none.
  int64_t last_completed = -1;
  std::string last_completed_call;
  // Of the next one: who called what, one entry if all that came agree.
  std::vector<CallOfRanks> next_calls;
  Ranks not_issued;
  Ranks forgotten;  // its entry is not in the ring any more
  std::vector<LateRank> late;
  std::vector<OpenTransfer> transfers;
};

struct Report {
  std::vector<GroupReport> groups;  // by name and key
  // Ranks, of the job, that wait for each other in a circle over these groups.
  std::vector<std::string> circles;
};

struct RecordFolder {
  std::vector<comm::FlightRecord> records;
  // Files that could not be read, and why.
  std::vector<std::string> problems;
};

// Reads each *.rank<k>.json in `folder`, in the order of names. Throws NotFound (no such folder).
RecordFolder ReadRecords(const std::string& folder);

// `late_seconds`: who is as late as this is told.
Report Analyze(const std::vector<comm::FlightRecord>& records, double late_seconds = 1);

std::string ToText(const Report& report);
std::string ToJson(const Report& report);

}  // namespace lockstep::flight_recorder

#endif  // LOCKSTEP_TOOLS_FLIGHT_REPORT_H_
