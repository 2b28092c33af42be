# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""The cases of the op goldens, as data: family -> list of Case."""

import dataclasses

FLOATS = ("float32", "float64", "bfloat16", "float16")
INTS = ("int64", "int32", "uint8")
SIGNED = ("int64", "int32")
NUMBERS = FLOATS + INTS
ALL = NUMBERS + ("bool",)

# How near results must be (tolerances.json has the numbers): bit for bit; the same but for the signs
# of zeros; relative to each element; beside it relative to 1, where terms of that order cancel;
# relative to the largest element, for sums whose terms cancel.
EXACT, VALUE, ELEMENT, ONE, SUM = "exact", "value", "element", "one", "sum"


@dataclasses.dataclass
class Case:
    op: str             # name of the binding
    name: str           # the variant
    inputs: list        # of [profile, shape, layout, dtype?]
    args: dict = dataclasses.field(default_factory=dict)
    dtypes: tuple = FLOATS
    row: str = None     # of the op table; default: op. "" for none
    near: str = ELEMENT
    gradients: bool = True


def unary_cases(op, near=ELEMENT, integers=INTS, row=None, args=None, positive=False):
    args = args or {}
    shapes = [("unit", [3, 5], "transposed"), ("unit", [3, 2, 4], "reversed"),
              ("unit", [4, 5], "sliced"), ("unit", [3, 4], "expanded"), ("unit", [2, 3], "offset"),
              ("unit", [], "dense"), ("unit", [0, 3], "dense"), ("grid", [15], "dense"),
              ("each", [13], "dense"), ("wide", [37], "dense")]
    if positive:
        shapes.append(("positive", [19], "dense"))
    cases = [Case(op, f"{profile}_{layout}_{len(shape)}", [[profile, shape, layout]], args,
                  row=row, near=near) for profile, shape, layout in shapes]
    if integers:
        cases += [Case(op, "integers", [["unit", [3, 5], "transposed"]], args, integers, row, near),
                  Case(op, "integer_limits", [["each", [7], "dense"]], args, integers, row, near)]
    return cases


def elementwise():
    cases = []
    for op in ("Exp", "Log", "Sqrt", "Rsqrt", "Reciprocal", "Erf", "Tanh", "Sigmoid"):
        cases += unary_cases(op, positive=op in ("Log", "Sqrt", "Rsqrt", "Reciprocal"),
                             integers=INTS + ("bool",))
    for op in ("Neg", "Abs", "Sign", "Relu"):
        cases += unary_cases(op, EXACT)
    for op in ("LogicalNot", "IsFinite"):
        cases += unary_cases(op, EXACT, INTS + ("bool",))
    for kind in ("none", "tanh"):
        for case in unary_cases("Gelu", ONE, None, args=dict(kind=kind)):
            cases.append(dataclasses.replace(case, name=f"{kind}_{case.name}"))
    for low, high in ((-1, 1), (-0.3, 0.7), (0, 0), (1, 300)):
        whole = isinstance(low, int) and high < 256
        for case in unary_cases("Clamp", EXACT, SIGNED if whole else None,
                                args=dict(low=low, high=high)):
            cases.append(dataclasses.replace(case, name=f"{low}_{high}_{case.name}"))
    return cases


