#!/usr/bin/env python3
"""Trains the output of `chimera bench --export DIR` with torch's parallelize_module over Gloo.

    torch_tensor_parallel.py DIR --processes 2 --threads 1 --metrics FILE

The split is that of `chimera train --tensor-parallel`: columns, rows, rows of the vocabulary, with loss_parallel(). It
uses the same weights, batches, optimizer and clipping as torch_pipelining.py, and writes the same metrics.
"""
import argparse
import json
import os
import pathlib
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from safetensors.torch import load_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module


class Block(torch.nn.Module):
    def __init__(self, model, weights, name, ranks):
        super().__init__()
        hidden, inner, self.heads = model["hidden"], model["feed_forward"], model["heads"] // ranks
        linears = {"q": (hidden, hidden), "k": (hidden, hidden), "v": (hidden, hidden), "o": (hidden, hidden),
                   "fc": (hidden, inner), "proj": (inner, hidden)}
        for key, (rows, columns) in linears.items():
            setattr(self, key, torch.nn.Linear(rows, columns))
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        with torch.no_grad():
            for key, part in zip("qkv", weights[name + ".attn.c_attn.weight"].t().chunk(3)):
                getattr(self, key).weight.copy_(part)
            for key, part in zip("qkv", weights[name + ".attn.c_attn.bias"].chunk(3)):
                getattr(self, key).bias.copy_(part)
            for key, stored in (("o", "attn.c_proj"), ("fc", "mlp.c_fc"), ("proj", "mlp.c_proj")):
                getattr(self, key).weight.copy_(weights[f"{name}.{stored}.weight"].t())
                getattr(self, key).bias.copy_(weights[f"{name}.{stored}.bias"])
            for norm in ("ln_1", "ln_2"):
                getattr(self, norm).weight.copy_(weights[f"{name}.{norm}.weight"])
                getattr(self, norm).bias.copy_(weights[f"{name}.{norm}.bias"])

    def forward(self, x):
        b, length, _ = x.shape
        normed = self.ln_1(x)
        q, k, v = (layer(normed).view(b, length, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, length, -1)
        x = x + self.o(attended)
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(torch.nn.Module):
    def __init__(self, model, weights, ranks):
        super().__init__()
        hidden, vocabulary = model["hidden"], model["vocabulary"]
        self.wte, self.wpe = torch.nn.Embedding(vocabulary, hidden), torch.nn.Parameter(weights["wpe.weight"].clone())
        self.blocks = torch.nn.ModuleList(Block(model, weights, f"h.{i}", ranks) for i in range(model["layers"]))
        self.ln_f, self.lm_head = torch.nn.LayerNorm(hidden), torch.nn.Linear(hidden, vocabulary, bias=False)
        with torch.no_grad():
            self.wte.weight.copy_(weights["wte.weight"])
            self.ln_f.weight.copy_(weights["ln_f.weight"])
            self.ln_f.bias.copy_(weights["ln_f.bias"])
            self.lm_head.weight.copy_(weights["lm_head.weight"])

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.lm_head(self.ln_f(x))


def split(model, mesh):
    plan = {"wte": RowwiseParallel(input_layouts=Replicate()),
            "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    for i in range(len(model.blocks)):
        for key in ("q", "k", "v", "fc"):
            plan[f"blocks.{i}.{key}"] = ColwiseParallel()
        for key in ("o", "proj"):
            plan[f"blocks.{i}.{key}"] = RowwiseParallel()
    return parallelize_module(model, mesh, plan)


def clip(parameters, largest):
    """Clips by the norm of all gradients and returns it. clip_grad_norm_() does not take DTensors and tensors together."""
    groups = [[p for p in parameters if isinstance(p, DTensor) == sharded] for sharded in (True, False)]
    norms = [torch.nn.utils.get_total_norm([p.grad for p in group], foreach=False) for group in groups if group]
    norm = torch.stack([n.full_tensor() if isinstance(n, DTensor) else n for n in norms]).norm().item()
    if norm > largest:
        for parameter in parameters:
            parameter.grad.mul_(largest / (norm + 1e-6))
    return norm


class SumClock:
    """Counts the seconds of this rank in collectives of DTensor: their starts and the waits for their results."""

    def __init__(self):
        self.seconds, self.is_inside = 0.0, False
        for name in ("all_reduce", "all_gather_tensor", "reduce_scatter_tensor", "wait_tensor"):
            self.measure(functional, name)
        for name in ("trigger_wait", "wait"):
            self.measure(functional.AsyncCollectiveTensor, name)

    def measure(self, owner, name):
        function = getattr(owner, name)

        def timed(*arguments, **keywords):
            if self.is_inside:
                return function(*arguments, **keywords)
            self.is_inside, start = True, time.monotonic()
            try:
                return function(*arguments, **keywords)
            finally:
                self.is_inside = False
                self.seconds += time.monotonic() - start

        setattr(owner, name, timed)


def run_rank(rank, options, store):
    clock = SumClock()
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=options.processes)
    folder = pathlib.Path(options.folder)
    job, batches = json.loads((folder / "job.json").read_text()), load_file(folder / "batches.safetensors")
    mesh = init_device_mesh("cpu", (options.processes,))
    model = split(Gpt2(job["model"], load_file(folder / "weights.safetensors"), options.processes), mesh)
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": job["weight_decay"]},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=job["betas"], eps=job["epsilon"], foreach=False)
    count = batches["targets"][0].numel()
    with open(options.metrics if rank == 0 else os.devnull, "w") as metrics:
        for step in range(len(batches["tokens"])):
            clock.seconds, start = 0.0, time.monotonic()
            optimizer.zero_grad(set_to_none=True)
            total = 0.0
            size = job["micro_batch_size"]
            for tokens, targets in zip(batches["tokens"][step].split(size), batches["targets"][step].split(size)):
                with loss_parallel():
                    loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="sum") / count
                    loss.backward()
                total += (loss.full_tensor() if isinstance(loss, DTensor) else loss).item()
            norm = clip(parameters, job["clip"] or float("inf"))
            for group in optimizer.param_groups:
                group["lr"] = job["learning_rates"][step]
            optimizer.step()
            seconds = time.monotonic() - start
            if rank == 0:
                metrics.write(json.dumps({"step": step + 1, "loss": total, "grad_norm": norm, "step_seconds": seconds,
                                          "tokens_per_second": count / seconds, "op_sum_seconds": clock.seconds}) + "\n")
                metrics.flush()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--metrics", default=os.environ.get("CHIMERA_METRICS"))
    options = parser.parse_args()
    if options.metrics is None:
        parser.error("--metrics FILE is missing")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run_rank, (options, folder + "/store"), options.processes)


if __name__ == "__main__":
    sys.exit(main())
