# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""How far PyTorch's own gradients are from the goldens, in units of tolerances.json; as compare.cc."""

import json
import os

import numpy as np

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tolerances.json"),
          encoding="utf-8") as table:
    TABLE = json.load(table)


def excess(own, golden, dtype, near):
    """The largest distance of finite elements over what the table allows."""
    own, golden = (t.detach().double().numpy().reshape(-1) for t in (own, golden))
    finite = np.isfinite(own) & np.isfinite(golden)
    if not finite.any():
        return 0.0
    own, golden = own[finite], golden[finite]
    row = TABLE[dtype]
    allowed = row["element"] * np.abs(golden) + row["denormal"]
    if near == "sum":
        allowed = np.maximum(allowed, row["sum"] * np.abs(golden).max())
    allowed = row["gradient"] * (allowed + row["one"])
    return float((np.abs(own - golden) / allowed).max())
