# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes gpt2_goldens.json: ten AdamW steps of a small GPT-2 in PyTorch, in float64.

    python3 make_goldens.py        # needs numpy and torch; the versions used are in the file

gpt2_parity_test.cc draws the same weights and batches (see philox.py) and compares the loss of each
step and the gradients of the first.
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

CONFIG = dict(layers=2, heads=2, width=12, block=7, vocabulary=17, batch=3, steps=10, seed=20)
OPTIMIZER = dict(lr=2e-3, beta1=0.9, beta2=0.95, epsilon=1e-8, weight_decay=0.1, max_norm=1.0)


class Attention(nn.Module):

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2)
                   for z in self.c_attn(x).split(c, dim=2))
        # Written out, so that the golden does not depend on a fused kernel.
        scores = q @ k.transpose(2, 3) / (c // self.heads)**0.5
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        y = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(b, t, c))


class Mlp(nn.Module):

    def __init__(self, width):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.c_proj = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):

    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Transformer(nn.Module):

    def __init__(self, layers, heads, width, block, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(block, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class Gpt2(nn.Module):

    def __init__(self, layers, heads, width, block, vocabulary):
        super().__init__()
        self.transformer = Transformer(layers, heads, width, block, vocabulary)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, ids, targets):
        logits = self.lm_head(self.transformer(ids))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def draw_parameter(name, shape, generator):
    """Far from the usual initial values, so that every part of the model matters."""
    values = torch.from_numpy(generator.normal(tuple(shape))).double()
    if ".ln_" in name and name.endswith(".weight"):
        values = 1 + 0.1 * values
    else:
        values = 0.2 * values
    return values.float().double()  # Both precisions of the test start from float32 values.


def main():
    c = CONFIG
    model = Gpt2(c["layers"], c["heads"], c["width"], c["block"], c["vocabulary"]).double()
    generator = philox.Generator(c["seed"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(draw_parameter(name, parameter.shape, generator))
    o = OPTIMIZER
    optimizer = torch.optim.AdamW(model.parameters(), lr=o["lr"], betas=(o["beta1"], o["beta2"]),
                                  eps=o["epsilon"], weight_decay=o["weight_decay"], foreach=False)
    losses, norms, gradients = [], [], {}
    for step in range(c["steps"]):
        uniform = generator.uniform((c["batch"], c["block"] + 1)).astype("float64")
        ids = torch.from_numpy((uniform * c["vocabulary"]).astype("int64"))
        loss = model(ids[:, :-1], ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            gradients = {n: golden_file.values(p.grad) for n, p in model.named_parameters()}
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), o["max_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    golden = dict(torch=torch.__version__, config=c, optimizer=o, losses=losses, norms=norms,
                  gradients=gradients)
    golden_file.write(os.path.join(HERE, "gpt2_goldens.json"), golden)
    print("losses", losses, "norms", norms[:2])


if __name__ == "__main__":
    main()