def copies():
    cases = []
    for op in ("Clone", "Contiguous", "Detach"):
        row = {"Contiguous": "Clone"}.get(op)
        for case in unary_cases(op, EXACT, INTS + ("bool",), row):
            contiguous = case.inputs[0][2] in ("dense", "offset")
            if op != "Contiguous" or not contiguous:
                cases.append(case)
    for case in unary_cases("CopyToDevice", EXACT, INTS + ("bool",)):
        cases.append(case)
    for value in (0, 2.5, 7):
        integers = INTS + ("bool",) if isinstance(value, int) else None
        for case in unary_cases("Fill", EXACT, integers, args=dict(value=value)):
            cases.append(dataclasses.replace(case, name=f"{value}_{case.name}"))
    for target in ALL:
        # A float beyond an integer's range has no value in PyTorch either.
        profiles = ("unit", "grid") if target not in FLOATS else ("unit", "each", "wide")
        if target == "bool":
            profiles = ("unit", "each", "wide")
        for profile in profiles:
            for layout in ("transposed", "sliced"):
                source = [profile, [5, 7], layout]
                dtypes = tuple(d for d in FLOATS if d != target)
                if target == "uint8" and profile in ("unit", "grid"):
                    source[0] = "positive"  # a negative float has no value in uint8
                cases.append(Case("Cast", f"{target}_{profile}_{layout}", [source],
                                  dict(dtype=target), dtypes, near=EXACT))
        for profile in ("unit", "each"):
            cases.append(Case("Cast", f"{target}_{profile}_integers",
                              [[profile, [3, 7], "transposed"]], dict(dtype=target),
                              tuple(d for d in INTS + ("bool",) if d != target), near=EXACT))
    for op in ("Tril", "Triu"):
        for diagonal in (0, 1, -2, 9):
            for shape, layout in (([3, 5], "dense"), ([2, 5, 3], "transposed"), ([4, 0], "dense")):
                cases.append(Case(op, f"{diagonal}_{len(shape)}_{layout}_{shape[-1]}",
                                  [["nonfinite", shape, layout]], dict(diagonal=diagonal),
                                  FLOATS, "TriangularMask", EXACT))
            cases.append(Case(op, f"{diagonal}_integers", [["unit", [3, 4], "sliced"]],
                              dict(diagonal=diagonal), INTS + ("bool",), "TriangularMask", EXACT))
    for name, to, source in (("same", ["unit", [3, 5], "dense"], ["unit", [3, 5], "transposed"]),
                             ("rows", ["unit", [3, 5], "dense"], ["unit", [5], "dense"]),
                             ("zero_dim", ["unit", [2, 3], "dense"], ["unit", [], "dense"]),
                             ("empty", ["unit", [0, 3], "dense"], ["unit", [1, 3], "dense"])):
        cases.append(Case("CopyInto", name, [to, source], dtypes=ALL, near=EXACT))
        cases.append(Case("CopyInto", f"{name}_cast", [to, [*source, "float32"]],
                          dtypes=("bfloat16", "float16", "float64"), near=EXACT))
    for dtype in ALL:
        for shape in ([], [0, 3], [3, 5]):
            cases.append(Case("Full", f"{dtype}_{'x'.join(map(str, shape))}", [],
                              dict(shape=shape, value=3 if dtype != "float32" else 0.1,
                                   dtype=dtype), ("float32",), near=EXACT))
    for dtype in NUMBERS:
        for start, end, step in ((0, 7, 1), (3, 50, 7), (5, 5, 1)):
            cases.append(Case("Arange", f"{dtype}_{start}_{end}_{step}", [],
                              dict(start=start, end=end, step=step, dtype=dtype), ("float32",),
                              near=EXACT))
    for dtype in ("float32", "float64", "bfloat16", "float16"):
        for start, end, step in ((0.5, 3.0, 0.25), (1.0, -1.0, -0.3), (0.0, 9.0, 0.1)):
            cases.append(Case("Arange", f"{dtype}_{start}_{end}_{step}", [],
                              dict(start=start, end=end, step=step, dtype=dtype), ("float32",)))
    return cases


PAIRS = [("same", [3, 5], "transposed", [3, 5], "dense"),
         ("rows", [3, 5], "sliced", [5], "dense"),
         ("both", [3, 1], "dense", [1, 5], "dense"),
         ("zero_dim", [], "dense", [3, 2], "transposed"),
         ("two_zero_dim", [], "dense", [], "dense"),
         ("empty", [0, 3], "dense", [1, 3], "dense"),
         ("four", [2, 1, 3, 1], "reversed", [5, 1, 2], "expanded"),
         ("expanded", [4, 3], "expanded", [4, 3], "offset")]


def binary_cases(op, near=ELEMENT, integers=INTS, row=None, args=None, first="unit",
                 second="unit", integer_second="unit"):
    args = args or {}
    cases = [Case(op, name, [[first, x, x_layout], [second, y, y_layout]], args, FLOATS, row, near)
             for name, x, x_layout, y, y_layout in PAIRS]
    # Every pair of special values.
    cases.append(Case(op, "special", [["each", [13, 1], "dense"], ["each", [13], "dense"]], args,
                      FLOATS, row, near))
    cases.append(Case(op, "ties", [["grid", [33], "dense"], ["grid", [33], "dense"]], args, FLOATS,
                      row, near))
    cases.append(Case(op, "wide", [["wide", [3, 13], "transposed"], ["wide", [3, 13], "dense"]],
                      args, FLOATS, row, near))
    if integers:
        for name, x, x_layout, y, y_layout in PAIRS[:5]:
            cases.append(Case(op, f"integers_{name}",
                              [["unit", x, x_layout], [integer_second, y, y_layout]], args,
                              integers, row, near))
        if integer_second == "unit":
            cases.append(Case(op, "integer_limits",
                              [["each", [7, 1], "dense"], ["each", [7], "dense"]], args, integers,
                              row, near))
    return cases


