// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/distributed_data_parallel/power_sgd.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/dtype.h"
#include "lockstep/tensor/ops/contraction.h"
#include "lockstep/tensor/ops/creation.h"
#include "lockstep/tensor/ops/elementwise.h"
#include "lockstep/tensor/ops/reduction.h"
#include "lockstep/tensor/ops/views.h"
#include "lockstep/tensor/random.h"
#include "lockstep/tensor/shape.h"

namespace lockstep::strategies {
namespace {

// Names in a state, the latter two before a parameter's.
constexpr char kStep[] = "step";
constexpr char kQ[] = "q.";
constexpr char kError[] = "error.";

constexpr comm::AllReduceOptions kAverage = {.op = comm::ReduceOp::kAverage};

Tensor AsMatrix(const Tensor& gradient) { return View(gradient, {gradient.size(0), -1}); }

double Length(const Tensor& column) {
  return std::sqrt(std::max(0.0, Sum(To(column * column, DType::kFloat64)).Item<double>()));
}

// Consecutive views of `buffer` in these shapes.
class Cutter {
 public:
  explicit Cutter(Tensor buffer) : buffer_(std::move(buffer)) {}
  Tensor Next(int64_t rows, int64_t columns) {
    const Tensor part = Slice(buffer_, 0, at_, at_ + rows * columns);
    at_ += rows * columns;
    return View(part, {rows, columns});
  }

