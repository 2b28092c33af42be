# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""A test over the dependency graph, without a nested Bazel."""

def dependency_test(name, targets, forbidden):
    """Fails if one of `targets` depends, over any number of steps, on something under `forbidden`.

    Args:
      name: of the test.
      targets: the labels to look at.
      forbidden: packages ("//autograd" stands for itself and everything below it) or single labels
        ("//tensor/cpu:cpu").
    """
    native.genquery(
        name = name + "_deps",
        testonly = True,
        expression = "deps(" + " + ".join(targets) + ")",
        opts = ["--noimplicit_deps"],
        scope = targets,
    )
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["dependency_test.sh"],
        args = ["$(location :%s_deps)" % name] + forbidden,
        data = [":%s_deps" % name],
    )
