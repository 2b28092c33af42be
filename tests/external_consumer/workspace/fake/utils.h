// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#ifndef UTILS_H_
#define UTILS_H_

#define FAKE_UTILS "fake's utils.h"

#endif  // UTILS_H_
