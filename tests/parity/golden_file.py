# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Golden files: JSON with one line a list of numbers."""

import json
import re


def values(tensor):
    """The elements in row-major order, 15 significant digits each."""
    return [float(f"{v:.14e}") for v in tensor.detach().reshape(-1).tolist()]


def write(path, golden):
    text = json.dumps(golden, indent=1)
    text = re.sub(r"\[[^\[\]{}\"]*\]", lambda m: re.sub(r"\s+", "", m.group(0)), text)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text + "\n")
