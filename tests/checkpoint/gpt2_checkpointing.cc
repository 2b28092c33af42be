// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// What checkpointing saves and costs on GPT-2, each way of it in turn in one run:
//
//   bazel run //tests/checkpoint:gpt2_checkpointing -- --preset=mini --batch=8 --repeats=7
//
// "end" is autograd::SavedBytes() at the end of the forward pass, "peak" its largest value in a
// step, "time" that of the fastest forward and backward, "cpu" the smallest processor time of one,
// which other programs on the machine disturb less. Ways alternate, so that a change of the
// machine's speed hits all of them.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_format.h"
#include "lockstep/autograd/backward.h"
#include "lockstep/autograd/saved_tensor_hooks.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/checkpoint/module_policy.h"
#include "lockstep/checkpoint/op_policy.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

ABSL_FLAG(std::string, preset, "mini", "nano, mini or small");
ABSL_FLAG(int64_t, batch, 8, "sequences a step");
ABSL_FLAG(int64_t, repeats, 7, "rounds over all ways");
ABSL_FLAG(double, dropout, 0, "dropout of the model");

namespace lockstep {
namespace {

struct Way {
  Way(std::string name, std::function<void(models::Gpt2&)> apply)
      : name(std::move(name)), apply(std::move(apply)) {}

  std::string name;
  std::function<void(models::Gpt2&)> apply;
  int64_t end_bytes = 0;
  int64_t peak_bytes = 0;
  std::vector<double> seconds;
  std::vector<double> cpu_seconds;
};

double Smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// How much longer than the plain way, in percent.
double Extra(const std::vector<double>& values, const std::vector<double>& plain) {
  return 100 * (Smallest(values) / Smallest(plain) - 1);
}

void Step(models::Gpt2& model, const Tensor& ids, Way& way) {
  model.ZeroGrad();
  const int64_t before = autograd::SavedBytes(Cpu(0));
  autograd::ResetPeakSavedBytes(Cpu(0));
  const std::clock_t cpu_start = std::clock();
  const int64_t start = MonotonicNanoseconds();
  const Tensor loss = model.Loss(ids, ids);
  way.end_bytes = autograd::SavedBytes(Cpu(0)) - before;
  autograd::Backward(loss);
  way.seconds.push_back(static_cast<double>(MonotonicNanoseconds() - start) * 1e-9);
  way.cpu_seconds.push_back(static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC);
  way.peak_bytes = autograd::PeakSavedBytes(Cpu(0)) - before;
}

std::vector<Way> Ways() {
  const auto blocks = [](checkpoint::OpPolicy policy) {
    return [policy](models::Gpt2& model) {
      checkpoint::ApplyCheckpointing(model, {checkpoint::OfType<models::Gpt2Block>()},
                                     {.policy = policy});
    };
  };
  std::vector<Way> ways;
  ways.emplace_back("plain", [](models::Gpt2&) {});
  ways.emplace_back("each block", blocks(nullptr));
  ways.emplace_back("contractions saved", blocks(checkpoint::SaveContractions()));
  ways.emplace_back("contractions except qkv", [](models::Gpt2& model) {
    checkpoint::ApplyCheckpointing(
        model, {checkpoint::OfType<models::Gpt2Block>()},
        {.policy = checkpoint::SaveContractionsExcept(checkpoint::WeightsOf(model, "c_attn"))});
  });
  return ways;
}

void Run() {
  models::Gpt2Config config = models::Gpt2Preset(absl::GetFlag(FLAGS_preset));
  config.dropout = absl::GetFlag(FLAGS_dropout);
  ManualSeed(1);
  models::Gpt2 model(config);
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < batch * config.block; ++i) tokens.push_back(i * 31 % config.vocabulary);
  const Tensor ids = FromVector<int64_t>(tokens, {batch, config.block});

  std::vector<Way> ways = Ways();
  const int64_t repeats = std::max<int64_t>(1, absl::GetFlag(FLAGS_repeats));
  for (int64_t round = 0; round <= repeats; ++round) {
    for (Way& way : ways) {
      way.apply(model);
      Step(model, ids, way);
      checkpoint::RemoveCheckpointing(model);
      if (round > 0) continue;
      way.seconds.clear();  // the first round warms up
      way.cpu_seconds.clear();
    }
  }
  const Way& plain = ways[0];
  for (const Way& way : ways) {
    const auto saved = [&](int64_t bytes) {
      return 100.0 * (1 - static_cast<double>(bytes) / static_cast<double>(plain.end_bytes));
    };
    absl::PrintF(
        "%-24s end %7.1f MB (%5.1f %% saved)  peak %7.1f MB (%5.1f %% saved)  time %7.1f ms "
        "(%+5.1f %%)  cpu %7.1f ms (%+5.1f %%)\n",
        way.name, way.end_bytes * 1e-6, saved(way.end_bytes), way.peak_bytes * 1e-6,
        saved(way.peak_bytes), Smallest(way.seconds) * 1e3, Extra(way.seconds, plain.seconds),
        Smallest(way.cpu_seconds) * 1e3, Extra(way.cpu_seconds, plain.cpu_seconds));
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  try {
    lockstep::Run();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "gpt2_checkpointing: %s\n", error.message().c_str());
    return 1;
  }
  return 0;
}
