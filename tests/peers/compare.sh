#!/bin/bash
# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# The GPT training step of Lockstep beside PyTorch's, on this machine: both are run in turn, several
# times, and the ratios of the medians are printed. Nothing else should be running. With several
# ranks, our own single process with as many threads takes its turn too.
#
#   tests/peers/compare.sh                                # nano, mini and small; 3 rounds
#   tests/peers/compare.sh --amp                          # both under autocast in bfloat16
#   tests/peers/compare.sh --ranks=2 --strategy=ddp       # both data-parallel, processors / ranks threads each
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
ranks=1
strategy=single
steps=15
view=()
our_flags=()
torch_flags=()
for argument in "$@"; do
  case $argument in
    --sizes=*) sizes=${argument#*=} ;;
    --rounds=*) rounds=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} ;;
    --threads=*) threads=${argument#*=} ;;
    --ranks=*) ranks=${argument#*=} ;;
    --strategy=*) strategy=${argument#*=} ;;
    --steps=*) steps=${argument#*=} ;;
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
if ((ranks > 1)) && [[ $strategy == single ]]; then
  echo "compare.sh: --ranks=$ranks needs a --strategy" >&2
  exit 1
fi

[[ $strategy == ddp ]] && view=(--gradient_as_bucket_view)

# Variables that choose kernels or thread counts behind the programs' backs.
unset OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS MKL_NUM_THREADS MKL_ENABLE_INSTRUCTIONS DNNL_MAX_CPU_ISA \
  ONEDNN_MAX_CPU_ISA OMP_NUM_THREADS

peers=${LOCKSTEP_PEERS:-$HOME/.cache/lockstep-peers}
if [[ ! -x $peers/bin/python ]] || ! "$peers/bin/python" -c 'import torch' 2>/dev/null; then
  echo "Installing PyTorch into $peers" >&2
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet torch numpy >&2
fi
./bazelw build --noshow_progress //models:gpt2_benchmark //examples:gpt2_parallel_benchmark >&2
lockstep=bazel-bin/models/gpt2_benchmark
parallel=bazel-bin/examples/gpt2_parallel_benchmark

preload=
for library in /usr/lib/*/libtcmalloc_minimal.so.4; do
  [[ -e $library ]] && preload=$library
done

# field <name> <line>: the number of name=number.
field() { sed -n "s/.*\b$1=\([0-9.]*\).*/\1/p" <<<"$2"; }
median() { sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

# take_turn <sums> <program>...: runs it, and adds what it says to step_ms_<sums> and processor_ms_<sums>.
take_turn() {
  local -n steps_of=step_ms_$1 processors_of=processor_ms_$1
  shift
  local line
  line=$("$@" | grep step_ms)
  echo "  $line" >&2
  steps_of+=("$(field step_ms "$line")")
  processors_of+=("$(field processor_ms "$line")")
}

# Both under a strategy, each with gradients as views of its buckets, and our own one process: times of a
# step, and of processors in it. The latter are the steadier where the machine has other work.
compare_ranks() {
  local size round what a b c
  printf '%-6s %-13s %12s %12s %9s %12s %9s\n' size of lockstep pytorch speedup one_process of_one
  for size in ${sizes//,/ }; do
    step_ms_ours=() step_ms_theirs=() step_ms_one=()
    processor_ms_ours=() processor_ms_theirs=() processor_ms_one=()
    for ((round = 0; round < rounds; ++round)); do
      take_turn ours "$parallel" --size="$size" --strategy="$strategy" --ranks="$ranks" --threads="$threads" \
        --steps="$steps" "${view[@]}" "${our_flags[@]}"
      take_turn theirs env LD_PRELOAD="$preload" "$peers/bin/python" tests/peers/torch_gpt.py --size "$size" \
        --strategy "$strategy" --ranks "$ranks" --threads "$threads" --steps "$steps" --fused \
        --bucket_view "${torch_flags[@]}"
      take_turn one "$parallel" --size="$size" --strategy=single --threads="$threads" --steps="$steps" \
        "${our_flags[@]}"
    done
    for what in step_ms processor_ms; do
      local -n ours=${what}_ours theirs=${what}_theirs one=${what}_one
      a=$(printf '%s\n' "${ours[@]}" | median)
      b=$(printf '%s\n' "${theirs[@]}" | median)
      c=$(printf '%s\n' "${one[@]}" | median)
      awk -v s="$size" -v w="$what" -v a="$a" -v b="$b" -v c="$c" \
        'BEGIN {printf "%-6s %-13s %12.2f %12.2f %9.2f %12.2f %9.2f\n", s, w, a, b, b / a, c, c / a}'
    done
  done
}
if ((ranks > 1)); then
  compare_ranks
  exit 0
fi

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
