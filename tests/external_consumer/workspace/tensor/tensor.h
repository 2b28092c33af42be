// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The consumer's own folder of the same name as one of Lockstep's.
#ifndef CONSUMER_TENSOR_TENSOR_H_
#define CONSUMER_TENSOR_TENSOR_H_

inline const char* ConsumerTensor() { return "consumer's tensor/tensor.h"; }

#endif  // CONSUMER_TENSOR_TENSOR_H_
