# Copyright 2026 The Lockstep Authors
# SPDX-License-Identifier: Apache-2.0

"""The GPT training step, data-parallel step and decode loop in PyTorch: the peer of Lockstep's own benchmarks.

  torch_gpt.py --size nano|mini|small [--amp] [--compile] [--ckpt] [--fused] [--threads N]
  torch_gpt.py --size mini --ranks 2 --strategy ddp|fsdp        # Gloo, threads = cores / ranks
  torch_gpt.py --size small --decode                            # KV cache, batch 1
For the best allocator: LD_PRELOAD=libtcmalloc_minimal.so.4 (Debian: libtcmalloc-minimal4).
Prints one line. processor_ms: of all threads and ranks in a step (rank 0's median, times the ranks). flops = 6 * parameters * tokens + 6 * layers * width * block * tokens (causal half of attention).
peak_gflops: median of fp32 2048^3 matmuls interleaved with the steps. rss: above the value before the model exists.
"""
import argparse, os, resource, statistics, time
import torch, torch.nn as nn, torch.nn.functional as F, torch.utils.checkpoint

SIZES = dict(  # layers, heads, width, block, batch, vocabulary
    nano=(4, 4, 128, 64, 12, 65), mini=(6, 6, 384, 256, 8, 65), small=(12, 12, 768, 256, 2, 50304))


