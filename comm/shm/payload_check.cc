// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

#include "lockstep/comm/shm/payload_check.h"

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/shm/control_block.h"

namespace lockstep::comm::shm {

uint64_t& PayloadCheck::Sum(What what, int slot, int owner, int part) const {
  const int size = member_.size();
  uint64_t* sums = member_.control().sums(owner);
  switch (what) {
    case kInput:
      return sums[slot * size + part];
    case kStaged:
      return sums[(2 + slot) * size + part];
    case kResult:
      break;
  }
  return sums[4 * size + slot];
}

void PayloadCheck::Seal(What what, int slot, int part, const void* data, int64_t bytes) {
  if (!enabled()) return;
  Sum(what, slot, member_.rank(), part) = Hash64(data, static_cast<size_t>(bytes));
}

void PayloadCheck::Compare(What what, int slot, int owner, int part, const void* data,
                           int64_t bytes) {
  if (!enabled()) return;
  Require(Hash64(data, static_cast<size_t>(bytes)) == Sum(what, slot, owner, part), owner);
}

void PayloadCheck::StartPieces() {
  if (enabled()) pieces_.assign(static_cast<size_t>(member_.size()), Hasher64());
}

void PayloadCheck::AddPiece(int owner, const void* data, int64_t bytes) {
  if (!enabled()) return;
  pieces_[static_cast<size_t>(owner)].Update(data, static_cast<size_t>(bytes));
}

void PayloadCheck::ComparePieces(What what, int slot, int owner, int part) {
  if (!enabled()) return;
  Require(pieces_[static_cast<size_t>(owner)].Finish() == Sum(what, slot, owner, part), owner);
}

void PayloadCheck::Require(bool fits, int owner) {
  if (!fits) member_.FailDamaged(owner, "data");
}

}  // namespace lockstep::comm::shm
