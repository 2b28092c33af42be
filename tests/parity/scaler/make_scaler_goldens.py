# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes scaler_goldens.json: what torch.amp.GradScaler does with scripted gradients.

    python3 make_scaler_goldens.py           # needs torch

Two optimizers share a scaler for 60 iterations. In each, a script says for either optimizer whether
its scaled gradients are finite (.), have an infinity (i) or a NaN (n), or whether it sits out (-),
and whether its gradients are unscaled by hand first (upper case; F: finite). Noted after each
iteration: scale, growth tracker, which optimizer stepped, and both parameters.
"""

import math
import os
import sys

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import golden_file  # noqa: E402

FIRST = "...i..F.NN....-.....ii..I..F....n.n...-........iiiii....F..."
SECOND = "..F...n....I...-..i.....F.......F...-...n.........F.i......."
RUNS = {
    "defaults": dict(),
    "short": dict(init_scale=8.0, growth_interval=2),
    "odd": dict(init_scale=1000.0, growth_factor=1.7, backoff_factor=0.3, growth_interval=3),
    "every_step": dict(init_scale=2.0**120, growth_interval=1, growth_factor=4.0),
}
SET_SCALE = {30: 48.0}  # iteration: what update() is given, in the run "odd"


def true_gradient(step, index):
    return [math.sin(0.7 * step + index), 0.25 * (step % 5) - 0.5]


def run(options, set_scale):
    scaler = torch.amp.GradScaler("cpu", **options)
    parameters = [torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    optimizers = [torch.optim.SGD([parameters[0]], lr=0.5, momentum=0.9),
                  torch.optim.Adam([parameters[1]], lr=0.25)]
    scaler.scale(torch.ones([]))  # makes the scale
    trace = []
    for step, whats in enumerate(zip(FIRST, SECOND)):
        before = [p.detach().clone() for p in parameters]
        for index, what in enumerate(whats):
            if what == "-":
                continue
            gradient = torch.tensor(true_gradient(step, index)) * scaler.get_scale()
            if what in "iI":
                gradient[0] = -math.inf
            if what in "nN":
                gradient[1] = math.nan
            parameters[index].grad = gradient
            if what.isupper():
                scaler.unscale_(optimizers[index])
            scaler.step(optimizers[index])
        if whats != ("-", "-"):
            scaler.update(set_scale.get(step))
        state = scaler.state_dict()
        trace.append(dict(
            scale=state["scale"], tracker=state["_growth_tracker"],
            stepped=[int(not torch.equal(b, p)) for b, p in zip(before, parameters)],
            parameters=[float(f"{v:.8e}") for p in parameters for v in p.tolist()]))
    return trace


def main():
    golden_file.write(
        os.path.join(HERE, "scaler_goldens.json"),
        dict(torch=torch.__version__, first=FIRST, second=SECOND,
             runs={name: dict(options=options, set_scale=SET_SCALE if name == "odd" else {},
                              trace=run(options, SET_SCALE if name == "odd" else {}))
                   for name, options in RUNS.items()}))


if __name__ == "__main__":
    main()
