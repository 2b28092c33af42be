#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the workspace beside this file, which depends on Lockstep as any other repository would.

set -uo pipefail

# The source tree: runfiles are links into it.
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
cd "$here/workspace" || exit 1

# Beside the outer Bazel's own output, so that it is found again by the next run and goes with `clean
# --expunge`. Runfiles live in <output base>/execroot/...
output_base=${RUNFILES_DIR:-$0}
output_base=${output_base%%/execroot/*}
output_base=${output_base%%/sandbox/*}
if [[ $output_base != /* || ! -d $output_base ]]; then
  echo "cannot tell the output base from '${RUNFILES_DIR:-$0}'"
  exit 1
fi
inner=$output_base/external_consumer
mkdir -p "$inner"

export USER=${USER:-lockstep}
bazel() {
  local command=$1
  shift
  /usr/bin/bazel --output_user_root="$inner/user" --output_base="$inner/base" \
    --host_jvm_args=-Xmx600m --max_idle_secs=30 \
    "$command" --experimental_convenience_symlinks=ignore --noshow_progress --color=no "$@"
}
# The inner server must not outlive the test: it would keep its memory.
trap '/usr/bin/bazel --output_user_root="$inner/user" --output_base="$inner/base" \
  --host_jvm_args=-Xmx600m --max_idle_secs=30 shutdown' EXIT

failures=0
expect() { # expect <what> <file> <extended regular expression>
  if ! grep -qE -- "$3" "$2"; then
    echo "FAILED: $1: no line matches '$3' in:"
    tail -50 "$2"
    failures=$((failures + 1))
  fi
}
refuse() { # refuse <what> <file> <extended regular expression>
  if grep -qE -- "$3" "$2"; then
    echo "FAILED: $1: found"
    grep -E -- "$3" "$2" | head -5 | cut -c1-2000
    failures=$((failures + 1))
  fi
}

log=$TEST_TMPDIR/log

# A plain build and run: each header of the right name, each part works.
if ! bazel run //:consumer >"$log" 2>&1; then
  echo "FAILED: bazel run //:consumer"
  tail -50 "$log"
  exit 1
fi
for name in config types logging utils; do
  expect "the fake library's header" "$log" "^fake's $name\.h\$"
done
expect "the consumer's own header" "$log" "^consumer's tensor/tensor\.h\$"
expect "ParallelFor" "$log" '^lockstep sum 5050$'
expect "shape rules" "$log" '^lockstep shape 15$'
expect "a layer of dispatch" "$log" '^lockstep autocast bfloat16$'
expect "a missing backend is named" "$log" '^lockstep error .*//tensor/cpu'

# The same as a test, which Bazel links dynamically where it can.
if ! bazel test //:consumer_test --test_output=errors >"$log" 2>&1; then
  echo "FAILED: bazel test //:consumer_test"
  tail -50 "$log"
  failures=$((failures + 1))
fi

# The flags that a consumer does not inherit from our .bazelrc.
bazel aquery 'mnemonic("CppCompile", @lockstep//base:parallel)' >"$log" 2>&1
expect "optimised in the default mode" "$log" '^ *-O2'
expect "C++20" "$log" "^ *'?-std=c\+\+20"
expect "OpenMP" "$log" '^ *-fopenmp'
refuse "warnings are no errors at a consumer's" "$log" '-Werror'

# Nobody's include path is a repository root: -I or -isystem of it would put our folders in the way.
# (-iquote of a repository's own root is Bazel's.)
bazel aquery 'mnemonic("CppCompile", deps(//:consumer))' --output=text >"$log" 2>&1
expect "the list of actions" "$log" 'CppCompile'
refuse "an include path at the repository root" "$log" \
  "'?-(I|isystem)'? *'?(\.|external/lockstep|bazel-out/[^/]*/bin(/external/lockstep)?)/?'?( |\$|\\\\)"

# An older language standard is refused with the line to add.
if bazel build //:older_standard >"$log" 2>&1; then
  echo "FAILED: it builds as C++11"
  failures=$((failures + 1))
fi
expect "what to add" "$log" 'build --cxxopt=-std=c\+\+20'

((failures == 0)) && echo "PASSED"
exit $((failures > 0))
