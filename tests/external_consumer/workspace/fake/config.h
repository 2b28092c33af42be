// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
#ifndef CONFIG_H_
#define CONFIG_H_

#define FAKE_CONFIG "fake's config.h"

#endif  // CONFIG_H_
