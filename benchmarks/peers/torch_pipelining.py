#!/usr/bin/env python3
"""Trains the output of `chimera bench --export DIR` with torch.distributed.pipelining over Gloo.

    torch_pipelining.py DIR --schedule 1f1b --processes 2 --threads 1 --metrics FILE

It uses the same weights, batches, optimizer and clipping. FILE (default: $CHIMERA_METRICS) gets one JSON object per
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

    def __init__(self, model, weights, first, end):
        super().__init__()
        self.heads, self.layers = model["heads"], range(first, end)
        self.is_first, self.is_last = first == 0, end == model["layers"]
        prefixes = [f"h.{layer}." for layer in self.layers]
        prefixes += ["wte.", "wpe."] * self.is_first + ["ln_f.", "lm_head."] * self.is_last
        self.values = torch.nn.ParameterDict(
            {name.replace(".", "/"): value.clone() for name, value in weights.items()
             if name.startswith(tuple(prefixes))})

    def get(self, name):
        return self.values[name.replace(".", "/")]

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.get(name + ".weight"), self.get(name + ".bias"), 1e-5)

    def linear(self, x, name):  # GPT-2 keeps these matrices as [in, out]
        return F.linear(x, self.get(name + ".weight").t(), self.get(name + ".bias"))

    def block(self, x, name):
        b, length, hidden = x.shape
        q, k, v = (part.view(b, length, self.heads, -1).transpose(1, 2)
                   for part in self.linear(self.norm(x, name + ".ln_1"), name + ".attn.c_attn").chunk(3, dim=2))
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
        self.modules = [Stage(self.job["model"], weights, cuts[s], cuts[s + 1]) for s in self.held]
        self.parameters = [p for module in self.modules for p in module.parameters()]
        if (self.job["optimizer"], self.job["decay"]) != ("adamw", "matrices"):
            sys.exit("torch_pipelining.py trains with AdamW, and matrices decay; leave out --optimizer and --decay")
        matrices = [p for p in self.parameters if p.dim() >= 2]
        others = [p for p in self.parameters if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": self.job["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            lr=1.0, betas=self.job["betas"], eps=self.job["epsilon"], fused=True)
        self.count = self.batches["targets"][0].numel()
        self.schedule = None if options.schedule == "none" else self.make_schedule(options.schedule)

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
        self.optimizer.zero_grad(set_to_none=False)
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
        for group in self.optimizer.param_groups:
            group["lr"] = self.job["learning_rates"][step]
        self.optimizer.step()
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
