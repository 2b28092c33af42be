# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes ddp_goldens.json: what DistributedDataParallel of PyTorch leaves behind, on two gloo ranks.

    python3 make_ddp_goldens.py        # needs torch

ddp_parity_test.cc has the same scenarios: small models of one-element parameters a, b, c..., losses
that are sums of products. A scenario has, for each rank, gradients (null: none) and parameters in the
order in which they are noted. gradient_as_bucket_view changes none of them.
"""

import contextlib
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import golden_file  # noqa: E402

RANKS = 2


class Weights(nn.Module):
    """sum over terms of x times the product of the weights whose numbers are in the term."""

    def __init__(self, values):
        super().__init__()
        for i, value in enumerate(values):
            self.register_parameter("abcdefgh"[i], nn.Parameter(torch.tensor([float(value)])))

    def forward(self, x, terms):
        weights = list(self.parameters())
        total = torch.zeros(1)
        for term in terms:
            product = torch.full((1,), float(x))
            for i in term:
                product = product * weights[i]
            total = total + product
        return total.sum()


class Notes(list):
    def gradients(self, model):
        self.extend(None if p.grad is None else p.grad.item() for p in model.parameters())

    def parameters(self, model):
        self.extend(p.item() for p in model.parameters())


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5)


def no_sync(rank, notes, find_unused, views):
    """Where unused ones are allowed, a is used inside only, and c by none."""
    model = Weights([1, 2, 3] if find_unused else [1, 2])
    ddp = DDP(model, find_unused_parameters=find_unused, gradient_as_bucket_view=views)
    optimizer = sgd(model)
    for _ in range(3):
        optimizer.zero_grad()
        with ddp.no_sync():
            ddp(rank + 1, [[0], [0, 1]]).backward()
        ddp(2 * rank + 1, [[1]] if find_unused else [[1], [0]]).backward()
        notes.gradients(model)
        optimizer.step()
    notes.parameters(model)


UNUSED_STEPS = [([[0, 1]], [[0, 1]]), ([[0]], [[0, 1]]), ([[2]], [[2]]), ([[1]], [[2]]),
                ([[0, 1, 2]], [[0, 1, 2]])]


def unused(rank, notes, set_to_none, views):
    """What is unused differs over ranks and steps."""
    model = Weights([1, 2, 3])
    ddp = DDP(model, find_unused_parameters=True, gradient_as_bucket_view=views)
    optimizer = sgd(model)
    for terms in UNUSED_STEPS:
        optimizer.zero_grad(set_to_none=set_to_none)
        ddp(rank + 1, terms[rank]).backward()
        notes.gradients(model)
        optimizer.step()
        notes.parameters(model)


def accumulated(rank, notes, views):
    """Gradients that nobody cleared are averaged again with what the next backward adds."""
    model = Weights([1, 2])
    ddp = DDP(model, find_unused_parameters=True, gradient_as_bucket_view=views)
    for terms in ([[0, 1]], [[0, 1]], [[0]]):
        ddp(rank + 1, terms).backward()
        notes.gradients(model)


def static_graph(rank, notes, views):
    model = Weights([1, 2, 3])
    ddp = DDP(model, static_graph=True, gradient_as_bucket_view=views)
    optimizer = sgd(model)
    for step in range(3):
        optimizer.zero_grad()
        ddp(rank + 1 + step, [[0, 1], [0]]).backward()
        notes.gradients(model)
        optimizer.step()
    notes.parameters(model)


def join(rank, notes, divide_by_initial, views):
    model = Weights([1, 2])
    ddp = DDP(model, gradient_as_bucket_view=views)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    with ddp.join(divide_by_initial_world_size=divide_by_initial):
        for step in range(2 + 2 * rank):
            optimizer.zero_grad()
            ddp(rank + 1 + step, [[0, 1]]).backward()
            optimizer.step()
            notes.gradients(model)
    notes.parameters(model)


def thawed(rank, notes, views):
    """b is frozen for a step; the module is wrapped anew each time."""
    model = Weights([1, 2])
    optimizer = sgd(model)
    for frozen in (False, True, False):
        model.b.requires_grad_(not frozen)
        ddp = DDP(model, gradient_as_bucket_view=views)
        optimizer.zero_grad()
        ddp(rank + 1, [[0, 1]]).backward()
        notes.gradients(model)
        optimizer.step()
        notes.parameters(model)


class Counter(nn.Module):
    """w times a buffer that each forward pass adds the input to."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0]))
        self.register_buffer("total", torch.zeros(1))

    def forward(self, x):
        self.total.add_(x)
        return (self.w * self.total.clone()).sum()


