# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Reads a full state that Lockstep has written with Python's safetensors, and records what it read.

    python3 read_full_state.py            # needs safetensors and numpy; compares with the record
    python3 read_full_state.py --write    # makes the record anew, of full_state.safetensors

full_state.safetensors    SaveFullState of the model in full_state_parity_test.cc
full_state_python.json    names, dtypes, shapes and values as Python's safetensors reads them

Numpy has no bfloat16: such a tensor is taken as the bytes that safetensors gives, the upper halves
of float32. All others are read by safe_open, in whole and as slices.
"""

import json
import os
import sys

import numpy
import safetensors

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "full_state.safetensors")
RECORD = os.path.join(HERE, "full_state_python.json")
NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64"}


def raw_values(tensor):
    """Of an entry of safetensors.deserialize()."""
    if tensor["dtype"] == "BF16":
        upper = numpy.frombuffer(tensor["data"], dtype="<u2").astype("<u4") << 16
        return upper.view("<f4")
    return numpy.frombuffer(tensor["data"], dtype=NAMES[tensor["dtype"]])


def read():
    with open(FILE, "rb") as file:
        raw = dict(safetensors.deserialize(file.read()))
    tensors = {}
    with safetensors.safe_open(FILE, framework="np") as opened:
        assert sorted(opened.keys()) == sorted(raw), "two ways to read the names"
        for name in opened.keys():
            entry = raw[name]
            values = raw_values(entry)
            if entry["dtype"] != "BF16":
                whole = opened.get_tensor(name)
                assert str(whole.dtype) == NAMES[entry["dtype"]], name
                assert list(whole.shape) == list(entry["shape"]), name
                assert (whole.reshape(-1) == values).all(), name
                if whole.ndim > 0:
                    rows = (whole.shape[0] + 1) // 2
                    assert (opened.get_slice(name)[:rows] == whole[:rows]).all(), name
            tensors[name] = dict(dtype=NAMES[entry["dtype"]], shape=list(entry["shape"]),
                                 values=values.tolist())
        metadata = opened.metadata()
    return dict(safetensors=safetensors.__version__, metadata=metadata, tensors=tensors)


def main():
    result = read()
    if sys.argv[1:] == ["--write"]:
        with open(RECORD, "w", encoding="utf-8") as out:
            out.write(json.dumps(result, indent=1, sort_keys=True) + "\n")
        return
    with open(RECORD, encoding="utf-8") as file:
        wanted = json.load(file)
    for part in ("metadata", "tensors"):
        assert result[part] == wanted[part], f"{part}: {result[part]} is not {wanted[part]}"
    print(f"safetensors {safetensors.__version__} reads {len(result['tensors'])} tensors of "
          f"{os.path.basename(FILE)} as recorded")


if __name__ == "__main__":
    main()