def broadcasting():
    everything = INTS + ("bool",)
    cases = binary_cases("Add", integers=everything)
    for alpha, integers in ((-2, SIGNED), (0.7, None)):
        for case in binary_cases("Add", ONE, integers, args=dict(alpha=alpha)):
            cases.append(dataclasses.replace(case, name=f"alpha{alpha}_{case.name}"))
    cases += binary_cases("Sub", row="Add")
    cases += binary_cases("Mul", integers=everything)
    cases += binary_cases("Div", integers=everything, second="positive")
    cases += binary_cases("Pow", integer_second="small", first="positive")
    cases += [Case("Pow", "negative_base", [["unit", [17], "dense"], ["grid", [17], "dense"]])]
    for op in ("Maximum", "Minimum", "Equal", "NotEqual", "Less", "LessEqual", "Greater",
               "GreaterEqual", "LogicalAnd", "LogicalOr"):
        # Of 0 and -0 PyTorch takes the one or the other, depending on the position.
        cases += binary_cases(op, VALUE if op in ("Maximum", "Minimum") else EXACT, everything)
    condition = ["unit", [3, 1], "dense", "bool"]
    for name, x, x_layout, y, y_layout in PAIRS[:5]:
        cases.append(Case("Where", name, [condition, ["nonfinite", x, x_layout],
                                          ["nonfinite", y, y_layout]], near=EXACT))
        cases.append(Case("Where", f"integers_{name}", [condition, ["unit", x, x_layout],
                                                        ["unit", y, y_layout]],
                          dtypes=everything, near=EXACT))
    cases.append(Case("Where", "empty", [["unit", [1], "dense", "bool"], ["unit", [0, 3], "dense"],
                                         ["unit", [1, 3], "dense"]], near=EXACT))
    return cases


def scalar_operands():
    cases = []
    values = {"AddScalar": (3, 0.1, -2.5), "SubScalar": (3, 0.1), "RSubScalar": (3, 0.1),
              "MulScalar": (3, 0.1, 0, -2.5), "DivScalar": (3, 0.1, -2.5, 0)}
    rows = {"SubScalar": "AddScalar", "RSubScalar": "AddScalar"}
    for op, choices in values.items():
        for value in choices:
            for case in unary_cases(op, integers=INTS if op in rows else INTS + ("bool",),
                                    row=rows.get(op), args=dict(value=value)):
                cases.append(dataclasses.replace(case, name=f"{value}_{case.name}"))
    for value in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 0.0):
        whole = isinstance(value, int) and value >= 0
        for case in unary_cases("PowScalar", integers=INTS if whole else None, positive=True,
                                args=dict(value=value)):
            if value == -2 and "wide" in case.name:
                # 1 / x^2, which is 0 where x^2 overflows: PyTorch's numbers, not its float64 ones.
                # (Its bfloat16 ones round x^2 first.)
                case = dataclasses.replace(case, near=EXACT, dtypes=("float32", "float64"))
            cases.append(dataclasses.replace(case, name=f"{value}_{case.name}"))
    cases += [Case("WhereScalar", f"{value}", [["unit", [3, 5], "transposed", "bool"],
                                               ["nonfinite", [5], "dense"]], dict(value=value),
                   row="Where") for value in (0, 0.1, 3)]
    return cases


DIMS = [dict(), dict(dims=[0]), dict(dims=[1], keepdim=True), dict(dims=[-1]),
        dict(dims=[0, 2]), dict(dims=[2, 1], keepdim=True), dict(dims=[0, 1, 2])]


