#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# Rules of docs/architecture.md that a search of the text decides. Comments do not count.

set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
status=0

# strip_comments <file>: the file with // comments and string literals (but not the names of included
# files) removed, line numbers kept.
strip_comments() {
  sed -e '/^[[:space:]]*#[[:space:]]*include/!s/"\([^"\\]\|\\.\)*"/""/g' -e 's#//.*##' "$1"
}

# forbid <reason> <pattern> <allowed path glob> <pathspec>...
forbid() {
  local reason=$1 pattern=$2 allowed=$3 file hits
  shift 3
  while IFS= read -r -d '' file; do
    # shellcheck disable=SC2053  # The right side is a pattern on purpose.
    [[ ! -f $file || $file == $allowed ]] && continue
    grep -qE "$pattern" "$file" || continue
    hits=$(strip_comments "$file" | grep -nE "$pattern") || continue
    echo "$reason"
    sed "s#^#  $file:#" <<<"$hits"
    status=1
  done < <(git ls-files -z -- "$@")
}

cpp=('*.h' '*.cc' '*.inc')
forbid "thread_local outside tensor/thread_state.*: put the field into ThreadState, which is captured and restored where work changes threads." \
  '\bthread_local\b' 'tensor/thread_state.*' "${cpp[@]}"
forbid "#pragma omp outside base/parallel.cc: use ParallelFor." \
  '^[[:space:]]*#[[:space:]]*pragma[[:space:]]+omp\b|\bomp\.h\b' 'base/parallel.cc' "${cpp[@]}"
forbid "hwy/contrib/math outside tensor/cpu/vector_math.h, which corrects its special cases." \
  '#[[:space:]]*include.*hwy/contrib/math' 'tensor/cpu/vector_math*' "${cpp[@]}"
forbid "absl/synchronization: a thread sanitizer does not see what it orders (third_party/absl/BUILD); use std::mutex." \
  '#[[:space:]]*include.*absl/synchronization' '' "${cpp[@]}"
forbid "std::format does not exist with g++ 12: use absl::StrFormat." \
  '\bstd::v?format\b|#[[:space:]]*include[[:space:]]*<format>' '' "${cpp[@]}"

# Marks of unfinished work are in comments, which the searches above leave out.
while IFS= read -r -d '' file; do
  if [[ -f $file ]] && grep -nHE '(//|#).*\b(TODO|FIXME)\b' "$file"; then
    echo "Unfinished work is an issue, not a comment: $file"
    status=1
  fi
done < <(git ls-files -z -- "${cpp[@]}" '*.bzl' '*BUILD' '*.proto')

# Every file says whose it is. One language's comment or the other's; data and prose have none.
while IFS= read -r -d '' file; do
  if [[ -s $file ]] && ! head -3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0'; then
    echo "$file: no licence line (SPDX-License-Identifier: Apache-2.0) at the top"
    status=1
  fi
done < <(git ls-files -z -- "${cpp[@]}" '*.sh' '*.bzl' '*BUILD' '*.proto' '*.py' WORKSPACE bazelw .ci/run)

# A .cc file includes its own header first: that is the proof that the header compiles alone.
while IFS= read -r -d '' file; do
  header=${file%.cc}.h
  [[ -f $header && -f $file ]] || continue
  first=$(grep -m1 '^[[:space:]]*#[[:space:]]*include' "$file")
  if [[ $first != *"\"lockstep/$header\""* ]]; then
    # Highway's foreach_target needs two lines before; the header is then compiled by its test.
    grep -q 'HWY_TARGET_INCLUDE' "$file" && continue
    echo "$file: the first include must be \"lockstep/$header\""
    status=1
  fi
done < <(git ls-files -z -- '*.cc')

# Include guards follow the path.
while IFS= read -r -d '' file; do
  [[ -f $file ]] || continue
  guard=LOCKSTEP_$(tr 'a-z/.-' 'A-Z___' <<<"$file")_
  case $file in *-inl.h) continue ;; esac # Toggled per target by Highway.
  if ! grep -q "^#ifndef $guard\$" "$file"; then
    echo "$file: no include guard $guard"
    status=1
  fi
done < <(git ls-files -z -- '*.h' ':!tests/external_consumer')
exit $status
