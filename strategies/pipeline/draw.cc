// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/strategies/pipeline/draw.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"

namespace lockstep::pipeline {
namespace {

struct Look {
  ActionKind kind;
  char letter;
  absl::string_view colour;
  absl::string_view meaning;
};
constexpr Look kLooks[] = {
    {ActionKind::kForward, 'F', "#4c8bd6", "forward"},
    {ActionKind::kBackward, 'B', "#4fae6a", "backward"},
    {ActionKind::kBackwardInput, 'I', "#3aa6a0", "gradients of inputs"},
    {ActionKind::kBackwardWeight, 'W', "#e3983e", "gradients of weights"},
};

const Look& LookOf(ActionKind kind) { return kLooks[static_cast<size_t>(kind)]; }

// Of each stage, which one of its rank's stages it is, from 0.
std::map<int, int> LocalStages(const Timeline& timeline) {
  std::map<int, int> rank_of_stage;
  for (const Span& span : timeline.spans) rank_of_stage[span.action.stage] = span.rank;
  std::vector<int> count(static_cast<size_t>(timeline.ranks), 0);
  std::map<int, int> local;
  for (const auto& [stage, rank] : rank_of_stage) local[stage] = count[static_cast<size_t>(rank)]++;
  return local;
}

bool HasSeveralStages(const std::map<int, int>& local) {
  return std::any_of(local.begin(), local.end(),
                     [](const auto& entry) { return entry.second > 0; });
}

std::string IdleText(const Timeline& timeline, size_t rank) {
  const double makespan = timeline.makespan_seconds;
  return absl::StrFormat("%.1f%%", makespan > 0 ? 100 * timeline.idle_seconds[rank] / makespan : 0);
}

std::string Title(const Timeline& timeline) {
  return absl::StrFormat("%s: %d ranks, makespan %g s, bubble %.1f%%",
                         timeline.name.empty() ? "timeline" : timeline.name, timeline.ranks,
                         timeline.makespan_seconds, 100 * timeline.bubble);
}

std::string Cell(const Action& action, bool with_stage, size_t width) {
  const char letter = LookOf(action.kind).letter;
  std::string label = absl::StrCat(std::string(1, letter), action.micro_batch);
  if (with_stage) label = absl::StrCat(action.stage, label);
  if (label.size() > width) label = std::string(1, letter);
  label.resize(width, '-');
  return label;
}

// Measures of the SVG, in its units.
constexpr double kLeft = 64, kTop = 34, kLane = 26, kPitch = 36, kWidth = 1000, kRight = 64;

std::string Escape(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&apos;"}});
}

double LaneTop(int rank) { return kTop + kPitch * rank; }

std::string SpanSvg(const Span& span, int local_stage, double scale) {
  const double x = kLeft + span.start_seconds * scale;
  const double width = (span.end_seconds - span.start_seconds) * scale;
  const std::string tip = Escape(absl::StrFormat("%s: %g to %g s", ToString(span.action),
                                                 span.start_seconds, span.end_seconds));
  if (IsTransfer(span.action.kind)) {
    return absl::StrFormat(
        "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"3\" fill=\"#8a5fb0\">"
        "<title>%s</title></rect>\n",
        x, LaneTop(span.rank) + kLane + 2, width, tip);
  }
  const double opacity = std::max(0.4, 1 - 0.25 * local_stage);
  std::string svg = absl::StrFormat(
      "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.0f\" fill=\"%s\" "
      "fill-opacity=\"%.2f\" stroke=\"#ffffff\"><title>%s</title></rect>\n",
      x, LaneTop(span.rank), width, kLane, LookOf(span.action.kind).colour, opacity, tip);
  const std::string number = absl::StrCat(span.action.micro_batch);
  if (width >= 7 * static_cast<double>(number.size()) + 2) {
    absl::StrAppendFormat(&svg, "<text x=\"%.2f\" y=\"%.2f\" text-anchor=\"middle\">%s</text>\n",
                          x + width / 2, LaneTop(span.rank) + 17, number);
  }
  return svg;
}

std::string LegendSvg(const Timeline& timeline, double y) {
  std::set<ActionKind> kinds;
  bool transfers = false;
  for (const Span& span : timeline.spans) {
    const bool transfer = IsTransfer(span.action.kind);
    if (!transfer) kinds.insert(span.action.kind);
    transfers = transfers || (transfer && span.end_seconds > span.start_seconds);
  }
  std::string svg;
  double x = kLeft;
  const auto add = [&](absl::string_view colour, absl::string_view meaning) {
    absl::StrAppendFormat(&svg,
                          "<rect x=\"%.0f\" y=\"%.0f\" width=\"12\" height=\"12\" fill=\"%s\" "
                          "stroke=\"#999999\"/><text x=\"%.0f\" y=\"%.0f\">%s</text>\n",
                          x, y, colour, x + 18, y + 11, meaning);
    x += 40 + 7 * static_cast<double>(meaning.size());
  };
  for (const ActionKind kind : kinds) add(LookOf(kind).colour, LookOf(kind).meaning);
  if (transfers) add("#8a5fb0", "transfer");
  add("#dddddd", "bubble");
  return svg;
}

}  // namespace

std::string DrawText(const Timeline& timeline, int width) {
  if (width < 1 || width > 10000) {
    throw InvalidArgumentError(absl::StrCat("DrawText: width ", width, " is not 1 to 10000"));
  }
  const auto column = [&](double seconds) {
    return static_cast<size_t>(std::llround(seconds * width / timeline.makespan_seconds));
  };
  const bool with_stage = HasSeveralStages(LocalStages(timeline));
  std::vector<std::string> lanes(static_cast<size_t>(timeline.ranks),
                                 std::string(static_cast<size_t>(width), '.'));
  for (const Span& span : timeline.spans) {
    if (IsTransfer(span.action.kind) || timeline.makespan_seconds == 0) continue;
    const size_t begin = column(span.start_seconds);
    const size_t length = column(span.end_seconds) - begin;
    lanes[static_cast<size_t>(span.rank)].replace(begin, length,
                                                  Cell(span.action, with_stage, length));
  }
  std::string text = absl::StrCat(Title(timeline), "\n");
  const size_t digits = absl::StrCat(timeline.ranks - 1).size();
  for (size_t rank = 0; rank < lanes.size(); ++rank) {
    absl::StrAppendFormat(&text, "rank %*d |%s| idle %s\n", static_cast<int>(digits),
                          static_cast<int>(rank), lanes[rank], IdleText(timeline, rank));
  }
  return text;
}

std::string DrawSvg(const Timeline& timeline) {
  const double height = LaneTop(timeline.ranks) + 24;
  const double scale = timeline.makespan_seconds > 0 ? kWidth / timeline.makespan_seconds : 0;
  const std::string title = Escape(Title(timeline));
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<title>%s</title>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
      "<text x=\"%.0f\" y=\"20\" font-size=\"14\">%s</text>\n",
      kLeft + kWidth + kRight, height, title, kLeft, title);
  for (int rank = 0; rank < timeline.ranks; ++rank) {
    const double y = LaneTop(rank);
    absl::StrAppendFormat(&svg,
                          "<text x=\"8\" y=\"%.2f\">rank %d</text>\n"
                          "<rect x=\"%.0f\" y=\"%.2f\" width=\"%.0f\" height=\"%.0f\" "
                          "fill=\"#dddddd\"/>\n<text x=\"%.0f\" y=\"%.2f\">%s</text>\n",
                          y + 17, rank, kLeft, y, kWidth, kLane, kLeft + kWidth + 8, y + 17,
                          IdleText(timeline, static_cast<size_t>(rank)));
  }
  const std::map<int, int> local = LocalStages(timeline);
  for (const Span& span : timeline.spans) {
    if (span.end_seconds > span.start_seconds) {
      svg += SpanSvg(span, local.at(span.action.stage), scale);
    }
  }
  return absl::StrCat(svg, LegendSvg(timeline, LaneTop(timeline.ranks) + 2), "</svg>\n");
}

}  // namespace lockstep::pipeline
