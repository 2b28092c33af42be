// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#ifndef TYPES_H_
#define TYPES_H_

#define FAKE_TYPES "fake's types.h"

#endif  // TYPES_H_
