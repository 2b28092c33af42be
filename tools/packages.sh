# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0
#
# The Debian packages that Lockstep uses, and a function that installs missing ones. Sourced by bazelw
# and .ci/run; a new library in third_party/ adds its package here.

# What every build needs.
BUILD_PACKAGES=(
  bazel-bootstrap bazel-rules-java bazel-rules-proto bazel-skylib g++
  libabsl-dev libbenchmark-dev libcpp-httplib-dev libdnnl-dev libgloo-dev libgmock-dev
  libgoogle-glog-dev libgtest-dev libhwy-dev libprotobuf-dev libssl-dev nlohmann-json3-dev
  protobuf-compiler zlib1g-dev
)

# What --config=clang and --config=tsan need besides; llvm has the symbolizer.
CLANG_PACKAGES=(clang-19 libclang-rt-19-dev libomp-19-dev llvm)

# What the checks of .ci/run need besides.
CHECK_PACKAGES=(clang-format)

# Programs that tests run where they are installed, and skip where they are not; .ci/run installs them.
TEST_PACKAGES=(iproute2 openmpi-bin util-linux)

# missing_packages <package>...: prints those that are not installed.
missing_packages() {
  local installed name
  # One query for all of them: 20 ms, so that no stamp file is needed that could be out of date.
  installed=$'\n'$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null |
    sed -n 's/^[ihrpu]i  *//p')$'\n'
  for name in "$@"; do
    [[ $installed == *$'\n'"$name"$'\n'* ]] || printf '%s\n' "$name"
  done
}

# Archives fail for seconds at a time, and a machine that has just started may be updating itself.
APT_OPTIONS=(-qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)

# install_packages <sudo...> -- <package>...: apt-get, up to three times, with the lists read anew: an
# archive that has replaced a package no longer serves the version of the old lists.
install_packages() {
  local as_root=() attempt
  while [[ $1 != -- ]]; do
    as_root+=("$1")
    shift
  done
  shift
  for attempt in 1 2 3; do
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y "${APT_OPTIONS[@]}" --no-install-recommends "$@" >&2 && return 0
    ((attempt < 3)) || break
    echo "lockstep: apt-get could not install them; trying again in $((attempt * 20)) s." >&2
    sleep $((attempt * 20))
    "${as_root[@]}" apt-get update "${APT_OPTIONS[@]}" >&2
  done
  return 1
}

# ensure_packages <package>...: installs what is missing, saying what; root is asked for only then.
# Messages go to standard error. Returns 1 when something cannot be installed.
ensure_packages() {
  if ! command -v dpkg-query >/dev/null; then
    echo "lockstep: this machine has no dpkg; Lockstep takes its libraries from Debian 12 (bookworm)." >&2
    return 1
  fi
  local missing=() as_root=() unavailable=() name release
  mapfile -t missing < <(missing_packages "$@")
  ((${#missing[@]})) || return 0

  if ((EUID != 0)); then
    if ! command -v sudo >/dev/null; then
      echo "lockstep: missing packages, and neither root nor sudo to install them. As root, run" >&2
      echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
      return 1
    fi
    as_root=(sudo)
    # Without a terminal nobody can type a password: fail instead of waiting for one.
    [[ -t 0 ]] || as_root=(sudo -n)
  fi
  echo "lockstep: installing Debian packages: ${missing[*]}" >&2
  if ! "${as_root[@]}" apt-get update "${APT_OPTIONS[@]}" >&2; then
    # The known package lists may still do; the next step says so if they do not.
    echo "lockstep: apt-get update failed; trying with the package lists at hand." >&2
  fi
  for name in "${missing[@]}"; do
    # apt-cache's words are translated: LC_ALL=C keeps them comparable.
    LC_ALL=C apt-cache policy "$name" 2>/dev/null | grep -q 'Candidate: [^(]' || unavailable+=("$name")
  done
  if ((${#unavailable[@]})); then
    release=$(sed -n 's/^PRETTY_NAME="\(.*\)"$/\1/p' /etc/os-release 2>/dev/null)
    echo "lockstep: apt has no candidate for: ${unavailable[*]}" >&2
    echo "  Lockstep expects Debian 12 (bookworm) with its main archive; this machine is" \
      "${release:-unknown}." >&2
    return 1
  fi
  if ! install_packages "${as_root[@]}" -- "${missing[@]}"; then
    echo "lockstep: apt-get could not install: ${missing[*]} (its own message is above)." >&2
    return 1
  fi
}
