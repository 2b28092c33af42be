// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/shm_communicator.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lockstep::comm::shm {

ShmCommunicator::ShmCommunicator(const ProcessGroupOptions& options, GroupParts parts)
    : QueuedCommunicator(options, parts.key),
      parts_(std::move(parts)),
      algorithms_(parts_.member.get(), parts_.memory.get()),
      transfers_(
          std::make_unique<Transfers>(parts_.member.get(), parts_.memory.get(), parts_.may_spin)) {
  parts_.member->set_waits(&collective_waits());
  transfers_->set_waits(&transfer_waits());
  StartQueue();
}

ShmCommunicator::~ShmCommunicator() {
  parts_.member->Stop();
  parts_.member->Leave();
  StopQueue();
  transfers_.reset();
}

RefPtr<Storage> ShmCommunicator::Allocate(int64_t bytes, MemoryCategory category) {
  CheckAllocation(bytes);
  return parts_.memory->Allocate(bytes, category);
}

std::shared_ptr<Communicator> ShmCommunicator::MakeSubgroup(const std::string& name,
                                                            const std::vector<int>& ranks) {
  return MakeShmCommunicator(SubgroupOptions(name, ranks), SubgroupKey(name));
}

void ShmCommunicator::Abort(absl::string_view reason) {
  parts_.member->Fail(absl::StatusCode::kAborted,
                      absl::StrCat("aborted by rank ", rank(), ": ", reason));
}

Traffic ShmCommunicator::traffic() const {
  return {parts_.member->steps() + transfers_->fragments_sent(),
          algorithms_.bytes_received() + transfers_->bytes_received(), algorithms_.bytes_sent()};
}

void ShmCommunicator::RunCollective(const Collective& collective, int64_t sequence) {
  algorithms_.Run(collective, sequence);
}

bool ShmCommunicator::BeginCollective(const Collective& collective, int64_t sequence) {
  return algorithms_.Begin(collective, sequence);
}

void ShmCommunicator::StartTransfer(const Signature& signature, const Tensor& tensor,
                                    absl::Duration timeout, TransferDone done) {
  transfers_->Start(signature, tensor, timeout, std::move(done));
}

void ShmCommunicator::AttendTransfers(absl::FunctionRef<bool()> complete) {
  transfers_->Attend(complete);
}

void ShmCommunicator::ThrowIfFailed() const {
  if (parts_.member->Failed()) parts_.member->ThrowFailure();
}

void ShmCommunicator::Fail(absl::StatusCode code, absl::string_view text) {
  parts_.member->Fail(code, text);
}

}  // namespace lockstep::comm::shm
