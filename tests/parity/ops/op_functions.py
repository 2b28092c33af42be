# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""What PyTorch calls for each binding of bindings_*.cc: name -> function(inputs, args)."""

import numpy as np
import torch
import torch.nn.functional as F
from values import DTYPES, philox


def _gelu(x, a):
    """With the limits of the gradient, 1 and 0, far from zero, where PyTorch's is NaN from infinity
    times zero: docs/numerics.md."""
    f = lambda z: F.gelu(z, approximate=a.get("kind", "none"))  # noqa: E731
    far = x[0].abs() >= 64
    y = torch.where(far, F.relu(x[0]), f(x[0].clamp(-64, 64).where(far, x[0])))
    return torch.where(x[0].isneginf(), f(x[0].detach()), y)


def _unary(f):
    return lambda x, a: f(x[0])


def _binary(f):
    return lambda x, a: f(x[0], x[1])


def _scalar(f):
    return lambda x, a: f(x[0], a["value"])


def _reduce(f):
    def run(x, a):
        dims = a.get("dims", [])
        # torch.all over no dimensions would be the identity.
        dims = dims or list(range(x[0].dim()))
        return f(x[0], dim=dims, keepdim=a.get("keepdim", False)) if dims else f(x[0], dim=())
    return run


def _all_or_any(f):
    # uint8 results are uint8 in PyTorch alone: docs/numerics.md.
    return lambda x, a: _reduce(f)(x, a).bool()


def _arg(f):
    return lambda x, a: f(x[0], dim=a["dim"], keepdim=a.get("keepdim", False))


def _matmul(x, a):
    left = x[0].transpose(-1, -2) if a.get("transpose_a") else x[0]
    right = x[1].transpose(-1, -2) if a.get("transpose_b") else x[1]
    return torch.matmul(left, right)


def _at(x, index):
    return x[index] if index < len(x) else None


def _layer_norm(x, a):
    rank = a.get("normalized_rank", 1)
    weight = x[1] if a.get("weight", len(x) > 1) else None
    bias = x[-1] if a.get("bias", len(x) > 2) else None
    return F.layer_norm(x[0], x[0].shape[-rank:], weight, bias, a.get("epsilon", 1e-5))


def _cross_entropy(x, a):
    target = x[1]
    if "ignored" in a:  # every ignored-th target
        target = target.clone()
        target.view(-1)[::a["ignored"]] = a.get("ignore_index", -100)
    return F.cross_entropy(x[0], target, reduction=a.get("reduction", "mean"),
                           ignore_index=a.get("ignore_index", -100),
                           label_smoothing=a.get("label_smoothing", 0.0))


def _attention(x, a):
    """Written out, so that the golden does not depend on a fused kernel."""
    q, k, v = x[:3]
    scale = a.get("scale", q.shape[-1]**-0.5)
    scores = q @ k.transpose(-1, -2) * scale
    if a.get("causal"):
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    if len(x) > 3:
        mask = x[3]
        scores = (scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool
                  else scores + mask)
    weights = scores.softmax(-1)
    return (_dropout([weights], a) if "p" in a else weights) @ v


