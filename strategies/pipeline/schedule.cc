// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Schedules and actions as text.

#include "lockstep/strategies/pipeline/schedule.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline {
namespace {

struct KindName {
  ActionKind kind;
  absl::string_view name;
};

// In the order of ActionKind; no name begins another.
constexpr KindName kKindNames[] = {
    {ActionKind::kForward, "F"},           {ActionKind::kBackward, "B"},
    {ActionKind::kBackwardInput, "I"},     {ActionKind::kBackwardWeight, "W"},
    {ActionKind::kSendForward, "SEND_F"},  {ActionKind::kRecvForward, "RECV_F"},
    {ActionKind::kSendBackward, "SEND_B"}, {ActionKind::kRecvBackward, "RECV_B"},
};

bool IsSend(ActionKind kind) {
  return kind == ActionKind::kSendForward || kind == ActionKind::kSendBackward;
}

// Digits at the beginning of `text`, which are taken off.
bool ConsumeNumber(absl::string_view* text, int* value) {
  size_t length = 0;
  while (length < text->size() &&
         absl::ascii_isdigit(static_cast<unsigned char>((*text)[length]))) {
    ++length;
  }
  if (!absl::SimpleAtoi(text->substr(0, length), value)) return false;
  text->remove_prefix(length);
  return true;
}

bool ConsumeAction(absl::string_view* text, Action* action) {
  if (!ConsumeNumber(text, &action->stage)) return false;
  for (const KindName& entry : kKindNames) {
    if (!absl::ConsumePrefix(text, entry.name)) continue;
    action->kind = entry.kind;
    if (!ConsumeNumber(text, &action->micro_batch)) return false;
    if (!IsTransfer(entry.kind)) return true;
    return absl::ConsumePrefix(text, IsSend(entry.kind) ? ">" : "<") &&
           ConsumeNumber(text, &action->peer_stage);
  }
  return false;
}

class Parser {
 public:
  Schedule Parse(absl::string_view text) {
    for (const absl::string_view whole : absl::StrSplit(text, '\n')) {
      ++line_;
      const absl::string_view line = absl::StripAsciiWhitespace(whole);
      if (line.empty() || line[0] == '#') continue;
      const size_t colon = line.find(':');
      if (colon == absl::string_view::npos) {
        Refuse("\"", line, "\" has no colon: a schedule is a line \"name: micro_batches=...\" and ",
               "then lines \"rank 0: 0F0 ...\"");
      }
      const absl::string_view head = absl::StripAsciiWhitespace(line.substr(0, colon));
      if (!has_head_) {
        schedule_.name = std::string(head);
        ParseHead(line.substr(colon + 1));
        has_head_ = true;
      } else {
        ParseRank(head, line.substr(colon + 1));
      }
    }
    if (!has_head_) Refuse("there is no line \"name: micro_batches=...\"");
    return std::move(schedule_);
  }

 private:
  template <typename... Parts>
  [[noreturn]] void Refuse(const Parts&... parts) const {
    throw InvalidArgumentError(absl::StrCat("ParseSchedule: line ", line_, ": ", parts...));
  }

  int Number(absl::string_view text, absl::string_view what) const {
    int value = 0;
    absl::string_view rest = text;
    if (!ConsumeNumber(&rest, &value) || !rest.empty()) {
      Refuse("\"", text, "\" is no number (", what, ")");
    }
    return value;
  }

