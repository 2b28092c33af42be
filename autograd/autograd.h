// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// All of automatic differentiation for its users.
#ifndef LOCKSTEP_AUTOGRAD_AUTOGRAD_H_
#define LOCKSTEP_AUTOGRAD_AUTOGRAD_H_

#include "lockstep/autograd/backward.h"            // IWYU pragma: export
#include "lockstep/autograd/custom_function.h"     // IWYU pragma: export
#include "lockstep/autograd/grad_mode.h"           // IWYU pragma: export
#include "lockstep/autograd/hooks.h"               // IWYU pragma: export
#include "lockstep/autograd/requires_grad.h"       // IWYU pragma: export
#include "lockstep/autograd/saved_tensor_hooks.h"  // IWYU pragma: export
#include "lockstep/autograd/split_backward.h"      // IWYU pragma: export

#endif  // LOCKSTEP_AUTOGRAD_AUTOGRAD_H_
