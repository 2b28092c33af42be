# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes mlp_goldens.json: ten steps of an MLP in PyTorch, in float64, with each kind of optimizer.

    python3 make_goldens.py        # needs numpy and torch

mlp_parity_test.cc draws the same weights and batches (see philox.py) and compares the loss of each
step, the gradients of the first and the parameters after the last.
"""

import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import golden_file  # noqa: E402
import philox  # noqa: E402

CONFIG = dict(sizes=[5, 7, 3], batch=6, steps=10, seed=30)

OPTIMIZERS = {
    "sgd": dict(kind="sgd", lr=0.1, momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False),
    "momentum": dict(kind="sgd", lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.02,
                     nesterov=False),
    "nesterov": dict(kind="sgd", lr=0.05, momentum=0.8, dampening=0.0, weight_decay=0.02,
                     nesterov=True),
    "adamw": dict(kind="adamw", lr=0.01, beta1=0.8, beta2=0.99, epsilon=1e-6, weight_decay=0.05),
}


def make_optimizer(parameters, o):
    if o["kind"] == "sgd":
        return torch.optim.SGD(parameters, lr=o["lr"], momentum=o["momentum"],
                               dampening=o["dampening"], weight_decay=o["weight_decay"],
                               nesterov=o["nesterov"], foreach=False)
    return torch.optim.AdamW(parameters, lr=o["lr"], betas=(o["beta1"], o["beta2"]),
                             eps=o["epsilon"], weight_decay=o["weight_decay"], foreach=False)


def train(options, loss_kind):
    inputs, hidden, outputs = CONFIG["sizes"]
    model = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)).double()
    generator = philox.Generator(CONFIG["seed"])
    with torch.no_grad():
        for parameter in model.parameters():
            values = 0.5 * torch.from_numpy(generator.normal(tuple(parameter.shape))).double()
            parameter.copy_(values.float().double())
    optimizer = make_optimizer(model.parameters(), options)
    result = dict(loss=loss_kind, optimizer=options, losses=[])
    for step in range(CONFIG["steps"]):
        x = torch.from_numpy(generator.normal((CONFIG["batch"], inputs))).double()
        uniform = torch.from_numpy(generator.uniform((CONFIG["batch"], outputs))).double()
        if loss_kind == "mse":
            loss = F.mse_loss(model(x), uniform)
        else:
            loss = F.cross_entropy(model(x), (uniform[:, 0] * outputs).long())
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            result["gradients"] = {n: golden_file.values(p.grad)
                                   for n, p in model.named_parameters()}
        optimizer.step()
        result["losses"].append(loss.item())
    result["parameters"] = {n: golden_file.values(p) for n, p in model.named_parameters()}
    return result


def main():
    runs = {f"{name}_{loss}": train(options, loss)
            for name, options in OPTIMIZERS.items() for loss in ("mse", "cross_entropy")}
    golden_file.write(os.path.join(HERE, "mlp_goldens.json"),
                      dict(torch=torch.__version__, config=CONFIG, runs=runs))
    for name, run in runs.items():
        print(name, run["losses"][0], run["losses"][-1])


if __name__ == "__main__":
    main()
