# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes promotion_goldens.json: the dtype of each result in PyTorch, for all pairs of dtypes, operands
of zero dimensions, and scalars; and the shapes that broadcast.

    python3 make_promotion_goldens.py     # needs numpy and torch; the version is in the file

A table has one letter for each combination, in the order of "dtypes" (the first operand's dtype is the
outer one); "!" is a refusal. "values" are the elements of each result, null where not finite.
"""

import json
import math
import os

import torch

from op_functions import FUNCTIONS
from values import DTYPES

HERE = os.path.dirname(os.path.abspath(__file__))
LETTERS = dict(zip(DTYPES.values(), "fghdliB?"))

PAIR_OPS = ("Add", "Sub", "Mul", "Div", "Pow", "Maximum", "Minimum", "Equal", "NotEqual", "Less",
            "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "Where", "Concat",
            "Stack", "MatMul", "CopyInto", "AddInPlace", "MulInPlace")
# Whether each operand has a dimension.
FORMS = {"tensors": (True, True), "zero_dim_right": (True, False), "zero_dim_left": (False, True),
         "zero_dims": (False, False)}
SCALAR_OPS = ("AddScalar", "SubScalar", "RSubScalar", "MulScalar", "DivScalar", "PowScalar",
              "EqualScalar", "LessScalar", "WhereScalar", "Fill", "AddScalarInPlace",
              "MulScalarInPlace", "DivScalarInPlace")
SCALARS = {"int": 3, "float": 2.5, "whole_float": 2.0, "bool": True, "large": 300, "negative": -1}
CLAMPS = {"ints": (1, 5), "floats": (0.5, 5.5), "int_float": (1, 5.5), "bools": (False, True)}
UNARY_OPS = ("Neg", "Abs", "Sign", "Exp", "Log", "Sqrt", "Rsqrt", "Reciprocal", "Erf", "Tanh",
             "Sigmoid", "Relu", "Gelu", "LogicalNot", "IsFinite", "Sum", "Mean", "Max", "Min", "All",
             "Any", "ArgMax", "ArgMin", "Softmax", "LogSoftmax")
SHAPES = ([], [0], [1], [3], [1, 1], [3, 1], [1, 3], [2, 3], [0, 3], [2, 0], [2, 1, 3], [2, 1, 1],
          [4, 1, 0], [1, 2, 3])

EXTRA = {
    "AddInPlace": lambda x, a: x[0].clone().add_(x[1]),
    "MulInPlace": lambda x, a: x[0].clone().mul_(x[1]),
    "AddScalarInPlace": lambda x, a: x[0].clone().add_(a["value"]),
    "MulScalarInPlace": lambda x, a: x[0].clone().mul_(a["value"]),
    "DivScalarInPlace": lambda x, a: x[0].clone().div_(a["value"]),
    "EqualScalar": lambda x, a: x[0] == a["value"],
    "LessScalar": lambda x, a: x[0] < a["value"],
}


def operand(dtype, second, dimensions):
    values = [3, 2] if second else [7, 1]
    if dtype == torch.bool:
        values = [1, 1] if second else [1, 0]
    return torch.tensor(values if dimensions else values[0]).to(dtype)


class Table:
    """The letters and values of some calls."""

    def __init__(self):
        self.letters, self.values = "", []

    def call(self, op, inputs, args):
        try:
            result = (EXTRA.get(op) or FUNCTIONS[op])(inputs, args)
        except (RuntimeError, TypeError, NotImplementedError, IndexError):
            self.letters += "!"
            self.values.append([])
            return
        self.letters += LETTERS[result.dtype]
        self.values.append([v if math.isfinite(v) else None
                            for v in result.double().reshape(-1).tolist()])

    def json(self):
        return dict(letters=self.letters, values=self.values)


def pairs(op, left, right):
    table = Table()
    for a in DTYPES.values():
        for b in DTYPES.values():
            inputs = [operand(a, False, left), operand(b, True, right)]
            if op == "Where":
                inputs.insert(0, torch.tensor([True, False]))
            table.call(op, inputs, dict(dim=0))
    return table.json()


def scalars(op, value):
    table = Table()
    for dtype in DTYPES.values():
        inputs = [operand(dtype, False, True)]
        if op == "WhereScalar":
            inputs.insert(0, torch.tensor([True, False]))
        table.call(op, inputs, dict(value=value))
    return table.json()


def one_tensor(op, args):
    table = Table()
    for dtype in DTYPES.values():
        table.call(op, [operand(dtype, True, True)], args)
    return table.json()


def broadcasts():
    rows = []
    for a in SHAPES:
        for b in SHAPES:
            try:
                shape = list((torch.zeros(a) + torch.zeros(b)).shape)
            except RuntimeError:
                shape = None
            rows.append([a, b, shape])
    return rows


def main():
    torch.set_num_threads(1)
    golden = dict(
        torch=torch.__version__, dtypes=list(DTYPES), letters="".join(LETTERS.values()),
        pairs={op: {form: pairs(op, *has) for form, has in FORMS.items()
                    if all(has) or op not in ("Concat", "MatMul", "Stack", "CopyInto")}
               for op in PAIR_OPS},
        scalars={op: {kind: dict(value=value, **scalars(op, value))
                      for kind, value in SCALARS.items()} for op in SCALAR_OPS},
        clamps={kind: dict(low=low, high=high, **one_tensor("Clamp", dict(low=low, high=high)))
                for kind, (low, high) in CLAMPS.items()},
        unary={op: one_tensor(op, dict(dim=0)) for op in UNARY_OPS},
        broadcasts=broadcasts())
    path = os.path.join(HERE, "promotion_goldens.json")
    with open(path, "w", encoding="utf-8") as out:
        json.dump(golden, out, separators=(",", ":"), allow_nan=False)
        out.write("\n")
    print(os.path.getsize(path), "bytes")


if __name__ == "__main__":
    main()