def reductions():
    cases = []
    for op in ("Sum", "Mean", "Max", "Min", "All", "Any"):
        exact = op not in ("Sum", "Mean")
        near = VALUE if exact else SUM
        dtypes = FLOATS if op == "Mean" else ALL
        layouts = ("dense", "transposed", "reversed", "sliced", "expanded", "offset")
        for i, args in enumerate(DIMS):
            for layout in (layouts[i % 6], layouts[(i + 1) % 6]):
                cases.append(Case(op, f"{i}_{layout}", [["grid" if exact else "unit", [3, 5, 4],
                                                         layout]], args, dtypes, near=near))
        for dim in (0, 1):
            cases.append(Case(op, f"nonfinite_{dim}", [["nonfinite", [7, 3], "dense"]],
                              dict(dims=[dim]), near=near))
            cases.append(Case(op, f"special_{dim}", [["each", [3, 13], "transposed"]],
                              dict(dims=[dim]), near=near))
            cases.append(Case(op, f"wide_{dim}", [["wide", [7, 5], "transposed"]],
                              dict(dims=[dim]), near=near))
        cases.append(Case(op, "zero_dim", [["unit", [], "dense"]], {}, dtypes, near=near))
        cases.append(Case(op, "empty_kept", [["unit", [0, 3], "dense"]], dict(dims=[1]), dtypes,
                          near=near))
        if op in ("Sum", "Mean", "All", "Any"):
            cases.append(Case(op, "over_nothing", [["unit", [0, 3], "dense"]], dict(dims=[0]),
                              dtypes, near=near))
        cases.append(Case(op, "long_rows", [["unit", [3, 1031], "dense"]], dict(dims=[1]), FLOATS,
                          near=near, gradients=False))
        cases.append(Case(op, "long_columns", [["unit", [1031, 3], "dense"]], dict(dims=[0]),
                          FLOATS, near=near, gradients=False))
    for op in ("ArgMax", "ArgMin"):
        for dim in (0, 1, -1):
            for layout in ("dense", "transposed", "reversed", "sliced"):
                cases.append(Case(op, f"{dim}_{layout}", [["grid", [3, 5, 4], layout]],
                                  dict(dim=dim, keepdim=dim == 1), NUMBERS, near=EXACT))
            cases.append(Case(op, f"nonfinite_{dim}", [["nonfinite", [7, 3], "dense"]],
                              dict(dim=dim), near=EXACT))
        cases.append(Case(op, "zero_dim", [["unit", [], "dense"]], dict(dim=0), near=EXACT))
        cases.append(Case(op, "special", [["each", [3, 13], "dense"]], dict(dim=1), near=EXACT))
    return cases


def contractions():
    cases = []

    def matmul(name, a, b, a_layout="dense", b_layout="dense", profile="unit", **args):
        dtypes = FLOATS + SIGNED if profile == "unit" else FLOATS
        cases.append(Case("MatMul", name, [[profile, a, a_layout], [profile, b, b_layout]], args,
                          dtypes, near=SUM))

    matmul("matrices", [3, 5], [5, 7])
    matmul("strided", [3, 5], [5, 7], "transposed", "sliced")
    matmul("offset", [3, 5], [5, 2], "offset", "transposed")
    matmul("expanded", [3, 5], [5, 2], "expanded", "expanded")
    matmul("transposed", [5, 3], [7, 5], transpose_a=True, transpose_b=True)
    matmul("transposed_a", [2, 5, 3], [2, 5, 4], transpose_a=True)
    matmul("transposed_b", [2, 3, 5], [4, 5], transpose_b=True)
    matmul("batched", [2, 3, 4], [2, 4, 5], "reversed", "transposed")
    matmul("batch_broadcast", [2, 1, 3, 4], [3, 4, 2])
    matmul("one_matrix_for_batch", [2, 3, 4], [4, 5], "expanded")
    matmul("vectors", [5], [5])
    matmul("matrix_vector", [3, 5], [5], "transposed")
    matmul("vector_matrix", [5], [5, 3], "dense", "sliced")
    matmul("vector_batch", [5], [2, 5, 3])
    matmul("no_inner", [2, 0], [0, 3])
    matmul("no_rows", [0, 3], [3, 2])
    matmul("one", [1, 1], [1, 1])
    matmul("long_inner", [2, 133], [133, 3])
    matmul("larger", [17, 33], [33, 19])
    matmul("nonfinite", [5, 7], [7, 3], profile="nonfinite")
    for name, x, layout in (("vector", [3], "dense"), ("matrix", [4, 3], "transposed"),
                            ("batch", [2, 5, 3], "reversed"), ("empty", [0, 3], "dense"),
                            ("sliced", [4, 3], "sliced")):
        weight = ["unit", [5, 3], "transposed" if name == "batch" else "dense"]
        cases.append(Case("Linear", name, [["unit", x, layout], weight, ["unit", [5], "dense"]],
                          near=SUM))
        cases.append(Case("Linear", f"{name}_no_bias", [["unit", x, layout], weight], near=SUM))
    cases.append(Case("Linear", "larger", [["unit", [9, 37], "dense"], ["unit", [21, 37], "dense"],
                                           ["unit", [21], "dense"]], near=SUM))

    def attention(name, t, s, d, e, extra=(), layout="dense", profile="unit", **args):
        inputs = [[profile, [2, 3, t, d], layout], [profile, [2, 3, s, d], layout],
                  ["unit", [2, 3, s, e], layout], *extra]
        cases.append(Case("Attention", name, inputs, args, row="ScaledDotProductAttention",
                          near=SUM))

    attention("plain", 5, 5, 4, 4)
    attention("cross", 3, 7, 5, 2)
    attention("causal", 6, 6, 3, 3, causal=True)
    attention("causal_longer_keys", 3, 5, 4, 4, causal=True)
    attention("causal_strided", 5, 5, 4, 4, layout="transposed", causal=True)
    attention("scale", 4, 4, 3, 3, scale=0.3)
    attention("one", 1, 1, 1, 1)
    attention("added_mask", 3, 5, 4, 4, [["unit", [3, 5], "dense"]])
    attention("added_mask_broadcast", 3, 5, 4, 4, [["unit", [2, 1, 1, 5], "dense"]])
    # The first column is seen by all: rows that see nothing differ on purpose (docs/numerics.md).
    attention("mask", 4, 6, 4, 4, [["first_column", [4, 6], "dense", "bool"]])
    attention("no_rows", 0, 3, 2, 2)
    attention("dropout", 5, 7, 4, 3, p=0.4, seed=14, stream=2**16)
    attention("dropout_causal", 6, 6, 4, 4, causal=True, p=0.2, seed=15, stream=2**16 + 1)
    attention("longer", 19, 35, 7, 9, causal=False)
    return cases


