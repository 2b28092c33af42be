// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#ifndef LOGGING_H_
#define LOGGING_H_

#define FAKE_LOGGING "fake's logging.h"

#endif  // LOGGING_H_