 private:
  Tensor buffer_;
  int64_t at_ = 0;
};

}  // namespace

void Orthogonalize(const Tensor& matrix, double epsilon) {
  const int64_t columns = matrix.size(1);
  // Below this share of a column's length, what is left of it is rounding.
  const double rounding =
      (matrix.dtype() == DType::kFloat64 ? std::numeric_limits<double>::epsilon()
                                         : std::numeric_limits<float>::epsilon()) *
      static_cast<double>(matrix.size(0));
  for (int64_t j = 0; j < columns; ++j) {
    const Tensor column = Slice(matrix, 1, j, j + 1);
    const double before = Length(column);
    // Twice: once leaves what rounding makes of nearly parallel columns.
    for (int pass = 0; pass < 2 && j > 0; ++pass) {
      const Tensor earlier = Contiguous(Slice(matrix, 1, 0, j));
      const Tensor shares = MatMul(earlier, Contiguous(column), {.transpose_a = true});
      SubInPlace(column, MatMul(earlier, shares));
    }
    const double length = Length(column);
    if (length <= before * rounding) {
      ZeroInPlace(column);
    } else {
      MulInPlace(column, 1 / (length + epsilon));
    }
  }
}

PowerSgdHook::PowerSgdHook(const PowerSgdOptions& options) : options_(options) {
  const bool keeps_state = options.error_feedback || options.warm_start;
  if (options.rank < 1 || !(options.min_compression_rate > 0) ||
      !(options.orthogonalization_epsilon >= 0)) {
    throw InvalidArgumentError(absl::StrCat(
        "PowerSgdHook: rank ", options.rank, ", min_compression_rate ",
        options.min_compression_rate, ", orthogonalization_epsilon ",
        options.orthogonalization_epsilon, "; give a rank >= 1, a rate > 0 and an epsilon >= 0"));
  }
  if (options.start_step < (keeps_state ? 2 : 0)) {
    throw InvalidArgumentError(
        absl::StrCat("PowerSgdHook: start_step ", options.start_step, "; at least ",
                     keeps_state ? 2 : 0, keeps_state ? " with error_feedback or warm_start" : ""));
  }
}

void PowerSgdHook::OnNewBuckets(const std::vector<GradientBucket*>& buckets) {
  messages_.assign(buckets.size(), Message());
  compressed_.clear();
  for (const GradientBucket* bucket : buckets) {
    for (size_t i = 0; i < bucket->gradients().size(); ++i) {
      const Tensor& gradient = bucket->gradients()[i];
      if (!IsCompressed(gradient)) continue;
      compressed_[bucket->names()[i]] = {AsMatrix(gradient).shape(), gradient.dtype(),
                                         gradient.device()};
    }
  }
}

int64_t PowerSgdHook::FactorRank(const Shape& matrix) const {
  return std::min({options_.rank, matrix[0], matrix[1]});
}

bool PowerSgdHook::IsCompressed(const Tensor& gradient) const {
  if (gradient.rank() < 2 || gradient.numel() == 0) return false;
  if (gradient.dtype() != DType::kFloat32 && gradient.dtype() != DType::kFloat64) return false;
  const double rows = static_cast<double>(gradient.size(0));
  const double columns = static_cast<double>(gradient.numel()) / rows;
  const double rank = std::min({static_cast<double>(options_.rank), rows, columns});
  return (rows + columns) * rank * options_.min_compression_rate < rows * columns;
}

Tensor PowerSgdHook::StartingQ(const std::string& name, const Tensor& matrix) const {
  const auto last = qs_.find(name);
  if (options_.warm_start && last != qs_.end()) return last->second;
  const int64_t columns = matrix.size(1);
  const int64_t k = FactorRank(matrix.shape());
  // By the parameter's name and the step: the same whatever the buckets are.
  Generator generator({options_.seed + Hash64(name), kDataStream, static_cast<uint64_t>(step_)});
  return RandomNormal(
      {columns, k}, 0, 1,
      {.generator = &generator, .tensor = {.dtype = matrix.dtype(), .device = matrix.device()}});
}

PowerSgdHook::Message PowerSgdHook::MakeMessage(const GradientBucket& bucket) {
  Message message;
  int64_t first = 0, second = 0;
  for (size_t i = 0; i < bucket.gradients().size(); ++i) {
    const Tensor& gradient = bucket.gradients()[i];
    if (!IsCompressed(gradient)) {
      message.whole.push_back(gradient);
      first += gradient.numel();
      continue;
    }
    Factors factors{.matrix = AsMatrix(gradient), .p = {}, .q = {}, .name = bucket.names()[i]};
    const int64_t k = FactorRank(factors.matrix.shape());
    first += factors.matrix.size(0) * k;
    second += factors.matrix.size(1) * k;
    message.factors.push_back(std::move(factors));
  }
  const TensorOptions kind = {bucket.buffer().dtype(), bucket.buffer().device()};
  message.first = Empty({first}, kind);
  message.second = Empty({second}, kind);
  Cutter first_parts(message.first), second_parts(message.second);
  for (const Tensor& whole : message.whole) {
    message.whole_in_sent.push_back(View(first_parts.Next(1, whole.numel()), whole.shape()));
  }
  for (Factors& factors : message.factors) {
    const int64_t rows = factors.matrix.size(0), columns = factors.matrix.size(1);
    const int64_t k = FactorRank(factors.matrix.shape());
    factors.p = first_parts.Next(rows, k);
    factors.q = second_parts.Next(columns, k);
  }
  return message;
}

comm::Work PowerSgdHook::Reduce(GradientBucket& bucket, comm::Communicator& group) {
  if (step_ < options_.start_step) return group.AllReduce(bucket.buffer(), kAverage);
  Message& message = messages_[static_cast<size_t>(bucket.index())];
  if (!message.first.defined()) message = MakeMessage(bucket);
  for (size_t i = 0; i < message.whole.size(); ++i) {
    CopyInto(message.whole_in_sent[i], message.whole[i]);
  }
  for (const Factors& factors : message.factors) {
    const auto error = errors_.find(factors.name);
    if (error != errors_.end()) AddInPlace(factors.matrix, error->second);
    CopyInto(factors.p, MatMul(factors.matrix, StartingQ(factors.name, factors.matrix)));
  }
  return group.AllReduce(message.first, kAverage);
}

void PowerSgdHook::Finish(const std::vector<GradientBucket*>& buckets, comm::Communicator& group) {
  if (step_++ < options_.start_step) return;
  std::vector<comm::Work> works;
  for (size_t b = 0; b < buckets.size(); ++b) {
    for (const Factors& factors : messages_[b].factors) {
      Orthogonalize(factors.p, options_.orthogonalization_epsilon);
      CopyInto(factors.q, MatMul(factors.matrix, factors.p, {.transpose_a = true}));
    }
    works.push_back(messages_[b].factors.empty() ? comm::Work()
                                                 : group.AllReduce(messages_[b].second, kAverage));
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    works[b].Wait();
    const Message& message = messages_[b];
    for (size_t i = 0; i < message.whole.size(); ++i) {
      CopyInto(message.whole[i], message.whole_in_sent[i]);
    }
    for (const Factors& factors : message.factors) {
      const Tensor product = MatMul(factors.p, factors.q, {.transpose_b = true});
      if (options_.error_feedback) errors_[factors.name] = factors.matrix - product;
      if (options_.warm_start) qs_[factors.name] = Clone(factors.q);
      CopyInto(factors.matrix, product);
    }
  }
}

StrategyState PowerSgdHook::SaveState() const {
  StrategyState state;
  state.shared.Insert(kStep, FromVector<int64_t>({step_}, {1}, {.device = Cpu()}));
  for (const auto& [name, q] : qs_) state.shared.Insert(absl::StrCat(kQ, name), q);
  for (const auto& [name, error] : errors_) state.own.Insert(absl::StrCat(kError, name), error);
  return state;
}

void PowerSgdHook::LoadState(const StrategyState& state) {
  if (state.empty()) return;
  int64_t step = 0;
  std::map<std::string, Tensor> qs, errors;
  const auto refuse = [](const std::string& name, const Tensor& tensor, absl::string_view why) {
    throw InvalidArgumentError(absl::StrCat("PowerSgdHook: the state has ", name, " ",
                                            ToString(tensor.shape()), ", and ", why));
  };
  const auto load = [&](const std::string& full_name, const Tensor& tensor) {
    absl::string_view name = full_name;
    const bool is_q = absl::ConsumePrefix(&name, kQ);
    if (!is_q && !absl::ConsumePrefix(&name, kError)) refuse(full_name, tensor, "it has no such");
    const auto found = compressed_.find(std::string(name));
    if (found == compressed_.end()) refuse(full_name, tensor, "no such gradient is compressed");
    const auto& [matrix, dtype, device] = found->second;
    const Shape wanted = is_q ? Shape({matrix[1], FactorRank(matrix)}) : matrix;
    if (tensor.shape() != wanted || tensor.dtype() != dtype) {
      refuse(full_name, tensor,
             absl::StrCat("rank ", options_.rank, " wants ", ToString(wanted), " of ",
                          DTypeName(dtype)));
    }
    (is_q ? qs : errors)[std::string(name)] = To(Clone(tensor), device);
  };
  for (const auto& [name, tensor] : state.shared) {
    if (name == kStep) {
      step = tensor.Item<int64_t>();
    } else {
      load(name, tensor);
    }
  }
  for (const auto& [name, tensor] : state.own) load(name, tensor);
  step_ = step;
  qs_ = std::move(qs);
  errors_ = std::move(errors);
}

Tensor PowerSgdHook::ErrorOf(absl::string_view parameter) const {
  const auto error = errors_.find(std::string(parameter));
  return error == errors_.end() ? Tensor() : error->second;
}

}  // namespace lockstep::strategies