def normalization():
    cases = []
    for op in ("Softmax", "LogSoftmax"):
        near = SUM if op == "LogSoftmax" else ELEMENT
        for dim in (0, 1, -1):
            for layout in ("dense", "transposed", "reversed", "expanded"):
                if dim == 0 and layout == "expanded":
                    layout = "offset"  # rows that are all equal have a gradient of rounding errors
                cases.append(Case(op, f"{dim}_{layout}", [["unit", [3, 5, 4], layout]],
                                  dict(dim=dim), near=near))
        for name, profile, shape in (("nonfinite", "nonfinite", [5, 7]), ("wide", "wide", [5, 7]),
                                     ("special", "each", [13, 3]), ("empty", "unit", [0, 3]),
                                     ("nothing", "unit", [3, 0]), ("one", "unit", [3, 1])):
            cases.append(Case(op, name, [[profile, shape, "dense"]], dict(dim=1), near=near))
        cases.append(Case(op, "long", [["unit", [3, 517], "dense"]], dict(dim=1), near=near,
                          gradients=False))
        cases.append(Case(op, "zero_dim", [["unit", [], "dense"]], dict(dim=0), near=near))
    for name, shape, layout, rank in (("rows", [3, 7], "dense", 1), ("one_row", [5], "dense", 1),
                                      ("two_dims", [2, 3, 4], "reversed", 2),
                                      ("strided", [4, 9], "transposed", 1),
                                      ("sliced", [3, 2, 5], "sliced", 1),
                                      ("empty", [0, 5], "dense", 1), ("long", [2, 261], "dense", 1)):
        parameter = ["unit", shape[-rank:], "dense"]
        for variant, extra, flags in (("", [parameter, parameter], {}),
                                      ("_plain", [], {}),
                                      ("_no_bias", [parameter], dict(bias=False)),
                                      ("_no_weight", [parameter], dict(weight=False, bias=True))):
            cases.append(Case("LayerNorm", name + variant, [["unit", shape, layout], *extra],
                              dict(normalized_rank=rank, epsilon=1e-3 if rank == 2 else 1e-5,
                                   **flags), near=SUM))
    cases.append(Case("LayerNorm", "nonfinite", [["nonfinite", [7, 5], "dense"]], {}, near=SUM))
    return cases


