// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Shows the devices of this machine: topology_options.h, or --help.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/median.h"
#include "lockstep/tensor/memory.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/peer_access.h"
#include "lockstep/tensor/tensor.h"
#include "lockstep/tensor/thread_state.h"
#include "lockstep/tools/run_tool.h"
#include "lockstep/tools/topology_options.h"

namespace lockstep::topology {
namespace {

struct Move {
  Device from, to;
  int64_t bytes = 0;
  double seconds = 0;
};

struct Topology {
  std::vector<Device> devices;
  int64_t memory_bytes = 0;  // of the machine, which all of them share
  int processors = 0;
  int threads = 0;                         // of an op
  std::vector<std::vector<bool>> reaches;  // [from][to]
  std::vector<Move> moves;
};

double BandwidthGbps(const Move& move) {
  return static_cast<double>(move.bytes) / move.seconds * 1e-9;
}

// Of a tensor of float32, a call: the median of batches, as one late wake-up must not decide.
Move MeasureMove(Device from, Device to, int64_t size) {
  const Tensor x = To(FillInPlace(Empty({(size + 3) / 4}), 1), from);
  const int64_t bytes = x.bytes();
  const int repeats = bytes >= (8 << 20) ? 4 : bytes >= (128 << 10) ? 50 : 1000;
  for (int i = 0; i < repeats / 10 + 1; ++i) To(x, to);
  std::vector<double> seconds;
  for (int batch = 0; batch < 5; ++batch) {
    const Stopwatch watch;
    for (int i = 0; i < repeats; ++i) To(x, to);
    seconds.push_back(watch.ElapsedSeconds() / repeats);
  }
  return {from, to, bytes, Median(seconds)};
}

Topology Look(const Options& options) {
  Topology topology;
  topology.devices = options.devices;
  topology.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  topology.processors = static_cast<int>(std::thread::hardware_concurrency());
  SetIntraOpThreads(options.threads);
  topology.threads = IntraOpThreads();
  for (const Device from : options.devices) {
    std::vector<bool>& row = topology.reaches.emplace_back();
    for (const Device to : options.devices) row.push_back(CanAccessPeer(from, to));
  }
  for (const int64_t bytes : options.sizes) {
    for (const Device from : options.devices) {
      for (const Device to : options.devices) {
        if (from != to) topology.moves.push_back(MeasureMove(from, to, bytes));
      }
    }
  }
  return topology;
}

std::string Table(const Topology& topology) {
  std::string text =
      absl::StrFormat("%-8s %14s %11s %8s\n", "device", "memory MiB", "processors", "threads");
  for (const Device device : topology.devices) {
    absl::StrAppendFormat(&text, "%-8s %14d %11d %8d\n", ToString(device),
                          topology.memory_bytes >> 20, topology.processors, topology.threads);
  }
  absl::StrAppendFormat(&text, "\n%-8s", "reaches");
  for (const Device to : topology.devices) absl::StrAppendFormat(&text, " %6s", ToString(to));
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    absl::StrAppendFormat(&text, "\n%-8s", ToString(topology.devices[i]));
    for (const bool reaches : topology.reaches[i]) {
      absl::StrAppendFormat(&text, " %6s", reaches ? "yes" : "no");
    }
  }
  absl::StrAppendFormat(&text, "\n\n%-8s %-8s %12s %12s %10s\n", "from", "to", "bytes", "us a move",
                        "GB/s");
  for (const Move& move : topology.moves) {
    absl::StrAppendFormat(&text, "%-8s %-8s %12d %12.2f %10.3f\n", ToString(move.from),
                          ToString(move.to), move.bytes, move.seconds * 1e6, BandwidthGbps(move));
  }
  return text;
}

std::string Json(const Topology& topology) {
  nlohmann::ordered_json json;
  for (size_t i = 0; i < topology.devices.size(); ++i) {
    nlohmann::ordered_json device = {{"device", ToString(topology.devices[i])},
                                     {"memory_bytes", topology.memory_bytes},
                                     {"processors", topology.processors},
                                     {"threads", topology.threads}};
    for (size_t k = 0; k < topology.devices.size(); ++k) {
      device["reaches"][ToString(topology.devices[k])] = bool{topology.reaches[i][k]};
    }
    json["devices"].push_back(device);
  }
  json["moves"] = nlohmann::ordered_json::array();
  for (const Move& move : topology.moves) {
    json["moves"].push_back({{"from", ToString(move.from)},
                             {"to", ToString(move.to)},
                             {"size_bytes", move.bytes},
                             {"latency_us", move.seconds * 1e6},
                             {"bandwidth_gbps", BandwidthGbps(move)}});
  }
  return json.dump();
}

int Run(const std::vector<std::string>& arguments) {
  const Options options = ParseOptions(arguments);
  if (options.help) {
    std::printf("%s", HelpText().c_str());
    return 0;
  }
  const Topology topology = Look(options);
  std::printf("%s\n", options.json ? Json(topology).c_str() : Table(topology).c_str());
  return 0;
}

}  // namespace
}  // namespace lockstep::topology

int main(int argc, char** argv) {
  return lockstep::tools::RunTool("topology", argc, argv, lockstep::topology::Run);
}
