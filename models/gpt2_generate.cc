// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Sampling from Gpt2.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "lockstep/autograd/grad_mode.h"
#include "lockstep/base/error.h"
#include "lockstep/models/gpt2.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/views.h"

namespace lockstep::models {
namespace {

void Check(absl::Span<const int64_t> prompt, int64_t count, const GenerateOptions& options,
           int64_t vocabulary) {
  if (prompt.empty() || count < 0 || !(options.temperature >= 0) ||
      std::isinf(options.temperature) || options.top_k < 0) {
    throw InvalidArgumentError(absl::StrCat(
        "Gpt2::Generate: a prompt of ", prompt.size(), " tokens, count ", count, ", temperature ",
        options.temperature, ", top_k ", options.top_k,
        "; the prompt has at least one token, and the others are finite and not negative"));
  }
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= vocabulary) {
      throw OutOfRangeError(absl::StrCat("Gpt2::Generate: token ", prompt[i], " at position ", i,
                                         " of the prompt is outside [0, ", vocabulary, ")"));
    }
  }
}

// One token from the distribution softmax(logits / temperature), cut to the top k.
int64_t Sample(const std::vector<double>& logits, const GenerateOptions& options) {
  // Token numbers from the likeliest down; equal ones in order, so that results are reproducible.
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int64_t a, int64_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const int64_t all = static_cast<int64_t>(order.size());
  int64_t kept = options.top_k == 0 ? all : std::min(options.top_k, all);
  if (options.temperature == 0) kept = 1;
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), likelier);
  if (options.temperature == 0) return order[0];

  const double largest = logits[static_cast<size_t>(order[0])];
  std::vector<double> cumulative;
  double sum = 0;
  for (int64_t i = 0; i < kept; ++i) {
    const double logit = logits[static_cast<size_t>(order[static_cast<size_t>(i)])];
    sum += std::exp((logit - largest) / options.temperature);
    cumulative.push_back(sum);
  }
  const Tensor uniform = RandomUniform({1}, 0, 1, {options.generator, {DType::kFloat64, Cpu(0)}});
  const double target = uniform.Item<double>() * sum;
  const auto it = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  const auto chosen = std::min<int64_t>(it - cumulative.begin(), kept - 1);
  return order[static_cast<size_t>(chosen)];
}

}  // namespace

std::vector<int64_t> Gpt2::Generate(absl::Span<const int64_t> prompt, int64_t count,
                                    const GenerateOptions& options) {
  Check(prompt, count, options, config_.vocabulary);
  const bool was_training = training();
  const absl::Cleanup restore = [&] { Train(was_training); };
  Eval();
  autograd::NoGradScope no_grad;
  const Device device = transformer_->wte()->weight.device();
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = std::min<int64_t>(static_cast<int64_t>(tokens.size()), config_.block);
    const std::vector<int64_t> context(tokens.end() - length, tokens.end());
    const Tensor ids = FromVector<int64_t>(context, {1, length}, {.dtype = {}, .device = device});
    const Tensor hidden = (*transformer_)(ids);
    // Only the last position's logits are needed.
    const Tensor logits = (*lm_head_)(Slice(hidden, 1, length - 1));
    tokens.push_back(Sample(logits.ToVector<double>(), options));
  }
  return {tokens.begin() + static_cast<int64_t>(prompt.size()), tokens.end()};
}

}  // namespace lockstep::models
