// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/tools/flight_report.h"
#include "nlohmann/json.hpp"

namespace lockstep::flight_recorder {
namespace {

using Json = nlohmann::ordered_json;

std::string RanksText(const Ranks& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

void AppendCollectives(const GroupReport& group, std::string* text) {
  if (group.last_completed < 0) {
    absl::StrAppend(text, "  no collective was completed by all\n");
  } else {
    absl::StrAppend(text, "  the last collective that all completed: ", group.last_completed);
    if (!group.last_completed_call.empty()) {
      absl::StrAppend(text, ", ", group.last_completed_call);
    }
    absl::StrAppend(text, "\n");
  }
  if (group.next_calls.empty()) return;
  absl::StrAppend(text, "  collective ", group.last_completed + 1,
                  group.next_calls.size() > 1 ? " differs:\n" : ":\n");
  for (const CallOfRanks& call : group.next_calls) {
    absl::StrAppend(text, "    ", RanksText(call.ranks), " called ", call.call, "\n");
  }
  if (!group.not_issued.empty()) {
    absl::StrAppend(text, "    ", RanksText(group.not_issued),
                    group.not_issued.size() == 1 ? " has" : " have", " not issued it\n");
  }
  if (!group.forgotten.empty()) {
    absl::StrAppend(text, "    not in the record any more: that of ", RanksText(group.forgotten),
                    " (keep more calls)\n");
  }
}

void AppendTransfer(const OpenTransfer& open, std::string* text) {
  const auto call = [](const std::string& made, int rank) {
    return made.empty() ? absl::StrCat("no call of rank ", rank)
                        : absl::StrCat("rank ", rank, " called ", made);
  };
  absl::StrAppend(text, "  message ", open.number, " from rank ", open.from, " to rank ", open.to,
                  " is open: ", call(open.sent, open.from), ", ", call(open.received, open.to),
                  "\n");
}

}  // namespace

std::string ToText(const Report& report) {
  std::string text;
  for (const GroupReport& group : report.groups) {
    absl::StrAppend(&text, "group \"", group.group, "\" (", group.key, "), ", group.size,
                    group.size == 1 ? " rank\n" : " ranks\n");
    for (const RankError& error : group.errors) {
      absl::StrAppend(&text, "  error ", absl::StatusCodeToString(error.code), " on ",
                      RanksText(error.ranks), ": ", error.message, "\n");
    }
    if (!group.without_file.empty()) {
      absl::StrAppend(&text, "  no file of ", RanksText(group.without_file),
                      ": died, or did not notice\n");
    }
    AppendCollectives(group, &text);
    for (const LateRank& late : group.late) {
      absl::StrAppend(&text, "  slow: rank ", late.rank, " issued collective ", late.number, ", ",
                      late.call, ", ", absl::StrFormat("%.1f", late.seconds),
                      " s after the first\n");
    }
    for (const OpenTransfer& open : group.transfers) AppendTransfer(open, &text);
  }
  for (const std::string& circle : report.circles) {
    absl::StrAppend(&text, "circle: ", circle, "\n");
  }
  return text;
}

std::string ToJson(const Report& report) {
  Json groups = Json::array();
  for (const GroupReport& group : report.groups) {
    Json json = {{"group", group.group},
                 {"key", group.key},
                 {"size", group.size},
                 {"without_file", group.without_file},
                 {"last_completed", group.last_completed},
                 {"last_completed_call", group.last_completed_call},
                 {"not_issued", group.not_issued},
                 {"forgotten", group.forgotten},
                 {"errors", Json::array()},
                 {"next_calls", Json::array()},
                 {"late", Json::array()},
                 {"transfers", Json::array()}};
    for (const RankError& error : group.errors) {
      json["errors"].push_back({{"code", absl::StatusCodeToString(error.code)},
                                {"ranks", error.ranks},
                                {"message", error.message}});
    }
    for (const CallOfRanks& call : group.next_calls) {
      json["next_calls"].push_back({{"call", call.call}, {"ranks", call.ranks}});
    }
    for (const LateRank& late : group.late) {
      json["late"].push_back({{"rank", late.rank},
                              {"number", late.number},
                              {"call", late.call},
                              {"seconds", late.seconds}});
    }
    for (const OpenTransfer& open : group.transfers) {
      json["transfers"].push_back({{"from", open.from},
                                   {"to", open.to},
                                   {"number", open.number},
                                   {"sent", open.sent},
                                   {"received", open.received}});
    }
    groups.push_back(std::move(json));
  }
  const Json json = {{"groups", groups}, {"circles", report.circles}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::flight_recorder
