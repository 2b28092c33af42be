# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""The repositories that Lockstep needs, all taken from the machine: nothing is downloaded.

A WORKSPACE that uses Lockstep says

    local_repository(name = "lockstep", path = "...")
    load("@lockstep//tools/bazel:deps.bzl", "lockstep_dependencies")
    lockstep_dependencies()
"""

_RULES_CC = """
# Debian's rules_cc does not load in Bazel 4.2.3; its public macros only forward to the native rules.
cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_suite = native.cc_toolchain_suite
fdo_prefetch_hints = native.fdo_prefetch_hints
fdo_profile = native.fdo_profile
objc_import = native.objc_import
objc_library = native.objc_library
"""

def _rules_cc_impl(repository_ctx):
    repository_ctx.file("WORKSPACE", "")
    repository_ctx.file("BUILD", "")
    repository_ctx.file("cc/BUILD", "exports_files([\"defs.bzl\"])\n")
    repository_ctx.file("cc/defs.bzl", _RULES_CC)

_rules_cc = repository_rule(implementation = _rules_cc_impl)

# `bazel test` resolves these two although nothing here collects coverage.
_COVERAGE = """
package(default_visibility = ["//visibility:public"])

filegroup(name = "coverage_report_generator")

filegroup(name = "lcov_merger")
"""

def _coverage_impl(repository_ctx):
    repository_ctx.file("WORKSPACE", "")
    repository_ctx.file("BUILD", _COVERAGE)

_coverage = repository_rule(implementation = _coverage_impl)

_PROTOBUF = """
package(default_visibility = ["//visibility:public"])

filegroup(
    name = "protoc",
    srcs = ["bin/protoc"],
)

proto_lang_toolchain(
    name = "cc_toolchain",
    command_line = "--cpp_out=$(OUT)",
    runtime = "@lockstep//third_party/protobuf",
)
"""

def _protobuf_impl(repository_ctx):
    repository_ctx.file("WORKSPACE", "")
    repository_ctx.symlink("/usr/bin/protoc", "bin/protoc")
    repository_ctx.file("BUILD", _PROTOBUF)

_protobuf = repository_rule(implementation = _protobuf_impl)

def lockstep_dependencies():
    """Defines what Bazel's own rules and Lockstep's protos need; names already defined stay as they are."""
    local = {
        "bazel_skylib": "/usr/share/bazel/tools/skylib",
        "rules_java": "/usr/share/bazel/rules/java",
        "rules_proto": "/usr/share/bazel/rules/proto",
    }
    for name, path in local.items():
        if not native.existing_rule(name):
            native.local_repository(name = name, path = path)
    written = {
        "com_google_protobuf": _protobuf,
        "remote_coverage_tools": _coverage,
        "rules_cc": _rules_cc,
    }
    for name, rule in written.items():
        if not native.existing_rule(name):
            rule(name = name)
