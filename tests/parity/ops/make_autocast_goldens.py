# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes autocast_goldens.json: the dtypes of PyTorch's results under autocast.

    python3 make_autocast_goldens.py     # needs numpy and torch; the version is in the file

One line for the first case of op_cases.py of each binding (and of each of its numbers of inputs): the
dtypes of the outputs on each kind of device, for inputs in float32, in the scope's dtype, and mixed
(the first floating-point input in float32, the others in the scope's dtype), and "" where PyTorch
refuses. CUDA results come from fake tensors, which run PyTorch's dispatch without a GPU.
"""

import json
import os

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import op_cases
import values
from op_functions import FUNCTIONS

HERE = os.path.dirname(os.path.abspath(__file__))
SCOPES = {"cpu": "bfloat16", "cuda": "float16"}


def inputs_of(case, kind, low):
    inputs, first = [], True
    for i, (profile, shape, layout, *fixed) in enumerate(case.inputs):
        dtype = fixed[0] if fixed else ("float32" if kind == "float32" else low)
        if kind == "mixed" and not fixed and first:
            dtype, first = "float32", False
        stored = values.draw(profile, values.stored_shape(shape, layout), dtype, 1, i)
        inputs.append(values.view(stored, shape, layout))
    return inputs


def dtypes(case, inputs):
    outputs = FUNCTIONS[case.op](inputs, case.args)
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [str(output.dtype).removeprefix("torch.") for output in outputs]


def run(case, device, kind):
    low = SCOPES[device]
    inputs = inputs_of(case, kind, low)
    try:
        if device == "cpu":
            with torch.autocast("cpu", values.DTYPES[low]):
                return dtypes(case, inputs)
        with FakeTensorMode(allow_non_fake_inputs=True):
            fake = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="cuda")
                    for t in inputs]
            torch.set_autocast_enabled("cuda", True)
            try:
                return dtypes(case, fake)
            finally:
                torch.set_autocast_enabled("cuda", False)
    except Exception as error:  # noqa: BLE001: whatever PyTorch says no with
        print(f"  {device} {kind} {case.op}/{case.name}: {str(error).splitlines()[0][:100]}")
        return ""


def main():
    torch.set_num_threads(1)
    seen, lines = set(), []
    for family, make in op_cases.FAMILIES.items():
        for case in make():
            key = (case.op, len(case.inputs))
            floats = sum(len(spec) == 3 for spec in case.inputs)
            if "float32" not in case.dtypes or floats == 0 or key in seen:
                continue
            seen.add(key)
            kinds = ["float32", "low"] + (["mixed"] if floats > 1 else [])
            lines.append(json.dumps(dict(
                family=family, op=case.op, name=case.name,
                **{device: {kind: run(case, device, kind) for kind in kinds} for device in SCOPES})))
    path = os.path.join(HERE, "autocast_goldens.json")
    with open(path, "w", encoding="utf-8") as out:
        out.write(f'{{"torch": "{torch.__version__}", "cases": [\n')
        out.write(",\n".join(lines))
        out.write("\n]}\n")
    print(len(lines), "cases", os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
