# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""Writes GPT-2 weight files as Hugging Face's transformers writes them, and what its model computes.

    python3 make_goldens.py        # needs torch, safetensors and transformers

gpt2_tied.safetensors     save_pretrained(): names with the prefix `transformer.`, no tied head
gpt2_original.safetensors as the published `gpt2` file: no prefix, with the mask buffers
gpt2_outputs.json         token ids and the float64 logits of that model

The attention's output matrices are square and far from symmetric: a reader that forgets to transpose
them is noticed in the logits.
"""

import json
import os
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
CONFIG = dict(n_layer=2, n_head=2, n_embd=6, n_positions=5, vocab_size=11)


def main():
    torch.manual_seed(7)
    config = transformers.GPT2Config(**CONFIG, bos_token_id=0, eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, safe_serialization=True)
        shutil.copy(os.path.join(folder, "model.safetensors"),
                    os.path.join(HERE, "gpt2_tied.safetensors"))

    block = CONFIG["n_positions"]
    original = {}
    for name, tensor in model.state_dict().items():
        if name != "lm_head.weight":
            original[name.removeprefix("transformer.")] = tensor.contiguous()
    for layer in range(CONFIG["n_layer"]):
        mask = torch.tril(torch.ones(block, block)).view(1, 1, block, block)
        original[f"h.{layer}.attn.bias"] = mask
        original[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(original, os.path.join(HERE, "gpt2_original.safetensors"), metadata={"format": "pt"})

    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 10, 0]])
    logits = model.double()(ids).logits
    golden = dict(transformers=transformers.__version__, config=CONFIG, ids=ids.tolist(),
                  logits=logits.reshape(-1).tolist())
    with open(os.path.join(HERE, "gpt2_outputs.json"), "w", encoding="utf-8") as out:
        out.write(json.dumps(golden) + "\n")


if __name__ == "__main__":
    main()