class Block(nn.Module):
    def __init__(s, C, H):
        super().__init__(); s.C, s.H = C, H
        s.ln1 = nn.LayerNorm(C); s.qkv = nn.Linear(C, 3 * C); s.proj = nn.Linear(C, C)
        s.ln2 = nn.LayerNorm(C); s.fc = nn.Linear(C, 4 * C); s.out = nn.Linear(4 * C, C)

    def forward(s, x, cache=None):
        b, t, c = x.shape
        q, k, v = (z.view(b, t, s.H, c // s.H).transpose(1, 2) for z in s.qkv(s.ln1(x)).split(c, 2))
        if cache is not None:
            n = cache['n']; cache['k'][:, :, n:n + t] = k; cache['v'][:, :, n:n + t] = v
            k, v = cache['k'][:, :, :n + t], cache['v'][:, :, :n + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None or t > 1)
        x = x + s.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + s.out(F.gelu(s.fc(s.ln2(x)), approximate='tanh'))


class GPT(nn.Module):
    def __init__(s, L, H, C, T, V, ckpt=False):
        super().__init__(); s.ckpt = ckpt
        s.wte = nn.Embedding(V, C); s.wpe = nn.Embedding(T, C)
        s.h = nn.ModuleList(Block(C, H) for _ in range(L)); s.lnf = nn.LayerNorm(C)
        s.head = nn.Linear(C, V, bias=False); s.head.weight = s.wte.weight

    def forward(s, i, y=None, caches=None):
        n = caches[0]['n'] if caches else 0
        x = s.wte(i) + s.wpe(torch.arange(n, n + i.shape[1]))
        for j, b in enumerate(s.h):
            if s.ckpt: x = torch.utils.checkpoint.checkpoint(b, x, use_reentrant=False)
            else: x = b(x, caches[j] if caches else None)
        x = s.head(s.lnf(x))
        return x if y is None else F.cross_entropy(x.view(-1, x.shape[-1]), y.view(-1))


def rss_mb():
    return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6


def gemm_gflops(n=2048):
    a, b = torch.randn(n, n), torch.randn(n, n); t = time.perf_counter(); a @ b
    return 2 * n**3 / (time.perf_counter() - t) / 1e9


def train(rank, a):
    torch.set_num_threads(max(1, a.threads // a.ranks)); torch.manual_seed(0)
    L, H, C, T, B, V = SIZES[a.size]; B //= a.ranks if a.ranks > 1 else 1
    gemm_gflops(256); base = rss_mb()
    m = GPT(L, H, C, T, V, a.ckpt); n = sum(q.numel() for q in m.parameters()); f = m
    if a.ranks > 1:
        import torch.distributed as dist
        os.environ.update(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(a.port)); dist.init_process_group('gloo', rank=rank, world_size=a.ranks)
        if a.strategy == 'ddp': f = nn.parallel.DistributedDataParallel(m, gradient_as_bucket_view=a.bucket_view)
        else:
            from torch.distributed.fsdp import fully_shard
            for b in m.h: fully_shard(b)
            fully_shard(m)
    if a.compile: f = torch.compile(f)
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3, **({'fused': True} if a.fused else {}))
    x, y = torch.randint(V, (B, T)), torch.randint(V, (B, T))

    def step():
        with torch.autocast('cpu', torch.bfloat16, enabled=a.amp): loss = f(x, y)
        loss.backward(); opt.step(); opt.zero_grad(set_to_none=True); return loss.detach()
    t0 = time.perf_counter(); step(); first = time.perf_counter() - t0
    for _ in range(2): step()
    ts, cpu, peak, top = [], [], [], 0.0; end = time.perf_counter() + a.seconds
    while (time.perf_counter() < end if a.ranks == 1 else len(ts) < a.steps):
        t, c = time.perf_counter(), time.process_time(); loss = step(); ts.append(time.perf_counter() - t); cpu.append(time.process_time() - c); top = max(top, rss_mb())
        if a.ranks == 1 and len(ts) % max(1, int(0.5 / ts[-1])) == 0: peak.append(gemm_gflops())
    med = statistics.median(ts); tok = B * T; fl = 6 * n * tok + 6 * L * C * T * tok
    pk = statistics.median(peak) if peak else float('nan')
    hw = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    if rank == 0:
        print(f"torch={torch.__version__} size={a.size} params={n/1e6:.2f}M ranks={a.ranks} strategy={a.strategy} amp={a.amp} compile={a.compile} ckpt={a.ckpt} fused={a.fused} "
              f"first_s={first:.2f} step_ms={med*1e3:.1f} tokens_per_second={tok*a.ranks/med:.0f} processor_ms={statistics.median(cpu)*1e3*a.ranks:.1f} gflops={fl*a.ranks/med/1e9:.0f} peak_gflops={pk:.0f} peak_share={fl/med/1e9/pk:.2f} "
              f"rss_above_base_mb={hw-base:.0f} loss={loss.item():.3f}")
    if a.ranks > 1: dist.destroy_process_group()


@torch.inference_mode()
def decode(a):
    torch.set_num_threads(a.threads); torch.manual_seed(0); L, H, C, T, B, V = SIZES[a.size]; T = max(T, 512)
    m = GPT(L, H, C, T, V).eval(); n = sum(q.numel() for q in m.parameters())
    if a.amp: m = m.bfloat16()
    dt = torch.bfloat16 if a.amp else torch.float32; pre, gen = 128, 128
    for trial in range(3):
        caches = [dict(k=torch.zeros(1, H, T, C // H, dtype=dt), v=torch.zeros(1, H, T, C // H, dtype=dt), n=0) for _ in range(L)]
        i = torch.randint(V, (1, pre)); t = time.perf_counter(); y = m(i, caches=caches)[:, -1].argmax(-1, keepdim=True); tp = time.perf_counter() - t
        for c in caches: c['n'] += pre
        t = time.perf_counter()
        for _ in range(gen):
            y = m(y, caches=caches)[:, -1].argmax(-1, keepdim=True)
            for c in caches: c['n'] += 1
        td = time.perf_counter() - t
    print(f"torch={torch.__version__} decode size={a.size} params={n/1e6:.1f}M amp={a.amp} prefill_tok_s={pre/tp:.0f} decode_tok_s={gen/td:.1f} weight_gb_s={n*(2 if a.amp else 4)*gen/td/1e9:.1f}")


if __name__ == '__main__':
    p = argparse.ArgumentParser()
    p.add_argument('--size', default='nano', choices=SIZES); p.add_argument('--threads', type=int, default=2); p.add_argument('--seconds', type=float, default=12)
    for o in ('amp', 'compile', 'ckpt', 'fused', 'decode', 'bucket_view'): p.add_argument('--' + o, action='store_true')
    p.add_argument('--ranks', type=int, default=1); p.add_argument('--strategy', default='single'); p.add_argument('--steps', type=int, default=15); p.add_argument('--port', type=int, default=29517)
    a = p.parse_args()
    if a.decode: decode(a)
    elif a.ranks > 1: torch.multiprocessing.spawn(train, (a,), a.ranks)
    else: train(0, a)