  void ParseHead(absl::string_view settings) {
    std::vector<std::string> missing = {"micro_batches", "edges", "placement"};
    for (const absl::string_view setting :
         absl::StrSplit(settings, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
      if (setting == "forward_only" && !schedule_.forward_only) {
        schedule_.forward_only = true;
        continue;
      }
      const size_t equals = setting.find('=');
      const absl::string_view key = setting.substr(0, equals);
      if (equals == absl::string_view::npos || std::erase(missing, key) == 0) {
        Refuse("\"", setting, "\": settings are micro_batches=, edges=, placement= and ",
               "forward_only, each once");
      }
      ParseSetting(key, setting.substr(equals + 1));
    }
    if (!missing.empty()) Refuse("no ", absl::StrJoin(missing, "=, "), "=");
  }

  void ParseSetting(absl::string_view key, absl::string_view value) {
    if (key == "micro_batches") {
      schedule_.micro_batches = Number(value, key);
      return;
    }
    for (const absl::string_view item : absl::StrSplit(value, ',', absl::SkipEmpty())) {
      if (key == "placement") {
        schedule_.rank_of_stage.push_back(Number(item, key));
        continue;
      }
      const size_t arrow = item.find('>');
      if (arrow == absl::string_view::npos) Refuse("edge \"", item, "\" is not like 0>1");
      schedule_.edges.push_back(
          {Number(item.substr(0, arrow), key), Number(item.substr(arrow + 1), key)});
    }
  }

  void ParseRank(absl::string_view head, absl::string_view actions) {
    const std::string expected = absl::StrCat("rank ", schedule_.ranks.size());
    if (head != expected) Refuse("\"", head, ":\" where \"", expected, ":\" must come");
    std::vector<Action>& list = schedule_.ranks.emplace_back();
    for (const absl::string_view word :
         absl::StrSplit(actions, absl::ByAnyChar(" \t"), absl::SkipEmpty())) {
      absl::string_view rest = word;
      Action action;
      if (!ConsumeAction(&rest, &action) || !rest.empty()) {
        Refuse("\"", word, "\" is no action, like 2F0, 2B0, 2I0, 2W0, 1SEND_F0>2 or 2RECV_F0<1");
      }
      list.push_back(action);
    }
  }

  Schedule schedule_;
  int line_ = 0;
  bool has_head_ = false;
};

}  // namespace

bool IsTransfer(ActionKind kind) { return kind >= ActionKind::kSendForward; }

std::string ToString(const Action& action) {
  const absl::string_view name = kKindNames[static_cast<size_t>(action.kind)].name;
  std::string text = absl::StrCat(action.stage, name, action.micro_batch);
  if (IsTransfer(action.kind)) {
    absl::StrAppend(&text, IsSend(action.kind) ? ">" : "<", action.peer_stage);
  }
  return text;
}

Action ParseAction(absl::string_view text) {
  absl::string_view rest = text;
  Action action;
  if (!ConsumeAction(&rest, &action) || !rest.empty()) {
    throw InvalidArgumentError(
        absl::StrCat("ParseAction: \"", text,
                     "\" is no action, like 2F0, 2B0, 2I0, 2W0, 1SEND_F0>2 or 2RECV_F0<1"));
  }
  return action;
}

std::vector<StageEdge> ChainEdges(int stages) {
  std::vector<StageEdge> edges;
  for (int stage = 0; stage + 1 < stages; ++stage) edges.push_back({stage, stage + 1});
  return edges;
}

std::string ToText(const Schedule& schedule) {
  if (schedule.name.find_first_of(":#\n") != std::string::npos ||
      absl::StripAsciiWhitespace(schedule.name) != schedule.name) {
    throw InvalidArgumentError(
        absl::StrCat("ToText: the name \"", schedule.name,
                     "\" has a colon, # or line break, or white space around it"));
  }
  std::string text =
      absl::StrCat(schedule.name, ": micro_batches=", schedule.micro_batches, " edges=",
                   absl::StrJoin(schedule.edges, ",",
                                 [](std::string* out, const StageEdge& edge) {
                                   absl::StrAppend(out, edge.from, ">", edge.to);
                                 }),
                   " placement=", absl::StrJoin(schedule.rank_of_stage, ","),
                   schedule.forward_only ? " forward_only\n" : "\n");
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    absl::StrAppend(&text, "rank ", rank, ":");
    for (const Action& action : schedule.ranks[rank]) absl::StrAppend(&text, " ", ToString(action));
    absl::StrAppend(&text, "\n");
  }
  return text;
}

Schedule ParseSchedule(absl::string_view text) { return Parser().Parse(text); }

}  // namespace lockstep::pipeline