def losses(prefix):
    loss = "nn.CrossEntropyLoss" if prefix else "CrossEntropy"
    cases = []
    for reduction in ("none", "mean", "sum"):
        for smoothing in (0.0, 0.1, 1.0):
            for name, extra in (("", {}), ("_ignored", dict(ignored=3)),
                                ("_ignore_two", dict(ignore_index=2)),
                                ("_all_ignored", dict(ignored=1, ignore_index=-7))):
                cases.append(Case(loss, f"{reduction}_{smoothing}{name}",
                                  [["unit", [7, 5], "transposed" if name else "dense"],
                                   ["index:5", [7], "dense", "int64"]],
                                  dict(reduction=reduction, label_smoothing=smoothing, **extra),
                                  row="CrossEntropy", near=SUM))
        cases.append(Case(loss, f"{reduction}_one_row", [["unit", [5], "dense"],
                                                         ["index:5", [], "dense", "int64"]],
                          dict(reduction=reduction), row="CrossEntropy", near=SUM))
        cases.append(Case(loss, f"{reduction}_empty", [["unit", [0, 5], "dense"],
                                                       ["index:5", [0], "dense", "int64"]],
                          dict(reduction=reduction), row="CrossEntropy", near=SUM))
        for name, profile in (("nonfinite", "nonfinite"), ("wide", "wide")):
            cases.append(Case(loss, f"{reduction}_{name}", [[profile, [7, 5], "dense"],
                                                            ["index:5", [7], "dense", "int64"]],
                              dict(reduction=reduction), row="CrossEntropy", near=SUM))
        for shape, layout in (([3, 5], "transposed"), ([], "dense"), ([0, 2], "dense")):
            cases.append(Case(prefix + "MseLoss", f"{reduction}_{layout}_{len(shape)}",
                              [["unit", shape, layout], ["unit", shape, "dense"]],
                              dict(reduction=reduction), row="", near=SUM))
    return cases


def indexing():
    cases = []
    integer = INTS + ("bool",)
    for index_dtype in ("int64", "int32"):
        for name, shape in (("vector", [6]), ("matrix", [2, 4]), ("zero_dim", []), ("empty", [0])):
            cases.append(Case("Embedding", f"{name}_{index_dtype}",
                              [["unit", [5, 3], "transposed" if name == "matrix" else "dense"],
                               ["index:5", shape, "dense", index_dtype]], near=SUM))
        for dim, index_shape in ((0, [4, 3, 2]), (1, [3, 6, 4]), (-1, [2, 5, 3])):
            for layout in ("dense", "reversed"):
                index = [f"index:{[3, 5, 4][dim]}", index_shape, layout, index_dtype]
                name = f"{dim}_{layout}_{index_dtype}"
                cases.append(Case("Gather", name, [["nonfinite", [3, 5, 4], layout], index],
                                  dict(dim=dim), near=SUM))
                cases.append(Case("Gather", f"integers_{name}", [["unit", [3, 5, 4], layout], index],
                                  dict(dim=dim), integer, near=EXACT))
                for kind, dtypes in (("", FLOATS), ("integers_", INTS)):
                    cases.append(Case("ScatterAdd", kind + name,
                                      [["unit", [3, 5, 4], layout], index,
                                       ["unit", index_shape, layout]], dict(dim=dim), dtypes,
                                      near=SUM))
        for dim in (0, 1, -1):
            size = [3, 5, 4][dim]
            index = [f"index:{size}", [6], "dense", index_dtype]
            source = [3, 5, 4]
            source[dim] = 6
            for layout in ("dense", "transposed"):
                name = f"{dim}_{layout}_{index_dtype}"
                cases.append(Case("IndexSelect", name, [["nonfinite", [3, 5, 4], layout], index],
                                  dict(dim=dim), near=SUM))
                cases.append(Case("IndexSelect", f"integers_{name}",
                                  [["unit", [3, 5, 4], layout], index], dict(dim=dim), integer,
                                  near=EXACT))
                for kind, dtypes in (("", FLOATS), ("integers_", INTS)):
                    cases.append(Case("IndexAdd", kind + name,
                                      [["unit", [3, 5, 4], layout], index,
                                       ["unit", source, "dense"]], dict(dim=dim), dtypes,
                                      near=SUM))
    x = ["nonfinite", [3, 5], "transposed"]
    for op, dim, others in (("Concat", 0, [["unit", [2, 5], "dense"], ["unit", [0, 5], "dense"]]),
                            ("Concat", 1, [["unit", [3, 2], "sliced"]]),
                            ("Concat", -1, [["unit", [3, 1], "dense"], ["unit", [3, 4], "offset"]]),
                            ("Stack", 0, [["unit", [3, 5], "dense"]]),
                            ("Stack", 1, [["unit", [3, 5], "sliced"], ["unit", [3, 5], "dense"]]),
                            ("Stack", -1, [["unit", [3, 5], "expanded"]])):
        cases.append(Case(op, f"{dim}", [x, *others], dict(dim=dim), row="Concat", near=EXACT))
        cases.append(Case(op, f"integers_{dim}", [["unit", *x[1:]], *others], dict(dim=dim),
                          integer, row="Concat", near=EXACT))
    return cases


