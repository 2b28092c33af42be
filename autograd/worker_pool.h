// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// Threads for backwards over several devices. Internal.
#ifndef LOCKSTEP_AUTOGRAD_WORKER_POOL_H_
#define LOCKSTEP_AUTOGRAD_WORKER_POOL_H_

#include <functional>

namespace lockstep::autograd::internal {

// Runs `work` on an idle thread of the pool, or on a new one: never waits for one to become idle,
// so backwards inside of backwards cannot wait for each other. Threads stay for later use, with
// their own pools of intra-op threads. `work` must not throw; it sets the thread's state itself.
void RunOnWorker(std::function<void()> work);

}  // namespace lockstep::autograd::internal

#endif  // LOCKSTEP_AUTOGRAD_WORKER_POOL_H_
