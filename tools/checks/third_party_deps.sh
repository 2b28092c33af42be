#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# For every target: the third-party headers that its files include are those of its deps, no fewer (it
# would build only because another dependency links the library) and no more. Also: no target exports an
# include path but "lockstep/<package>".
#
# Reads what Bazel knows of the targets (`query --output=build`, one attribute a line, labels in full).
# BAZEL names another command than ./bazelw.

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
read -ra bazel <<<"${BAZEL:-./bazelw}"

# shellcheck disable=SC2016  # $ is awk's.
"${bazel[@]}" query --output=build --noshow_progress --ui_event_filters=-info \
  'kind("cc_(library|binary|test) rule", //...) - //third_party/...' |
  awk '
function labels(text, into,    n, parts, i) {
  delete into
  n = split(text, parts, "\"")
  for (i = 2; i <= n; i += 2) if (parts[i] ~ /^\/\//) into[parts[i]] = 1
}
function complain(text) { print target ": " text; bad = 1 }
# The target whose prefix in includes.txt is the longest of those that begin the include.
function owner(include,    prefix, best) {
  best = ""
  for (prefix in owners)
    if (index(include, prefix) == 1 && length(prefix) > length(best)) best = prefix
  return best == "" ? "" : owners[best]
}
function check(    file, path, line, include, label, wanted, shown) {
  delete wanted
  for (file in files) {
    path = substr(file, 3); sub(/:/, "/", path); sub(/^\//, "", path)
    if (path !~ /\.(h|cc|inc|hpp)$/) continue
    while ((getline line < path) > 0) {
      if (line !~ /^[ \t]*#[ \t]*include[ \t]*["<]/) continue
      include = line
      sub(/^[^"<]*["<]/, "", include); sub(/[">].*$/, "", include)
      label = owner(include)
      if (label == "") {
        # The C and C++ libraries, Linux, our own headers; anything else needs a line in includes.txt.
        if (include ~ /^(absl|llvm|openssl|cuda|nccl|mpi)/) complain(path " includes " include ", which third_party/includes.txt does not know")
        continue
      }
      if (!(label in wanted)) shown[label] = path " includes " include
      wanted[label] = 1
    }
    close(path)
  }
  for (label in wanted)
    if (!(label in deps)) complain(shown[label] " but deps lack " label)
  for (label in deps)
    if (label ~ /^\/\/third_party\// && !(label in wanted) && !(label in automatic))
      complain("no file includes a header of its dep " label)
}
BEGIN {
  while ((getline line < "third_party/includes.txt") > 0)
    if (line !~ /^#/ && split(line, pair, " ") == 2) owners[pair[1]] = pair[2]
  # Added by the rules of tools/bazel/defs.bzl, or link-only.
  split("//third_party/openmp:openmp //third_party/gtest:gtest //third_party/gtest:gtest_main " \
        "//third_party/gtest:gmock //third_party/benchmark:benchmark //third_party/benchmark:benchmark_main", list, " ")
  for (i in list) automatic[list[i]] = 1
}
/^# \/.*BUILD:[0-9]+:[0-9]+$/ { package = $2 }
/^cc_(library|binary|test)\(/ { kind = $0; delete files; delete deps; prefix = ""; has_headers = 0 }
/^  name = / { split($0, part, "\""); target = part[2] }
/^  generator_location = / { split($0, part, "\""); sub(/\/?BUILD:.*/, "", part[2]); target = "//" part[2] ":" target }
/^  deps = / { labels($0, deps) }
/^  (srcs|hdrs|textual_hdrs) = / {
  labels($0, more); for (file in more) files[file] = 1
  if ($0 ~ /^  hdrs = \["/) has_headers = 1
}
/^  include_prefix = / { split($0, part, "\""); prefix = part[2] }
/^  (includes|strip_include_prefix) = \[?"/ { complain("exports an include path: " $0) }
/^\)/ {
  if (has_headers && prefix !~ /^lockstep\//) complain("its headers lack the prefix lockstep/<package>; use lockstep_library")
  check(); seen++
}
END {
  if (!seen) { print "bazel query listed no target"; bad = 1 }
  exit bad
}'