def _self_attention(x, a):
    """x, c_attn.weight, c_attn.bias, c_proj.weight, c_proj.bias; or without the biases."""
    if len(x) == 3:
        x = [x[0], x[1], None, x[2], None]
    b, t, c = x[0].shape
    heads = a["heads"]
    q, k, v = (z.reshape(b, t, heads, c // heads).transpose(1, 2)
               for z in F.linear(x[0], x[1], x[2]).split(c, dim=2))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return F.linear(y.transpose(1, 2).reshape(b, t, c), x[3], x[4])


def _unscale_and_check(x, a):
    gradients, found_inf = [t.clone() for t in x], torch.zeros([])
    torch._amp_foreach_non_finite_check_and_unscale_(
        gradients, found_inf, torch.tensor(a["inverse_scale"]))
    return [*gradients, found_inf]


def _clip(x, a):
    tensors = [torch.zeros_like(t) for t in x]
    for tensor, gradient in zip(tensors, x):
        tensor.grad = gradient.clone()
    total = torch.nn.utils.get_total_norm([t.grad for t in tensors])
    torch.nn.utils.clip_grads_with_norm_(tensors, a["max_norm"], total)
    return [t.grad for t in tensors]


def _copy_into(x, a):
    # Its own storage, so that the destination's history is that of a copy.
    return x[0].clone().copy_(x[1])


def _uniform(x, a):
    """In [low, high), from Philox."""
    u = torch.from_numpy(philox.Generator(a["seed"], a["stream"]).uniform(tuple(a["shape"])))
    return (a["low"] + (a["high"] - a["low"]) * u.double()).float()


def _normal(x, a):
    generator = philox.Generator(a["seed"], a["stream"])
    return torch.from_numpy(generator.normal(tuple(a["shape"]), a["mean"], a["std"]))


def _dropout(x, a):
    """With the mask of Philox; x * mask in PyTorch would keep a NaN that the mask drops."""
    u = philox.Generator(a["seed"], a["stream"]).uniform(tuple(x[0].shape))
    return torch.where(torch.from_numpy(np.asarray(u >= a["p"])), x[0] / (1 - a["p"]), 0)


def _index(t):
    return t.long()


FUNCTIONS = {
    "Neg": _unary(torch.neg), "Abs": _unary(torch.abs), "Sign": _unary(torch.sign),
    "Exp": _unary(torch.exp), "Log": _unary(torch.log), "Sqrt": _unary(torch.sqrt),
    "Rsqrt": _unary(torch.rsqrt), "Reciprocal": _unary(torch.reciprocal),
    "Erf": _unary(torch.erf), "Tanh": _unary(torch.tanh), "Sigmoid": _unary(torch.sigmoid),
    "Relu": _unary(torch.relu), "LogicalNot": _unary(torch.logical_not),
    "IsFinite": _unary(torch.isfinite), "Clone": _unary(torch.clone),
    "Contiguous": lambda x, a: x[0].clone(memory_format=torch.contiguous_format),
    "Detach": _unary(lambda x: x.detach().clone()),
    "Gelu": _gelu,
    "Clamp": lambda x, a: torch.clamp(x[0], a["low"], a["high"]),
    "Fill": lambda x, a: x[0].clone().fill_(a["value"]),
    "Cast": lambda x, a: x[0].to(DTYPES[a["dtype"]]),
    "Tril": lambda x, a: torch.tril(x[0], a.get("diagonal", 0)),
    "Triu": lambda x, a: torch.triu(x[0], a.get("diagonal", 0)),
    "CopyToDevice": _unary(torch.clone), "CopyInto": _copy_into,
    "AddScalar": _scalar(torch.add), "SubScalar": _scalar(torch.sub),
    "RSubScalar": lambda x, a: a["value"] - x[0],
    "MulScalar": _scalar(torch.mul), "DivScalar": _scalar(torch.div),
    "PowScalar": _scalar(torch.pow),
    "Add": lambda x, a: torch.add(x[0], x[1], alpha=a.get("alpha", 1)),
    "Sub": _binary(torch.sub), "Mul": _binary(torch.mul), "Div": _binary(torch.div),
    "Pow": _binary(torch.pow), "Maximum": _binary(torch.maximum),
    "Minimum": _binary(torch.minimum), "Equal": _binary(torch.eq), "NotEqual": _binary(torch.ne),
    "Less": _binary(torch.lt), "LessEqual": _binary(torch.le), "Greater": _binary(torch.gt),
    "GreaterEqual": _binary(torch.ge), "LogicalAnd": _binary(torch.logical_and),
    "LogicalOr": _binary(torch.logical_or),
    "Where": lambda x, a: torch.where(x[0], x[1], x[2]),
    "WhereScalar": lambda x, a: torch.where(x[0], x[1], a["value"]),
    "Sum": _reduce(torch.sum), "Mean": _reduce(torch.mean), "Max": _reduce(torch.amax),
    "Min": _reduce(torch.amin), "All": _all_or_any(torch.all), "Any": _all_or_any(torch.any),
    "ArgMax": _arg(torch.argmax), "ArgMin": _arg(torch.argmin),
    "MatMul": _matmul, "Linear": lambda x, a: F.linear(x[0], x[1], _at(x, 2)),
    "Softmax": lambda x, a: torch.softmax(x[0], a["dim"]),
    "LogSoftmax": lambda x, a: torch.log_softmax(x[0], a["dim"]),
    "LayerNorm": _layer_norm, "CrossEntropy": _cross_entropy, "Attention": _attention,
    "MseLoss": lambda x, a: F.mse_loss(x[0], x[1], reduction=a.get("reduction", "mean")),
    "Embedding": lambda x, a: F.embedding(x[1], x[0]),
    "Gather": lambda x, a: torch.gather(x[0], a["dim"], _index(x[1])),
    "ScatterAdd": lambda x, a: torch.scatter_add(x[0], a["dim"], _index(x[1]), x[2]),
    "IndexSelect": lambda x, a: torch.index_select(x[0], a["dim"], x[1]),
    "IndexAdd": lambda x, a: torch.index_add(x[0], a["dim"], x[1], x[2]),
    "Concat": lambda x, a: torch.cat(x, a["dim"]),
    "Stack": lambda x, a: torch.stack(x, a["dim"]),
    "View": lambda x, a: x[0].view(a["shape"]),
    "Reshape": lambda x, a: x[0].reshape(a["shape"]),
    "Flatten": lambda x, a: x[0].flatten(a["start"], a["end"]),
    "Unsqueeze": lambda x, a: x[0].unsqueeze(a["dim"]),
    "Squeeze": lambda x, a: x[0].squeeze(a["dim"]),
    "Permute": lambda x, a: x[0].permute(a["dims"]),
    "Transpose": lambda x, a: x[0].transpose(a["dim0"], a["dim1"]),
    "Expand": lambda x, a: x[0].expand(a["shape"]),
    "Slice": lambda x, a: x[0].movedim(a["dim"], 0)[a["start"]:a.get("end"):a.get("step", 1)]
    .movedim(0, a["dim"]),
    "Select": lambda x, a: x[0].select(a["dim"], a["index"]),
    "Split": lambda x, a: list(x[0].split(a["size"], a["dim"])),
    "SplitSizes": lambda x, a: list(x[0].split(a["sizes"], a["dim"])),
    "Chunk": lambda x, a: list(x[0].chunk(a["count"], a["dim"])),
    "Full": lambda x, a: torch.full(a["shape"], a["value"], dtype=DTYPES[a["dtype"]]),
    "Arange": lambda x, a: torch.arange(a["start"], a["end"], a["step"], dtype=DTYPES[a["dtype"]]),
    "RandomUniform": _uniform, "RandomNormal": _normal, "Dropout": _dropout,
    "GlobalNorm": lambda x, a: torch.nn.utils.get_total_norm(
        x, float("inf") if a.get("infinity") else 2.0),
    "ClipByNorm": _clip,
    "UnscaleAndCheck": _unscale_and_check,
    "nn.Linear": lambda x, a: F.linear(x[0], x[1], _at(x, 2)),
    "nn.Embedding": lambda x, a: F.embedding(x[1], x[0]),
    "nn.LayerNorm": _layer_norm,
    "nn.Dropout": lambda x, a: F.dropout(x[0], a["p"], training=False),
    "nn.Relu": _unary(F.relu), "nn.Tanh": _unary(torch.tanh), "nn.Sigmoid": _unary(torch.sigmoid),
    "nn.Gelu": _gelu,
    "nn.CausalSelfAttention": _self_attention,
    "nn.CrossEntropyLoss": _cross_entropy,
    "nn.MseLoss": lambda x, a: F.mse_loss(x[0], x[1], reduction=a.get("reduction", "mean")),
}
