# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes goldens/<family>.json: outputs and gradients of PyTorch for the cases of op_cases.py.

    python3 make_op_goldens.py [family...]     # needs numpy and torch; the version is in the files

Each line is a case: what op_parity_test.cc needs to draw the same inputs (values.py), the arguments,
and for each dtype the outputs and the gradients of the inputs, as the dtype and the base64 of the
elements in row-major order. A missing gradient is "".

Floating-point results are PyTorch's in float64 from the same inputs, rounded once: a tolerance then
measures Lockstep's error, not the sum of two. Where PyTorch's own result in the dtype is another number
that is not finite (an intermediate result overflows), either will do, and its own tensor follows.
Results that must be equal bit for bit are its own throughout. "slack" says how many tolerances its own
gradients are away, where that is more than one: their formulas round after each step, and Lockstep's may
be twice as far.
"""

import base64
import json
import math
import os
import sys
import zlib

import torch

import op_cases
import tolerances
import values
from op_functions import FUNCTIONS

HERE = os.path.dirname(os.path.abspath(__file__))


def encode(tensor, own=None):
    if tensor is None:
        return ""
    if own is not None:
        return encode(tensor) + ":" + encode(own).split(":")[1]
    tensor = tensor.detach().contiguous().reshape(-1)
    name = next(n for n, d in values.DTYPES.items() if d == tensor.dtype)
    data = tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    return f"{name}:{base64.b64encode(data).decode()}"


def run(case, inputs, layouts):
    """The leaves and the outputs."""
    leaves = [stored.clone().requires_grad_(case.gradients and stored.is_floating_point())
              for stored in inputs]
    arguments = [values.view(leaf, shape, layout)
                 for leaf, (shape, layout) in zip(leaves, layouts)]
    outputs = FUNCTIONS[case.op](arguments, case.args)
    return leaves, outputs if isinstance(outputs, (list, tuple)) else [outputs]


def gradients(leaves, outputs, own_outputs, seed):
    """With respect to each leaf; the gradients of the outputs are drawn in `own_outputs`' dtypes."""
    roots, weights = [], []
    for i, (output, own) in enumerate(zip(outputs, own_outputs)):
        if output.requires_grad:
            name = next(n for n, d in values.DTYPES.items() if d == own.dtype)
            weight = values.draw("unit", tuple(output.shape), name, seed, 100 + i)
            roots.append(output)
            weights.append(weight.to(output.dtype))
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    if not roots or not wanted:
        return [None] * len(leaves)
    found = iter(torch.autograd.grad(roots, wanted, weights, allow_unused=True))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


class Result:
    """One tensor that Lockstep must be near to: see above."""

    def __init__(self, own, wide, near, gradient):
        self.slack = 1
        if own is None or wide is None:
            self.text = encode(own)
            return
        own = own.detach()
        rounded = wide.detach().float().to(own.dtype)
        same = (own == rounded) | (own.isnan() & rounded.isnan())
        finite = torch.isfinite(own) & torch.isfinite(rounded)
        self.text = encode(rounded, None if (same | finite).all() else own)
        if gradient:
            dtype = next(n for n, d in values.DTYPES.items() if d == own.dtype)
            self.slack = max(1, math.ceil(tolerances.excess(own, rounded, dtype, near)))
            assert self.slack <= 8, "PyTorch itself is far off: compare something else"


def results(case, dtype, seed):
    inputs, layouts = [], []
    for i, (profile, shape, layout, *fixed) in enumerate(case.inputs):
        stored = values.stored_shape(shape, layout)
        inputs.append(values.draw(profile, stored, fixed[0] if fixed else dtype, seed, i))
        layouts.append((shape, layout))
    leaves, outputs = run(case, inputs, layouts)
    grads = gradients(leaves, outputs, outputs, seed)
    wide_outputs, wide_grads = [None] * len(outputs), [None] * len(grads)
    floating = any(o.is_floating_point() and o.dtype != torch.float64 for o in outputs)
    if floating and case.near not in (op_cases.EXACT, op_cases.VALUE):
        # Indices, masks and targets stay as they are.
        wide = [t if len(spec) > 3 and "float" not in spec[3] else t.double()
                for t, spec in zip(inputs, case.inputs)]
        wide_leaves, wide_outputs = run(case, wide, layouts)
        wide_grads = gradients(wide_leaves, wide_outputs, outputs, seed)
    out = [Result(o, w, case.near, False) for o, w in zip(outputs, wide_outputs)]
    grad = [Result(o, w, case.near, True) for o, w in zip(grads, wide_grads)]
    result = dict(shapes=[list(o.shape) for o in outputs], out=[r.text for r in out],
                  grad=[r.text for r in grad])
    slack = [r.slack for r in grad]
    if max(slack, default=1) > 1:
        result["slack"] = slack
    return result


def lines(family, cases):
    seen = set()
    for case in cases:
        name = f"{case.op}/{case.name}"
        assert name not in seen, name
        seen.add(name)
        seed = zlib.crc32(f"{family}/{name}".encode())
        by_dtype = {}
        for dtype in case.dtypes:
            try:
                by_dtype[dtype] = results(case, dtype, seed)
            except Exception as error:
                raise RuntimeError(f"{family}/{name} {dtype}") from error
        shapes = next(iter(by_dtype.values()))["shapes"]
        for result in by_dtype.values():
            assert result.pop("shapes") == shapes
        yield dict(name=case.name, op=case.op, row=case.op if case.row is None else case.row,
                   near=case.near, seed=seed, inputs=case.inputs, args=case.args, shapes=shapes,
                   dtypes=by_dtype)


def write(family, cases):
    path = os.path.join(HERE, "goldens", f"{family}.json")
    count = 0
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'{{"torch": "{torch.__version__}", "cases": [\n')
        for line in lines(family, cases):
            out.write(",\n" if count else "")
            out.write(json.dumps(line, separators=(",", ":")))
            count += 1
        out.write("\n]}\n")
    print(family, count, "cases", os.path.getsize(path), "bytes")


def main():
    torch.set_num_threads(1)
    os.makedirs(os.path.join(HERE, "goldens"), exist_ok=True)
    for family in sys.argv[1:] or op_cases.FAMILIES:
        write(family, op_cases.FAMILIES[family]())


if __name__ == "__main__":
    main()