def views():
    cases = []

    def add(op, name, of, layout="dense", row=None, **args):
        for kind, profile, dtypes in (("", "nonfinite", FLOATS), ("_integers", "unit",
                                                                 INTS + ("bool",))):
            cases.append(Case(op, name + kind, [[profile, of, layout]], args, dtypes, row,
                              EXACT))

    add("View", "split", [6, 5], shape=[2, 3, 5])
    add("View", "inferred", [2, 3, 4], "offset", shape=[-1, 4])
    add("View", "strided", [4, 6], "sliced", shape=[2, 2, 6])
    add("View", "number", [1, 1], shape=[])
    add("View", "empty", [0, 3], shape=[3, 0, 2])
    add("Reshape", "copied", [3, 4], "transposed", "View", shape=[2, 6])
    add("Reshape", "expanded", [3, 4], "expanded", "View", shape=[12])
    add("Flatten", "middle", [2, 3, 4, 2], "reversed", "View", start=1, end=2)
    add("Flatten", "all", [2, 3], "transposed", "View", start=0, end=-1)
    add("Unsqueeze", "last", [3, 4], "transposed", "View", dim=-1)
    add("Unsqueeze", "first", [], "dense", "View", dim=0)
    add("Squeeze", "middle", [3, 1, 2], "reversed", "View", dim=1)
    add("Permute", "three", [2, 3, 4], "sliced", dims=[2, 0, 1])
    add("Permute", "negative", [2, 3], "dense", dims=[-1, 0])
    add("Permute", "none", [], "dense", dims=[])
    add("Transpose", "ends", [2, 3, 4], "offset", "Permute", dim0=0, dim1=-1)
    add("Expand", "rows", [1, 5], "dense", shape=[3, 5])
    add("Expand", "new_dims", [3, 1], "transposed", shape=[2, -1, 4])
    add("Expand", "number", [], "dense", shape=[2, 3])
    add("Expand", "to_nothing", [1, 3], "dense", shape=[0, 3])
    add("Slice", "step", [7, 3], "transposed", dim=0, start=1, end=6, step=2)
    add("Slice", "negative", [3, 8], "sliced", dim=1, start=-5, end=-1)
    add("Slice", "clamped", [3, 4], "dense", dim=-1, start=2, end=99)
    add("Slice", "empty", [3, 4], "dense", dim=0, start=2, end=1)
    add("Select", "middle", [3, 4, 2], "reversed", "Slice", dim=1, index=2)
    add("Select", "negative", [3, 4], "dense", "Slice", dim=0, index=-1)
    add("Split", "uneven", [7, 3], "transposed", dim=0, size=3)
    add("Split", "last", [2, 6], "sliced", dim=1, size=2)
    add("SplitSizes", "sizes", [2, 7], "dense", "Split", dim=1, sizes=[1, 0, 4, 2])
    add("Chunk", "uneven", [7, 2], "dense", "Split", dim=0, count=3)
    add("Chunk", "fewer", [5, 2], "dense", "Split", dim=0, count=4)
    return cases


def randoms():
    """Numbers of Philox, which values.py draws for PyTorch."""
    cases = []
    for shape in ([], [0, 3], [3, 5], [37]):
        name = "x".join(map(str, shape))
        for low, high in ((0.0, 1.0), (-2.0, 0.5)):
            cases.append(Case("RandomUniform", f"{name}_{low}", [],
                              dict(shape=shape, low=low, high=high, seed=11, stream=3),
                              ("float32",), near=ONE))
        cases.append(Case("RandomNormal", name, [],
                          dict(shape=shape, mean=0.5, std=2.0, seed=12, stream=2**40 + 1),
                          ("float32",), near=ONE))
    for p in (0.1, 0.5, 0.9):
        for shape, layout in (([5, 7], "transposed"), ([], "dense"), ([0, 3], "dense"),
                              ([3, 9], "sliced")):
            cases.append(Case("Dropout", f"{p}_{layout}_{len(shape)}", [["unit", shape, layout]],
                              dict(p=p, seed=13, stream=2**16)))
    return cases


