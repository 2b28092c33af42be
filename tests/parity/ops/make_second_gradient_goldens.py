# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes goldens/second_gradients.json: gradients of gradients of PyTorch, for each differentiable op.

    python3 make_second_gradient_goldens.py     # needs numpy and torch; the version is in the file

Cases, inputs and the gradients of the outputs are those of make_op_goldens.py, in float64: of each op
and set of arguments the first case whose numbers are ordinary, and its results finite. The gradients of the inputs, each times
numbers drawn alike, are added up; "grad" has the gradients of that sum with respect to the inputs and
then to the gradients of the outputs. A missing one is "".
"""

import json
import os
import zlib

import torch

import make_op_goldens
import op_cases
import values

ORDINARY = ("unit", "positive")


def is_ordinary(case):
    floats = [spec for spec in case.inputs if len(spec) < 4 or "float" in spec[3]]
    return (case.gradients and "float64" in case.dtypes and floats
            and all(spec[0] in ORDINARY and 0 not in spec[1] for spec in floats))


def second_gradients(case, seed):
    """Of the leaves and of the gradients of the outputs; None where there are none in float64."""
    stored = [values.draw(profile, values.stored_shape(shape, layout),
                          fixed[0] if fixed else "float64", seed, i)
              for i, (profile, shape, layout, *fixed) in enumerate(case.inputs)]
    layouts = [(shape, layout) for _, shape, layout, *_ in case.inputs]
    leaves, outputs = make_op_goldens.run(case, stored, layouts)
    roots = [(i, o) for i, o in enumerate(outputs) if o.requires_grad]
    if not roots or any(o.dtype != torch.float64 for _, o in roots):
        return None
    weights = [values.draw("unit", tuple(o.shape), "float64", seed, 100 + i).requires_grad_()
               for i, o in roots]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    first = torch.autograd.grad([o for _, o in roots], wanted, weights, create_graph=True,
                                allow_unused=True)
    total = 0
    for i, gradient in enumerate(first):
        if gradient is not None and gradient.requires_grad:
            total = total + (gradient * values.draw("unit", tuple(gradient.shape), "float64", seed,
                                                    200 + i)).sum()
    if not torch.is_tensor(total):
        return None
    found = torch.autograd.grad(total, wanted + weights, allow_unused=True)
    return outputs, found


def lines():
    for family, make_cases in op_cases.FAMILIES.items():
        seen = set()
        for case in make_cases():
            key = (case.op, json.dumps(case.args, sort_keys=True))
            if key in seen or not is_ordinary(case):
                continue
            seed = zlib.crc32(f"{family}/{case.op}/{case.name}".encode())
            try:
                result = second_gradients(case, seed)
            except RuntimeError as error:
                print(f"left out: {family}/{case.op}/{case.name}: {str(error).splitlines()[0]}")
                continue
            if result is None or not all(g is None or g.isfinite().all() for g in result[1]):
                continue
            seen.add(key)
            outputs, found = result
            yield dict(name=case.name, op=case.op, row="", near="sum", seed=seed,
                       inputs=case.inputs, args=case.args,
                       shapes=[list(o.shape) for o in outputs],
                       dtypes=dict(float64=dict(out=[],
                                                grad=[make_op_goldens.encode(g) for g in found])))


def main():
    torch.set_num_threads(1)
    path = os.path.join(make_op_goldens.HERE, "goldens", "second_gradients.json")
    cases = [json.dumps(line, separators=(",", ":")) for line in lines()]
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'{{"torch": "{torch.__version__}", "cases": [\n' + ",\n".join(cases) + "\n]}\n")
    print(len(cases), "cases", os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
