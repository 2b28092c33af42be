// Copyright 2026 The Lockstep Authors
// SPDX-License-Identifier: Apache-2.0
//
// The code blocks of the documentation, compared with the tests that compile and run them.
#ifndef LOCKSTEP_DOCS_SNIPPETS_H_
#define LOCKSTEP_DOCS_SNIPPETS_H_

#include <string>

namespace lockstep::docs {

// Fails the current test for each ```cpp block of the page `markdown` that does not occur as it is
// in the source file `source` (white space aside), and when there is no block at all. Paths are
// relative to the root of the tree.
void ExpectSnippetsCompiled(const std::string& markdown, const std::string& source);

}  // namespace lockstep::docs

#endif  // LOCKSTEP_DOCS_SNIPPETS_H_
