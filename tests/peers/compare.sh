#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# The GPT training step of Lockstep beside PyTorch's, on this machine: both are run in turn, several
# times, and the ratios of the medians are printed. Nothing else should be running.
#
#   tests/peers/compare.sh                                # nano, mini and small; 3 rounds
#   tests/peers/compare.sh --amp                          # both under autocast in bfloat16
#   tests/peers/compare.sh --sizes=nano --rounds=7 --seconds=5 --threads=2 --torch=--compile
#
# PyTorch is installed from PyPI into a virtual environment outside of the source tree
# ($LOCKSTEP_PEERS, else ~/.cache/lockstep-peers) the first time. --torch=... is passed to
# torch_gpt.py beside --fused. With tcmalloc installed (Debian: libtcmalloc-minimal4), PyTorch runs
# under it, because that is its best.

set -euo pipefail
cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.."

sizes=nano,mini,small
rounds=3
seconds=12
threads=$(nproc)
our_flags=()
torch_flags=()
for argument in "$@"; do
  case $argument in
    --sizes=*) sizes=${argument#*=} ;;
    --rounds=*) rounds=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} ;;
    --threads=*) threads=${argument#*=} ;;
    --amp)
      our_flags+=(--amp=bf16)
      torch_flags+=(--amp)
      ;;
    --torch=*) read -ra more <<<"${argument#*=}" && torch_flags+=("${more[@]}") ;;
    *)
      echo "compare.sh: unknown argument '$argument'; see the top of this file" >&2
      exit 1
      ;;
  esac
done

# Variables that choose kernels or thread counts behind the programs' backs.
unset OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS MKL_NUM_THREADS MKL_ENABLE_INSTRUCTIONS DNNL_MAX_CPU_ISA \
  ONEDNN_MAX_CPU_ISA OMP_NUM_THREADS

peers=${LOCKSTEP_PEERS:-$HOME/.cache/lockstep-peers}
if [[ ! -x $peers/bin/python ]] || ! "$peers/bin/python" -c 'import torch' 2>/dev/null; then
  echo "Installing PyTorch into $peers" >&2
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet torch numpy >&2
fi
./bazelw build --noshow_progress //models:gpt2_benchmark >&2
lockstep=bazel-bin/models/gpt2_benchmark

preload=
for library in /usr/lib/*/libtcmalloc_minimal.so.4; do
  [[ -e $library ]] && preload=$library
done

# field <name> <line>: the number of name=number.
field() { sed -n "s/.*\b$1=\([0-9.]*\).*/\1/p" <<<"$2"; }
median() { sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

printf '%-6s %14s %14s %9s %14s %14s %9s\n' size lockstep_ms pytorch_ms speedup lockstep_mb pytorch_mb memory
for size in ${sizes//,/ }; do
  ours=() theirs=() our_mb=() their_mb=()
  for ((round = 0; round < rounds; ++round)); do
    line=$("$lockstep" --size="$size" --threads="$threads" --seconds="$seconds" \
      "${our_flags[@]}")
    echo "  $line" >&2
    ours+=("$(field step_ms "$line")")
    our_mb+=("$(awk "BEGIN {print $(field resident_bytes_above_start "$line") / 1e6}")")
    line=$(LD_PRELOAD=$preload "$peers/bin/python" tests/peers/torch_gpt.py --size "$size" --threads "$threads" \
      --seconds "$seconds" --fused "${torch_flags[@]}")
    echo "  $line" >&2
    theirs+=("$(field step_ms "$line")")
    their_mb+=("$(field rss_above_base_mb "$line")")
  done
  a=$(printf '%s\n' "${ours[@]}" | median)
  b=$(printf '%s\n' "${theirs[@]}" | median)
  c=$(printf '%s\n' "${our_mb[@]}" | median)
  d=$(printf '%s\n' "${their_mb[@]}" | median)
  awk -v s="$size" -v a="$a" -v b="$b" -v c="$c" -v d="$d" \
    'BEGIN {printf "%-6s %14.2f %14.2f %9.2f %14.0f %14.0f %9.2f\n", s, a, b, b / a, c, d, c / d}'
done
