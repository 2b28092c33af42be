// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The table of docs/ops.md, made from the op table.
#ifndef LOCKSTEP_DOCS_OPS_TABLE_H_
#define LOCKSTEP_DOCS_OPS_TABLE_H_

#include <string>

namespace lockstep::docs {

// Markdown: a heading and a table for each run of rows of one kind, in the order of op_list.inc.
std::string OpsTable();

}  // namespace lockstep::docs

#endif  // LOCKSTEP_DOCS_OPS_TABLE_H_
