// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/examples/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::examples {
namespace {

constexpr absl::Duration kRedrawInterval = absl::Milliseconds(100);
constexpr int kBarWidth = 24;

std::string HumanTime(double seconds) {
  const int64_t whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return absl::StrFormat("%d:%02d", whole / 60, whole % 60);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string HumanBytes(int64_t bytes) {
  if (bytes < (1 << 20)) return absl::StrFormat("%.1f KiB", static_cast<double>(bytes) / 1024);
  if (bytes < (int64_t{1} << 30)) {
    return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  }
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

Progress::Progress(int64_t first_step, int64_t total_steps, int64_t line_every)
    : first_step_(first_step),
      total_steps_(total_steps),
      line_every_(line_every),
      terminal_(isatty(STDOUT_FILENO) != 0) {}

std::string Progress::TimeLeft(int64_t step) const {
  if (step <= first_step_) return "?";
  const double each = since_start_.ElapsedSeconds() / static_cast<double>(step - first_step_);
  return HumanTime(each * static_cast<double>(std::max<int64_t>(total_steps_ - step, 0)));
}

void Progress::Update(const StepReport& report) {
  const std::string figures = absl::StrFormat(
      "loss %.4f | %.0f tokens/s | communication %.1f %% | peak %s a rank | %s left", report.loss,
      report.tokens_per_second, 100 * report.communication_share, HumanBytes(report.peak_bytes),
      TimeLeft(report.step));
  if (!terminal_) {
    if (report.step % line_every_ == 0 || report.step == total_steps_) {
      Line(absl::StrFormat("step %d/%d | %s", report.step, total_steps_, figures));
    }
    return;
  }
  const absl::Duration now = since_start_.Elapsed();
  if (now - last_drawn_ < kRedrawInterval && report.step != total_steps_) return;
  last_drawn_ = now;
  const int filled = static_cast<int>(kBarWidth * report.step / std::max<int64_t>(total_steps_, 1));
  const std::string bar = std::string(static_cast<size_t>(filled), '=') +
                          std::string(static_cast<size_t>(kBarWidth - filled), ' ');
  // Back to the line's start, and erase to its end.
  std::printf("\r\x1b[K[%s] %d/%d | %s", bar.c_str(), static_cast<int>(report.step),
              static_cast<int>(total_steps_), figures.c_str());
  std::fflush(stdout);
  bar_shown_ = true;
}

void Progress::Line(absl::string_view text) {
  if (bar_shown_) std::printf("\r\x1b[K");
  bar_shown_ = false;
  std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(stdout);
}

}  // namespace lockstep::examples
