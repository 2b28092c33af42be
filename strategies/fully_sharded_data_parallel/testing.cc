// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#include "lockstep/strategies/fully_sharded_data_parallel/testing.h"

#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/autograd/requires_grad.h"
#include "lockstep/comm/flight_record.h"
#include "lockstep/comm/signature.h"
#include "lockstep/strategies/distributed_data_parallel/testing.h"
#include "lockstep/tensor/ops.h"
#include "lockstep/tensor/random.h"

namespace lockstep::strategies::testing_util {
namespace {

std::vector<std::string> Calls(const comm::Communicator& group, int64_t first, bool sized) {
  std::vector<std::string> calls;
  for (const comm::FlightCall& call : group.flight_record().calls) {
    if (call.is_transfer() || call.number < first) continue;
    std::string text(comm::CollectiveName(call.signature.op));
    if (call.signature.tag != 0) absl::StrAppend(&text, " ", call.signature.tag);
    if (sized) absl::StrAppend(&text, " x ", call.signature.count);
    calls.push_back(std::move(text));
  }
  return calls;
}

}  // namespace

void OnRanks(int ranks, const std::function<void(int, std::shared_ptr<comm::Communicator>)>& body) {
  const std::vector<Outcome> outcomes = RunRanks(ranks, [&](int rank, auto world) {
    body(rank, std::move(world));
    return std::vector<double>();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.code, absl::StatusCode::kOk) << outcome.message;
  }
}

std::shared_ptr<models::Mlp> MakeMlp(int rank) {
  ManualSeed(static_cast<uint64_t>(100 + rank));
  return std::make_shared<models::Mlp>(
      models::MlpConfig{.sizes = {3, 7, 5, 2}, .activation = models::MlpActivation::kTanh});
}

Tensor LossOf(models::Mlp& model, int rank, int ranks, int64_t step) {
  const int64_t share = 12 / ranks;
  const NamedTensors batch = Rows(step * 12 + rank * share, share);
  return MseLoss(model(batch.At("inputs")), batch.At("targets"));
}

std::vector<double> FullParameters(FullyShardedDataParallel& fsdp, const nn::Module& module) {
  const NamedTensors state = fsdp.FullStateDict(/*rank0_only=*/false);
  std::vector<double> values;
  for (const auto& [name, parameter] : module.NamedParameters()) {
    for (const double value : state.At(name).ToVector<double>()) values.push_back(value);
  }
  return values;
}

std::vector<double> FullGradients(FullyShardedDataParallel& fsdp, const nn::Module& module) {
  std::map<std::string, Tensor> pieces;
  for (const auto& piece : fsdp.Pieces()) pieces[piece.name] = autograd::Grad(piece.tensor);
  std::map<std::string, std::vector<double>> whole;
  fsdp.VisitFull([&](const std::string& name) { return pieces.at(name); },
                 [&](const std::string& name, const Tensor& gradient) {
                   whole[name] = gradient.ToVector<double>();
                 });
  std::vector<double> values;
  for (const auto& [name, parameter] : module.NamedParameters()) {
    std::vector<double> gradient = {-1};
    if (whole.count(name) > 0) {
      gradient = whole[name];
    } else if (pieces.count(name) == 0 && autograd::Grad(parameter).defined()) {
      gradient = autograd::Grad(parameter).ToVector<double>();
    }
    values.insert(values.end(), gradient.begin(), gradient.end());
  }
  return values;
}

std::vector<double> Gradients(const nn::Module& module) {
  std::vector<double> values;
  for (const Tensor& parameter : module.Parameters()) {
    const Tensor gradient = autograd::Grad(parameter);
    if (!gradient.defined()) values.push_back(-1);
    if (!gradient.defined()) continue;
    for (const double value : gradient.ToVector<double>()) values.push_back(value);
  }
  return values;
}

std::vector<std::string> CallsSince(const comm::Communicator& group, int64_t first) {
  return Calls(group, first, false);
}
std::vector<std::string> SizedCallsSince(const comm::Communicator& group, int64_t first) {
  return Calls(group, first, true);
}

}  // namespace lockstep::strategies::testing_util
