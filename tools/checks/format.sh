#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# Every C++ file is formatted as .clang-format says. `tools/checks/format.sh --fix` formats instead.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

mapfile -d '' -t files < <(git ls-files -z -- '*.h' '*.cc')
((${#files[@]})) || exit 0
if [[ ${1-} == --fix ]]; then
  exec clang-format -i "${files[@]}"
fi
# The names are enough: the remedy is the same for each line.
bad=$(clang-format --dry-run "${files[@]}" 2>&1 | sed -n 's/^\([^:]*\):[0-9]*:[0-9]*: .*-Wclang-format.*/\1/p' |
  sort -u)
[[ -z $bad ]] && exit 0
echo "Not formatted (tools/checks/format.sh --fix formats them):"
sed 's/^/  /' <<<"$bad"
exit 1
