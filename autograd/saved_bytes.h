// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Counts the storages that graphs hold, each once however many nodes hold it. Internal.
#ifndef LOCKSTEP_AUTOGRAD_SAVED_BYTES_H_
#define LOCKSTEP_AUTOGRAD_SAVED_BYTES_H_

#include "lockstep/tensor/storage.h"

namespace lockstep::autograd::internal {

// Thread-safe. Each Add is followed by one Remove before the storage goes.
void AddSavedStorage(const Storage& storage);
void RemoveSavedStorage(const Storage& storage);

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_SAVED_BYTES_H_
