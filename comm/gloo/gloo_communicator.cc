// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/gloo/gloo_communicator.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/agreement.h"
#include "lockstep/comm/gloo/flat.h"
#include "lockstep/tensor/memory.h"

namespace lockstep::comm::gloo {
namespace {

// The first of the two of a collective. Those of transfers have the highest bit.
uint64_t SlotOf(int64_t sequence) { return 2 * static_cast<uint64_t>(sequence); }

}  // namespace

GlooCommunicator::GlooCommunicator(const ProcessGroupOptions& options, GroupParts parts)
    : QueuedCommunicator(options, parts.key), parts_(std::move(parts)) {
  parts_.control->set_waits(&collective_waits());
  parts_.transfers->set_waits(&transfer_waits());
  StartQueue();
}

GlooCommunicator::~GlooCommunicator() {
  parts_.control->Stop();
  StopQueue();
  parts_.transfers->Stop();
  parts_.control->Leave();
}

RefPtr<Storage> GlooCommunicator::Allocate(int64_t bytes, MemoryCategory category) {
  CheckAllocation(bytes);
  if (parts_.hierarchy != nullptr) return parts_.hierarchy->local().Allocate(bytes, category);
  CategoryScope scope(category);
  return Empty({bytes}, {DType::kUInt8, {}}).storage();
}

std::shared_ptr<Communicator> GlooCommunicator::MakeSubgroup(const std::string& name,
                                                             const std::vector<int>& ranks) {
  return MakeGlooCommunicator(SubgroupOptions(name, ranks), SubgroupKey(name));
}

void GlooCommunicator::Abort(absl::string_view reason) {
  parts_.control->Fail(absl::StatusCode::kAborted,
                       absl::StrCat("aborted by rank ", rank(), ": ", reason));
}

Traffic GlooCommunicator::traffic() const {
  const Exchange& exchange = *parts_.exchange;
  return {parts_.control->meetings() + exchange.pieces_sent(), exchange.bytes_received(),
          exchange.bytes_sent()};
}

void GlooCommunicator::RunCollective(const Collective& collective, int64_t sequence) {
  const RankCall call = {rank(), sequence, collective.signature, collective.counts};
  const Deadline deadline = Deadline::After(collective.timeout);
  const std::optional<FaultKind> fault = FaultAt(sequence);
  parts_.control->Meet(call, collective.timeout, fault);
  // The meeting was all: what fails later is of later calls.
  if (collective.signature.op == CollectiveId::kBarrier) return;
  if (fault == FaultKind::kCorruptPayload) CorruptNext(collective);
  const auto describe = [&](int peer, Pieces::Trouble trouble) {
    if (trouble == Pieces::Trouble::kDamaged) return DamagedText("data", peer, call);
    const int late[] = {peer};
    return MissingText(late, "finish", call, collective.timeout);
  };
  parts_.collectives->Begin(SlotOf(sequence), deadline, describe);
  if (parts_.hierarchy != nullptr) {
    parts_.hierarchy->Run(collective, deadline);
  } else {
    RunFlat(*parts_.collectives, collective);
  }
}

std::optional<FaultKind> GlooCommunicator::FaultAt(int64_t sequence) const {
  FaultInjector* const faults = options().fault_injector.get();
  // Of a group of one nothing travels.
  if (faults == nullptr || size() == 1) return std::nullopt;
  return faults->At({group_name(), rank(), /*peer=*/-1, sequence});
}

void GlooCommunicator::CorruptNext(const Collective& collective) {
  if (parts_.hierarchy == nullptr || parts_.hierarchy->SendsToHosts()) {
    parts_.exchange->CorruptNext();
  } else {
    parts_.next_fault->CorruptNext(parts_.hierarchy->MessagesAheadOfData(collective));
  }
}

void GlooCommunicator::StartTransfer(const Signature& signature, const Tensor& tensor,
                                     absl::Duration timeout, TransferDone done) {
  parts_.transfers->Start(signature, tensor, timeout, std::move(done));
}

void GlooCommunicator::ThrowIfFailed() const { parts_.control->ThrowIfFailed(); }

void GlooCommunicator::Fail(absl::StatusCode code, absl::string_view text) {
  parts_.control->Fail(code, text);
}

}  // namespace lockstep::comm::gloo