def updates():
    cases = []
    parts = [["unit", [3, 5], "transposed"], ["unit", [], "dense"], ["unit", [0, 2], "dense"],
             ["unit", [7], "dense"]]
    for infinity in (False, True):
        if infinity:
            del parts[2]  # PyTorch has no largest element of nothing
        cases.append(Case("GlobalNorm", f"infinity_{infinity}", list(parts), dict(infinity=infinity),
                          ("float32", "float64"), near=SUM, gradients=False))
        cases.append(Case("GlobalNorm", f"nonfinite_{infinity}",
                          [*parts, ["nonfinite", [4], "dense"]], dict(infinity=infinity),
                          ("float32", "float64"), near=SUM, gradients=False))
    for inverse_scale in (1.0, 2.0**-10):
        for kind in ("unit", "nonfinite"):
            cases.append(Case("UnscaleAndCheck", f"{kind}_{inverse_scale}",
                              [*parts, [kind, [4], "dense"]], dict(inverse_scale=inverse_scale),
                              ("float32", "float16", "bfloat16"), gradients=False))
    for max_norm in (0.5, 100.0):
        cases.append(Case("ClipByNorm", f"{max_norm}", parts, dict(max_norm=max_norm),
                          ("float32", "float64"), gradients=False))
    return cases


def modules():
    cases = []
    unit = lambda *shape: ["unit", list(shape), "dense"]  # noqa: E731
    for x in (unit(3), unit(4, 3), ["unit", [2, 5, 3], "reversed"], unit(0, 3)):
        name = f"{len(x[1])}_{x[1][0]}"
        cases.append(Case("nn.Linear", name, [x, unit(5, 3), unit(5)], row="Linear", near=SUM))
        cases.append(Case("nn.Linear", f"{name}_no_bias", [x, unit(5, 3)], row="Linear", near=SUM))
    cases.append(Case("nn.Embedding", "matrix", [unit(7, 4), ["index:7", [2, 5], "dense", "int64"]],
                      row="Embedding", near=SUM))
    for shape, rank in (([3, 7], 1), ([2, 3, 4], 2)):
        parameter = unit(*shape[-rank:])
        for variant, extra, flags in (("", [parameter, parameter], {}), ("_plain", [], {}),
                                      ("_no_bias", [parameter], dict(bias=False))):
            cases.append(Case("nn.LayerNorm", f"{rank}{variant}", [unit(*shape), *extra],
                              dict(normalized_rank=rank, epsilon=1e-4, **flags), row="LayerNorm",
                              near=SUM))
    cases.append(Case("nn.Dropout", "evaluation", [["nonfinite", [3, 5], "transposed"]],
                      dict(p=0.4), row="", near=EXACT))
    for op in ("Relu", "Tanh", "Sigmoid", "Gelu"):
        cases.append(Case(f"nn.{op}", "plain", [["unit", [3, 5], "transposed"]], row=op, near=ONE))
    cases.append(Case("nn.Gelu", "tanh", [["unit", [3, 5], "transposed"]], dict(kind="tanh"),
                      row="Gelu", near=ONE))
    for heads, width, length in ((1, 4, 5), (3, 12, 7), (2, 6, 1)):
        cases.append(Case("nn.CausalSelfAttention", f"{heads}_{width}_{length}",
                          [unit(2, length, width), unit(3 * width, width), unit(3 * width),
                           unit(width, width), unit(width)], dict(heads=heads),
                          row="ScaledDotProductAttention", near=SUM))
    cases.append(Case("nn.CausalSelfAttention", "no_bias",
                      [unit(3, 4, 6), unit(18, 6), unit(6, 6)], dict(heads=2),
                      row="ScaledDotProductAttention", near=SUM))
    return cases + losses("nn.")


FAMILIES = {
    "elementwise": elementwise, "copies": copies, "broadcasting": broadcasting,
    "scalar_operands": scalar_operands, "reductions": reductions, "contractions": contractions,
    "normalization": normalization, "losses": lambda: losses(""), "indexing": indexing,
    "views": views, "randoms": randoms, "updates": updates, "modules": modules,
}
