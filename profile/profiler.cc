// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/profile/profiler.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/error.h"
#include "lockstep/tensor/thread_state.h"

namespace lockstep::profile {
namespace {

constexpr absl::string_view KindName(SpanKind kind) {
  switch (kind) {
    case SpanKind::kKernel:
      return "kernel";
    case SpanKind::kCommunication:
      return "communication";
    case SpanKind::kRange:
      return "range";
  }
  return "unknown";
}

struct Total {
  std::string name;
  int64_t calls = 0;
  int64_t ns = 0;
  double flops = 0;
  double bytes = 0;
};

// By total time, the longest first.
std::vector<Total> Totals(const std::vector<RecordedSpan>& spans, SpanKind kind) {
  std::map<std::string, Total> by_name;
  for (const RecordedSpan& span : spans) {
    if (span.kind != kind) continue;
    Total& total = by_name[span.name];
    total.name = span.name;
    ++total.calls;
    total.ns += span.end_ns - span.start_ns;
    total.flops += span.flops;
    total.bytes += static_cast<double>(span.bytes);
  }
  std::vector<Total> totals;
  for (auto& [name, total] : by_name) totals.push_back(std::move(total));
  std::sort(totals.begin(), totals.end(), [](const Total& a, const Total& b) {
    return a.ns != b.ns ? a.ns > b.ns : a.name < b.name;
  });
  return totals;
}

// "12.3 (85 %)"; the share only where the limit is known.
std::string Rate(double amount, int64_t ns, double limit_per_second) {
  if (amount <= 0 || ns <= 0) return "-";
  const double per_second = amount / static_cast<double>(ns) * 1e9;
  const std::string rate = absl::StrFormat("%.1f", per_second / 1e9);
  if (limit_per_second <= 0) return rate;
  return absl::StrFormat("%s (%.0f %%)", rate, 100 * per_second / limit_per_second);
}

void AppendTotals(const std::vector<Total>& totals, absl::string_view title, int64_t elapsed_ns,
                  const MachineLimits& limits, std::string* table) {
  if (totals.empty()) return;
  absl::StrAppendFormat(table, "%-36s %8s %10s %7s %16s %16s\n", title, "calls", "ms", "share",
                        "GB/s", "GFLOP/s");
  int64_t all_ns = 0;
  for (const Total& total : totals) {
    all_ns += total.ns;
    absl::StrAppendFormat(table, "%-36s %8d %10.3f %5.1f %% %16s %16s\n", total.name, total.calls,
                          static_cast<double>(total.ns) / 1e6,
                          100.0 * static_cast<double>(total.ns) / static_cast<double>(elapsed_ns),
                          Rate(total.bytes, total.ns, limits.bytes_per_second),
                          Rate(total.flops, total.ns, limits.flops_per_second));
  }
  absl::StrAppendFormat(table, "%-36s %8s %10.3f %5.1f %%\n", absl::StrCat("all ", title), "",
                        static_cast<double>(all_ns) / 1e6,
                        100.0 * static_cast<double>(all_ns) / static_cast<double>(elapsed_ns));
}

nlohmann::json LaneName(int process, int thread, absl::string_view name) {
  return {{"name", "thread_name"},
          {"ph", "M"},
          {"pid", process},
          {"tid", thread},
          {"args", {{"name", std::string(name)}}}};
}

nlohmann::json TraceEvent(const RecordedSpan& span, int process) {
  nlohmann::json arguments = nlohmann::json::object();
  if (span.bytes > 0) arguments["bytes"] = span.bytes;
  if (span.flops > 0) arguments["flops"] = span.flops;
  return {{"name", span.name},
          {"cat", std::string(KindName(span.kind))},
          {"ph", "X"},
          {"pid", process},
          {"tid", span.thread},
          {"ts", static_cast<double>(span.start_ns) / 1e3},
          {"dur", static_cast<double>(span.end_ns - span.start_ns) / 1e3},
          {"args", std::move(arguments)}};
}

}  // namespace

void Profiler::OnSpan(const Span& span) {
  RecordedSpan recorded{
      span.kind, std::string(span.name), span.start_ns, span.end_ns, span.flops, span.bytes,
      gettid()};
  std::lock_guard<std::mutex> lock(mutex_);
  spans_.push_back(std::move(recorded));
}

std::vector<RecordedSpan> Profiler::Spans() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return spans_;
}

void Profiler::Clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  spans_.clear();
}

std::string Profiler::Table(const MachineLimits& limits) const {
  const std::vector<RecordedSpan> spans = Spans();
  if (spans.empty()) return "nothing was recorded\n";
  int64_t start_ns = spans[0].start_ns, end_ns = spans[0].end_ns;
  for (const RecordedSpan& span : spans) {
    start_ns = std::min(start_ns, span.start_ns);
    end_ns = std::max(end_ns, span.end_ns);
  }
  const int64_t elapsed_ns = std::max<int64_t>(end_ns - start_ns, 1);
  std::string table = absl::StrFormat("%.3f ms recorded", static_cast<double>(elapsed_ns) / 1e6);
  if (limits.flops_per_second > 0 && limits.bytes_per_second > 0) {
    absl::StrAppendFormat(&table, "; limits measured here: %.1f GFLOP/s, %.1f GB/s",
                          limits.flops_per_second / 1e9, limits.bytes_per_second / 1e9);
  }
  table += '\n';
  AppendTotals(Totals(spans, SpanKind::kKernel), "kernels", elapsed_ns, limits, &table);
  // Bytes between ranks are not bytes of memory, so their rate has no share.
  AppendTotals(Totals(spans, SpanKind::kCommunication), "communication", elapsed_ns, {}, &table);
  AppendTotals(Totals(spans, SpanKind::kRange), "ranges", elapsed_ns, {}, &table);
  return table;
}

void Profiler::WriteTrace(const std::string& path, int process) const {
  const std::vector<RecordedSpan> spans = Spans();
  std::set<int> communication;
  for (const RecordedSpan& span : spans) {
    if (span.kind == SpanKind::kCommunication) communication.insert(span.thread);
  }
  std::set<int> named;
  nlohmann::json events = nlohmann::json::array();
  for (const RecordedSpan& span : spans) {
    if (named.insert(span.thread).second) {
      const bool communicates = communication.count(span.thread) > 0;
      events.push_back(
          LaneName(process, span.thread,
                   communicates ? "communication" : absl::StrCat("thread ", span.thread)));
    }
    events.push_back(TraceEvent(span, process));
  }
  const nlohmann::json trace = {{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}};
  std::ofstream file(path, std::ios::trunc);
  // Names are the program's: bytes that are not UTF-8 are replaced rather than refused.
  file << trace.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
  file.close();
  if (!file) throw UnavailableError(absl::StrCat("WriteTrace: cannot write ", path));
}

ProfileScope::ProfileScope(std::shared_ptr<SpanObserver> observer)
    : saved_(std::exchange(MutableThreadState().observer, std::move(observer))) {}
ProfileScope::~ProfileScope() { MutableThreadState().observer = std::move(saved_); }

}  // namespace lockstep::profile