def buffers(rank, notes, views):
    """Rank 0's go to all before each forward pass."""
    model = Counter()
    ddp = DDP(model, gradient_as_bucket_view=views)
    for step in range(3):
        model.zero_grad()
        ddp(float(rank + 1 + step)).backward()
        notes.append(model.total.item())
        notes.gradients(model)


def two_modules(rank, notes, views):
    """One backward through both."""
    first, second = Weights([1, 2]), Weights([3, 4])
    ddps = [DDP(m, gradient_as_bucket_view=views) for m in (first, second)]
    for step in range(2):
        first.zero_grad()
        second.zero_grad()
        (ddps[0](rank + 1, [[0, 1]]) * ddps[1](step + 1, [[0, 1]])).backward()
        notes.gradients(first)
        notes.gradients(second)


def dtypes(rank, notes, views):
    """Averages in 16 bits: sums of the ranks' gradients that are no numbers of the dtype."""
    for dtype, step in ((torch.float16, 2.0**-10), (torch.bfloat16, 2.0**-7)):
        model = Weights([1]).to(dtype)
        ddp = DDP(model, gradient_as_bucket_view=views)
        weight = model.a
        for mine in (1 + rank * step, 3 + rank * 5 * step, 40000.0 + 2000 * rank):
            model.zero_grad()
            ddp(mine, [])  # its forward pass prepares the reduction
            (weight * torch.tensor([mine], dtype=dtype)).sum().backward()
            notes.gradients(model)


def hooks(rank, notes, views):
    """Gradients that are no 16-bit numbers, and whose average is none."""
    for hook, step in ((default_hooks.fp16_compress_hook, 2.0**-10),
                       (default_hooks.bf16_compress_hook, 2.0**-7)):
        model = Weights([1])
        ddp = DDP(model, gradient_as_bucket_view=views)
        ddp.register_comm_hook(None, hook)
        for mine in (1 + rank * step, 3 + rank * 5 * step, 1.0 / 3 + rank, 40000.0 + 2000 * rank):
            model.zero_grad()
            ddp(mine, [[0]]).backward()
            notes.gradients(model)


SCENARIOS = {
    "no_sync": (no_sync, False), "no_sync_unused": (no_sync, True), "unused_zeros": (unused, False),
    "unused_none": (unused, True), "accumulated": (accumulated,), "static_graph": (static_graph,),
    "join_active": (join, False), "join_initial": (join, True), "thawed": (thawed,),
    "buffers": (buffers,), "two_modules": (two_modules,), "dtypes": (dtypes,), "hooks": (hooks,),
}


def run(rank, store, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    for name, (body, *arguments) in SCENARIOS.items():
        with_views, without = Notes(), Notes()
        body(rank, without, *arguments, views=False)
        body(rank, with_views, *arguments, views=True)
        assert with_views == without, name
        results[name, rank] = list(without)
    dist.destroy_process_group()


def main():
    store = os.path.join(HERE, "store")
    with contextlib.suppress(FileNotFoundError):
        os.remove(store)
    results = mp.Manager().dict()
    mp.spawn(run, args=(store, results), nprocs=RANKS)
    os.remove(store)
    scenarios = {name: [results[name, rank] for rank in range(RANKS)] for name in SCENARIOS}
    golden_file.write(os.path.join(HERE, "ddp_goldens.json"),
                      dict(torch=torch.__version__, scenarios=scenarios))
    for name, ranks in scenarios.items():
        print(name, *ranks, sep="\n  ")


if __name__ == "__main__":
    main()
