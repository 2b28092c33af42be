#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# File budgets: a header has about 250 lines, a source file about 600, and nothing written by hand
# more than 1000. "About" is a fifth: beyond that the file holds two concepts, and this check fails.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

status=0
while IFS= read -r -d '' file; do
  [[ -f $file ]] || continue
  case $file in
    LICENSE | */testdata/* | *.svg) continue ;;
    *_test.cc | *_benchmark.cc) budget=1000 ;;
    *.h) budget=300 ;;
    *.cc) budget=720 ;;
    *) budget=1000 ;;
  esac
  lines=$(wc -l <"$file")
  if ((lines > budget)); then
    echo "$file: $lines lines, at most $budget"
    status=1
  fi
done < <(git ls-files -z -- '*.h' '*.cc' '*.inc' '*.sh' '*.bzl' '*BUILD' '*.md' '*.proto' 'bazelw' '.ci/run')
exit $status
