// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/tools/topology_options.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/tools/size_text.h"

namespace lockstep::topology {
namespace {

constexpr int kMaxGib = 1;
constexpr int kMaxThreads = 1024;

[[noreturn]] void Refuse(absl::string_view flag, absl::string_view value,
                         absl::string_view allowed) {
  throw InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", allowed, " (see --help)"));
}

std::vector<Device> ParseDevices(absl::string_view value) {
  std::vector<Device> devices;
  for (const absl::string_view text : absl::StrSplit(value, ',')) {
    try {
      devices.push_back(ParseDevice(text));
    } catch (const Error& error) {
      Refuse("devices", value, error.message());
    }
    if (devices.back() == kMeta) Refuse("devices", value, "meta has no memory");
    if (std::count(devices.begin(), devices.end(), devices.back()) > 1) {
      Refuse("devices", value, absl::StrCat(text, " is given twice"));
    }
  }
  return devices;
}

void Set(absl::string_view flag, absl::string_view value, Options* options) {
  if (flag == "devices") {
    options->devices = ParseDevices(value);
  } else if (flag == "sizes") {
    options->sizes = tools::ParseSizes(flag, value, kMaxGib);
  } else if (flag == "threads") {
    if (!absl::SimpleAtoi(value, &options->threads) || options->threads < 0 ||
        options->threads > kMaxThreads) {
      Refuse(flag, value, absl::StrCat("1 to ", kMaxThreads, " threads, or 0 for all processors"));
    }
  } else {
    Refuse(flag, value, "no such flag");
  }
}

}  // namespace

Options ParseOptions(const std::vector<std::string>& arguments) {
  Options options;
  for (const std::string& argument : arguments) {
    if (argument == "--json" || argument == "--help" || argument == "-h") {
      (argument == "--json" ? options.json : options.help) = true;
      continue;
    }
    absl::string_view rest = argument;
    const size_t equals = rest.find('=');
    if (!absl::ConsumePrefix(&rest, "--") || equals == absl::string_view::npos) {
      throw InvalidArgumentError(
          absl::StrCat("\"", argument, "\" is not --flag=value (see --help)"));
    }
    Set(rest.substr(0, equals - 2), rest.substr(equals - 1), &options);
  }
  return options;
}

std::string HelpText() {
  return "Shows devices, which of them reach each other's memory, and how fast tensors move.\n\n"
         "  ./bazelw run //tools:topology -- [flags]\n\n"
         "  --devices=cpu:0,cpu:1\n      cpu:0 to cpu:7, host, cuda:N where the backend is "
         "linked.\n"
         "  --sizes=1KiB,64KiB,1MiB,64MiB\n      Bytes of the tensors of float32 that are moved.\n"
         "  --threads=0\n      Threads of a move. 0: all processors.\n"
         "  --json\n      One object instead of tables.\n";
}

}  // namespace lockstep::topology
