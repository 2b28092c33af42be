// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0

// Prints the table of docs/ops.md: `bazel run //docs:print_ops_table`.

#include <iostream>

#include "lockstep/docs/ops_table.h"

int main() { std::cout << lockstep::docs::OpsTable(); }
