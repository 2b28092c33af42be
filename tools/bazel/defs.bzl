# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""The rules that every Lockstep BUILD file uses.

They carry each flag that a correct build needs, because a repository that depends on Lockstep does
not inherit our .bazelrc:

* C++20, and the include prefix `lockstep/<package>/`. No target exports the repository root.
* `-O2` in Bazel's default mode (fastbuild), which compiles without optimisation: kernels would run
  twenty times slower, and a consumer would have to know. `-c opt` and `-c dbg` keep Bazel's own levels.
* `-ffp-contract=off`: whether `a * b + c` is rounded once or twice must not depend on the compiler or
  the instruction set. Kernels ask for a fused multiply-add by name.
* Warnings are errors inside this repository only: a consumer may use a newer compiler than ours.
* Libraries are linked statically, so that tests and programs run the same initialisers.
* Each header compiles alone: one that no .cc file of the same name includes first (//tools/checks
  sees to that) gets a generated source file, which also shows its includes to layering_check.
"""

load("@rules_proto//proto:defs.bzl", "proto_library")

_GTEST = "@lockstep//third_party/gtest"
_GTEST_MAIN = "@lockstep//third_party/gtest:gtest_main"
_BENCHMARK = "@lockstep//third_party/benchmark"
_BENCHMARK_MAIN = "@lockstep//third_party/benchmark:benchmark_main"
_OPENMP = "@lockstep//third_party/openmp"

_HEADER_SUFFIXES = (".h", ".hpp", ".inc")

def _copts(copts, openmp):
    flags = [
        "-std=c++20",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        # gcc's note that vector arguments changed their ABI in version 4.6; all objects here are newer.
        "-Wno-psabi",
    ]
    if native.repository_name() == "@":
        flags.append("-Werror")
    if openmp:
        flags.append("-fopenmp")
    optimise = select({
        "@lockstep//tools/bazel:fastbuild": ["-O2"],
        "//conditions:default": [],
    })
    return flags + optimise + copts

def _canonical(label):
    """One spelling for a label, so that a dependency named by the user is not added a second time."""
    if label.startswith("@lockstep//"):
        label = label[len("@lockstep"):]
    if label.startswith("//") and ":" not in label:
        label = label + ":" + label.split("/")[-1]
    return label

def _add_deps(deps, extra):
    if type(deps) != "list":  # A select(): its branches cannot be looked into.
        return deps + extra
    present = {_canonical(dep): True for dep in deps}
    return deps + [dep for dep in extra if _canonical(dep) not in present]

def _refuse_private_headers(name, srcs):
    if type(srcs) != "list":
        return
    for src in srcs:
        if src.endswith(_HEADER_SUFFIXES):
            fail("%s: %s is a header in srcs; only headers in hdrs of a lockstep_library get the include prefix. Move it to hdrs (of a library with private visibility if it is nobody else's)." % (name, src))

def _header_sources_impl(ctx):
    sources = []
    for header in ctx.attr.headers:
        stem = header.replace("/", "_").replace(".", "_")
        source = ctx.actions.declare_file("%s/%s.cc" % (ctx.label.name, stem))
        ctx.actions.write(source, "#include \"lockstep/%s/%s\"\n" % (ctx.label.package, header))
        sources.append(source)
    return [DefaultInfo(files = depset(sources))]

_header_sources = rule(
    implementation = _header_sources_impl,
    attrs = {"headers": attr.string_list()},
)

def _header_checks(name, srcs, hdrs, testonly):
    """Sources that compile those headers alone which no file of srcs compiles; a list of labels."""
    if type(srcs) != "list" or type(hdrs) != "list" or native.repository_name() != "@":
        return []
    alone = [
        header
        for header in hdrs
        if header.endswith((".h", ".hpp")) and not header.endswith("-inl.h") and
           not header.startswith((":", "/", "@")) and
           header.rpartition(".")[0] + ".cc" not in srcs
    ]
    if not alone:
        return []
    _header_sources(name = name + "_headers", headers = alone, testonly = testonly)
    return [":" + name + "_headers"]

def lockstep_library(name, srcs = [], hdrs = [], deps = [], copts = [], openmp = False, **kwargs):
    """A C++ library whose headers are included as "lockstep/<package>/<header>".

    Args:
      name: the target, named after its header.
      srcs: .cc files only.
      hdrs: headers, also textual ones (`op_list.inc`, `*-inl.h`): Bazel's textual_hdrs get no prefix.
      deps: the libraries whose headers srcs and hdrs include, each of them.
      copts: added after the common flags.
      openmp: compile and link with OpenMP. For //base:parallel only.
      **kwargs: as for cc_library (visibility, alwayslink, tags, data, defines, linkopts, testonly ...).
    """
    _refuse_private_headers(name, srcs)
    native.cc_library(
        name = name,
        srcs = srcs + _header_checks(name, srcs, hdrs, kwargs.get("testonly", False)),
        hdrs = hdrs,
        deps = _add_deps(deps, [_OPENMP] if openmp else []),
        copts = _copts(copts, openmp),
        include_prefix = "lockstep/" + native.package_name(),
        linkstatic = True,
        **kwargs
    )

def lockstep_binary(name, srcs = [], deps = [], copts = [], **kwargs):
    """A program. Arguments as for cc_binary."""
    _refuse_private_headers(name, srcs)
    native.cc_binary(
        name = name,
        srcs = srcs,
        deps = deps,
        copts = _copts(copts, False),
        linkstatic = True,
        **kwargs
    )

def lockstep_test(name, srcs = [], deps = [], copts = [], gtest_main = True, **kwargs):
    """A GoogleTest program.

    Args:
      name: `<library>_test`.
      srcs: .cc files.
      deps: what the test includes; GoogleTest is added.
      copts: added after the common flags.
      gtest_main: False for a test with its own main, for example one that starts copies of itself.
      **kwargs: as for cc_test: size, args, data, shard_count, and tags, of which
        "cpu:N" reserves N cores (tests with N ranks), "exclusive" runs the test alone,
        "manual" leaves it out of `//...`.
    """
    _refuse_private_headers(name, srcs)
    native.cc_test(
        name = name,
        srcs = srcs,
        deps = _add_deps(deps, [_GTEST] + ([_GTEST_MAIN] if gtest_main else [])),
        copts = _copts(copts, False),
        linkstatic = True,
        **kwargs
    )

def lockstep_benchmark(name, srcs = [], deps = [], copts = [], benchmark_main = True, tags = [], **kwargs):
    """A Google Benchmark program: built by `//...`, so that it cannot rot, run only by `bazel run`."""
    _refuse_private_headers(name, srcs)
    native.cc_binary(
        name = name,
        testonly = True,
        srcs = srcs,
        deps = _add_deps(deps, [_BENCHMARK] + ([_BENCHMARK_MAIN] if benchmark_main else [])),
        copts = _copts(copts, False),
        linkstatic = True,
        tags = tags + ["benchmark"],
        **kwargs
    )

def lockstep_proto(name, srcs, deps = [], visibility = None, testonly = False):
    """Protocol buffers: a proto_library `name` and a C++ library for it.

    Args:
      name: must end in `_proto`; the C++ library replaces that by `_cc_proto`. Its header is included
        as "lockstep/<package>/<file>.pb.h", and .proto files import each other the same way.
      srcs: .proto files.
      deps: other proto_library targets.
      visibility: of both targets.
      testonly: of both targets.
    """
    if not name.endswith("_proto"):
        fail("%s: the name of a lockstep_proto must end in _proto" % name)
    package = native.package_name()
    proto_library(
        name = name,
        srcs = srcs,
        deps = deps,
        strip_import_prefix = "/" + package,
        import_prefix = "lockstep/" + package,
        visibility = visibility,
        testonly = testonly,
    )
    native.cc_proto_library(
        name = name[:-len("_proto")] + "_cc_proto",
        deps = [":" + name],
        visibility = visibility,
        testonly = testonly,
    )
