#!/usr/bin/env python3
"""Trains the output of `chimera bench --export DIR` with torch.distributed.pipelining over Gloo.

    torch_pipelining.py DIR --schedule 1f1b --processes 2 --threads 1 --metrics FILE

It uses the same weights, batches, optimizer (AdamW, or Muon with AdamW) and clipping. FILE (default: $CHIMERA_METRICS) gets one JSON object per
step, as in `chimera train --metrics`. `--schedule none --processes 1` trains without a pipeline. Needs torch 2.11 with
all its Python dependencies, and safetensors.
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
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, schedules

# Name, class, stages per process, and whether the second half of the stages returns in a V.
SCHEDULES = {
    "gpipe": (schedules.ScheduleGPipe, 1, False),
    "1f1b": (schedules.Schedule1F1B, 1, False),
    "interleaved-1f1b": (schedules.ScheduleInterleaved1F1B, 2, False),
    "interleaved-zb": (schedules.ScheduleInterleavedZeroBubble, 2, False),
    "zbv": (schedules.ScheduleZBVZeroBubble, 2, True),
    "dualpipev": (schedules.ScheduleDualPipeV, 2, True),
}


class Stage(torch.nn.Module):
    """Layers `first` to `end` of a GPT-2, with embedding and head at its ends. Parameters keep their names."""

    def __init__(self, model, weights, first, end, splits=False):
        """`splits`: matrices of blocks are parameters out x in, and queries, keys and values one each, for Muon."""
        super().__init__()
        self.heads, self.layers, self.splits = model["heads"], range(first, end), splits
        self.is_first, self.is_last = first == 0, end == model["layers"]
        prefixes = [f"h.{layer}." for layer in self.layers]
        prefixes += ["wte.", "wpe."] * self.is_first + ["ln_f.", "lm_head."] * self.is_last
        own = {name: value for name, value in weights.items() if name.startswith(tuple(prefixes))}
        if splits:
            own = dict(matrix for item in own.items() for matrix in matrices(*item))
        self.values = torch.nn.ParameterDict({name.replace(".", "/"): value.clone() for name, value in own.items()})

    def get(self, name):
        return self.values[name.replace(".", "/")]

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.get(name + ".weight"), self.get(name + ".bias"), 1e-5)

    def linear(self, x, name):  # GPT-2 keeps these matrices as [in, out]
        weight = self.get(name + ".weight")
        return F.linear(x, weight if self.splits else weight.t(), self.get(name + ".bias"))

    def projections(self, x, name):
        """Returns queries, keys and values."""
        if not self.splits:
            return self.linear(x, name).chunk(3, dim=2)
        biases = self.get(name + ".bias").chunk(3)
        return [F.linear(x, self.get(f"{name}.weight.{i}"), bias) for i, bias in enumerate(biases)]

    def block(self, x, name):
        b, length, hidden = x.shape
        q, k, v = (part.view(b, length, self.heads, -1).transpose(1, 2)
                   for part in self.projections(self.norm(x, name + ".ln_1"), name + ".attn.c_attn"))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, length, hidden)
        x = x + self.linear(attended, name + ".attn.c_proj")
        inner = F.gelu(self.linear(self.norm(x, name + ".ln_2"), name + ".mlp.c_fc"), approximate="tanh")
        return x + self.linear(inner, name + ".mlp.c_proj")

    def forward(self, x):
        if self.is_first:
            x = F.embedding(x, self.get("wte.weight")) + self.get("wpe.weight")[: x.shape[1]]
        for layer in self.layers:
            x = self.block(x, f"h.{layer}")
        return F.linear(self.norm(x, "ln_f"), self.get("lm_head.weight")) if self.is_last else x


def matrices(name, value):
    """Returns the parameters of Muon in a stored one, by name."""
    if not name.startswith("h.") or value.dim() != 2:
        return [(name, value)]
    if not name.endswith("c_attn.weight"):
        return [(name, value.t().contiguous())]
    return [(f"{name}.{i}", part.t().contiguous()) for i, part in enumerate(value.chunk(3, dim=1))]


def iterate_in(dtype):
    """Makes torch.optim.Muon iterate in this type, with its own code."""
    import inspect

    from torch.optim import _muon

    text = inspect.getsource(_muon._zeropower_via_newtonschulz)
    if text.count(".bfloat16()") != 1:
        sys.exit("torch_pipelining.py: this version of torch has another Muon")
    exec(text.replace(".bfloat16()", f".to(torch.{dtype}, copy=True)"), vars(_muon))


class Trainer:
    """A process with its stages."""

    def __init__(self, options, rank):
        from safetensors.torch import load_file  # Here, so that others.py needs only torch for Stage

        folder = pathlib.Path(options.folder)
        self.job = json.loads((folder / "job.json").read_text())
        self.batches = load_file(folder / "batches.safetensors")
        self.rank, self.processes = rank, options.processes
        per_process, v_shaped = (1, False) if options.schedule == "none" else SCHEDULES[options.schedule][1:]
        self.num_stages = options.processes * per_process
        if v_shaped:
            self.held = [rank, self.num_stages - 1 - rank]
        else:
            self.held = [rank + options.processes * chunk for chunk in range(per_process)]
        weights = load_file(folder / "weights.safetensors")
        layers = self.job["model"]["layers"]
        cuts = [layers * s // self.num_stages for s in range(self.num_stages + 1)]
        is_muon = self.job["optimizer"] == "muon"
        self.modules = [Stage(self.job["model"], weights, cuts[s], cuts[s + 1], is_muon) for s in self.held]
        self.parameters = [p for module in self.modules for p in module.parameters()]
        if self.job["optimizer"] not in ("adamw", "muon") or self.job["decay"] != "matrices":
            sys.exit("torch_pipelining.py trains with AdamW or Muon, and matrices decay; leave out --decay")
        self.optimizers = self.make_optimizers()
        self.count = self.batches["targets"][0].numel()
        self.schedule = None if options.schedule == "none" else self.make_schedule(options.schedule)

    def make_optimizers(self):
        named = [pair for module in self.modules for pair in module.values.items()]
        decay = self.job["weight_decay"]
        optimizers = []
        if self.job["optimizer"] == "muon":
            if self.job["muon_exclude"]:
                sys.exit("torch_pipelining.py: leave out --muon-exclude")
            if self.job["muon_dtype"] != "bfloat16":
                iterate_in(self.job["muon_dtype"])
            optimizers.append(torch.optim.Muon(
                [p for name, p in named if name.startswith("h/") and p.dim() == 2], lr=1.0, weight_decay=decay,
                momentum=self.job["momentum"], adjust_lr_fn=self.job["muon_adjust"].replace("-", "_")))
            named = [(name, p) for name, p in named if not (name.startswith("h/") and p.dim() == 2)]
        groups = [{"params": [p for _, p in named if p.dim() >= 2], "weight_decay": decay},
                  {"params": [p for _, p in named if p.dim() < 2], "weight_decay": 0.0}]
        optimizers.append(torch.optim.AdamW([group for group in groups if group["params"]], lr=1.0,
                                            betas=self.job["betas"], eps=self.job["epsilon"], fused=True))
        return optimizers

    def make_schedule(self, name):
        kind, per_process, v_shaped = SCHEDULES[name]
        stages = [PipelineStage(module, index, self.num_stages, torch.device("cpu"))
                  for module, index in zip(self.modules, self.held)]
        options = {"loss_fn": self.loss, "scale_grads": False}
        schedule = kind(stages if per_process > 1 else stages[0], self.job["micro_batches"], **options)
        if v_shaped:  # The handshake of the first step sends from a process to itself, which Gloo refuses
            for stage in stages:
                stage._get_init_p2p_neighbors_ops = lambda: []
            schedules._wait_batch_p2p = skip_nothing(schedules._wait_batch_p2p)
            schedules._batch_p2p = skip_nothing(schedules._batch_p2p)
        return schedule

    def loss(self, logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum") / self.count

    def unpipelined(self, tokens, targets):
        losses = []
        for part, target in zip(tokens.split(self.job["micro_batch_size"]), targets.split(self.job["micro_batch_size"])):
            loss = self.loss(self.modules[0](part), target)
            loss.backward()
            losses.append(loss.detach())
        return losses

    def forward_and_backward(self, tokens, targets):
        if self.schedule is None:
            return self.unpipelined(tokens, targets)
        losses = []
        inputs = (tokens,) if 0 in self.held else ()
        ends = {"target": targets, "losses": losses} if self.num_stages - 1 in self.held else {}
        self.schedule.step(*inputs, return_outputs=False, **ends)
        return losses

    def step(self, step):
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=False)
        losses = self.forward_and_backward(self.batches["tokens"][step], self.batches["targets"][step])
        gradients = [p.grad for p in self.parameters]
        square = sum(norm.double() ** 2 for norm in torch._foreach_norm(gradients))
        numbers = torch.stack([torch.as_tensor(sum(losses), dtype=torch.float64), square])
        if self.processes > 1:
            dist.all_reduce(numbers)
        norm = numbers[1].sqrt().item()
        clip = self.job["clip"]
        if 0 < clip < norm:
            torch._foreach_mul_(gradients, clip / norm)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.job["learning_rates"][step]
            optimizer.step()
        return numbers[0].item(), norm

    def run(self, metrics):
        for step in range(len(self.batches["tokens"])):
            start = time.monotonic()
            loss, norm = self.step(step)
            seconds = time.monotonic() - start
            if self.rank != 0:
                continue
            line = {"step": step + 1, "loss": loss, "grad_norm": norm, "step_seconds": seconds,
                    "tokens_per_second": self.count / seconds}
            metrics.write(json.dumps(line) + "\n")
            metrics.flush()


def skip_nothing(function):
    """Returns `function`, except that it skips an empty list of transfers."""
    return lambda work, *rest, **named: function(work, *rest, **named) if work else []


def run_rank(rank, options, store):
    torch.set_num_threads(options.threads)
    torch.set_num_interop_threads(1)
    if options.processes > 1:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=options.processes)
    trainer = Trainer(options, rank)
    with open(options.metrics if rank == 0 else os.devnull, "w") as metrics:
        trainer.run(metrics)
    if options.processes > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--schedule", choices=["none", *SCHEDULES], default="1f1b")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--metrics", default=os.environ.get("CHIMERA_METRICS"))
    options = parser.parse_args()
    if options.metrics is None:
        parser.error("--metrics FILE is missing")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options, folder + "/store")
        if options.processes == 1:
            run_rank(0, *arguments)
        else:
            torch.multiprocessing.spawn(run_rank, arguments, options.processes)


if __name__ == "__main__":
    main()
