#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# dependency_test.sh <file with one label a line> <forbidden package or label>...

set -u
labels=$1
shift
status=0
if ! grep -q '^//' "$labels"; then
  echo "the query found nothing"
  exit 1
fi
for forbidden in "$@"; do
  case $forbidden in
    *:*) hits=$(grep -xF -- "$forbidden" "$labels") ;;
    *) hits=$(grep -E -- "^$forbidden(:|/)" "$labels") ;;
  esac
  if [[ -n $hits ]]; then
    echo "depends on $forbidden, through"
    head -5 <<<"$hits"
    status=1
  fi
done
exit $status
