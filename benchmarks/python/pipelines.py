"""Compares chimerapipe with torch.distributed.pipelining: same modules, weights and batches, alternating rounds.

    PYTHONPATH=build/python OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/python/pipelines.py [--rounds 20] [--compiled]

A round runs one step of each, in changing order. Prints medians of the step times, ratios within rounds (median and
quartiles), and the losses. `no waiting` is a lower bound for any pipeline of these modules: each rank runs the whole
model on half of the micro-batches, without messages or all-reduces. --compiled runs ours, torch's 1F1B and the bound eagerly and with
`layer.compile()`, and prints how much compiling gains; its first steps, which compile, take a minute.
"""

import argparse
import copy
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining import ScheduleInterleavedZeroBubble

import chimerapipe as cp

RANKS = 2
BATCHES = 8
NO_WAITING = "no waiting"
COMPILED = ", compiled"
SCHEDULES = ["1f1b", "zb-h1", "chimera", "chimera-zb", "interleaved-zb"]


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    parser.add_argument("--compiled", action="store_true", help="compare compiled layers with eager ones")
    parser.add_argument("--vocabulary", type=int, default=0, help="a language model, between embedding and head; 0: none")
    return parser.parse_args()


@dataclass
class Model:
    """Layers, loss and a batch."""

    layers: list
    loss: Callable
    inputs: torch.Tensor
    targets: torch.Tensor


class Block(nn.Module):
    """A block of GPT-2. torch.compile leaves torch's own layers, such as nn.TransformerEncoderLayer, eager."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(hidden), nn.LayerNorm(hidden)])
        self.attention = nn.ModuleList([nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)])
        self.feed_forward = nn.ModuleList([nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)])

    def forward(self, x):
        projected = self.attention[0](self.norms[0](x)).unflatten(2, (3, self.heads, -1))
        q, k, v = (part.transpose(1, 2) for part in projected.unbind(2))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.attention[1](attended)
        return x + self.feed_forward[1](nn.functional.gelu(self.feed_forward[0](self.norms[1](x))))


def model(chosen):
    torch.manual_seed(1)
    sizes = {"dim_feedforward": 4 * chosen.hidden, "dropout": 0.0, "batch_first": True}
    layers = [Block(chosen.hidden, 4) if chosen.compiled else nn.TransformerEncoderLayer(chosen.hidden, 4, **sizes)
              for _ in range(chosen.layers)]
    shape = (BATCHES * chosen.micro_batch_size, chosen.sequence)
    if chosen.vocabulary == 0:
        x = torch.randn(*shape, chosen.hidden)
        return Model(layers, squares, x, torch.randn_like(x))
    ends = nn.Embedding(chosen.vocabulary, chosen.hidden), nn.Linear(chosen.hidden, chosen.vocabulary)
    tokens = [torch.randint(chosen.vocabulary, shape) for _ in range(2)]
    return Model([ends[0], *layers, ends[1]], cross_entropy, *tokens)


def squares(output, target):
    return (output - target).square().sum()


def cross_entropy(output, target):
    return nn.functional.cross_entropy(output.flatten(0, 1), target.flatten(), reduction="sum")


def copies(whole, is_compiled=False):
    """Returns copies of the layers, compiled one by one if asked."""
    layers = copy.deepcopy(whole.layers)
    for layer in layers if is_compiled else []:
        layer.compile()
    return layers


def ours(whole, schedule, chosen, is_compiled=False):
    layers = copies(whole, is_compiled)
    pipeline = cp.Pipeline(layers, whole.loss, schedule, micro_batch_size=chosen.micro_batch_size)
    return lambda x, y: pipeline.step(x, y).loss


def even(layers, stages):
    """Returns the layers of each stage in the even partition of cp.Pipeline."""
    size, more = divmod(len(layers), stages)
    return [size + (stage < more) for stage in range(stages)]


def balanced(whole, chosen):
    """Returns the partition with the least time of the slower rank, by layer times that rank 0 measured."""
    cut = [None]
    if dist.get_rank() == 0:
        costs = cp.profile(copy.deepcopy(whole.layers), whole.inputs[: chosen.micro_batch_size])
        cut = [cp.partition(costs, cp.schedule("1f1b", RANKS, BATCHES)).layers]
    dist.broadcast_object_list(cut)
    return list(cut[0])


def theirs(whole, kind, cut, is_compiled=False):
    """Returns a step of torch's schedule. Stages are contiguous and assigned to the ranks in turn."""
    layers = copies(whole, is_compiled)
    rank, total, ends = dist.get_rank(), whole.targets.numel(), list(itertools.accumulate(cut))
    held = []
    for index in range(rank, len(cut), RANKS):
        part = nn.Sequential(*layers[ends[index] - cut[index] : ends[index]])
        held.append(PipelineStage(part, index, len(cut), torch.device("cpu")))
    arguments = {"n_microbatches": BATCHES, "loss_fn": lambda o, t: whole.loss(o, t) / total, "scale_grads": False}
    schedule = kind(held if len(held) > 1 else held[0], **arguments)
    parameters = [parameter for stage in held for parameter in stage.submod.parameters()]

    def step(x, y):
        for parameter in parameters:
            parameter.grad = None
        losses = []
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
        loss = torch.tensor(float(sum(each.detach() for each in losses))) if losses else torch.zeros(())
        dist.broadcast(loss, RANKS - 1)
        return loss.item()

    return step


def without_waiting(whole, is_compiled=False):
    """Returns a step with the work of one rank: the whole model on its share of the micro-batches."""
    module = nn.Sequential(*copies(whole, is_compiled))

    def step(x, y):
        module.zero_grad()
        loss = 0.0
        for inputs, targets in list(zip(x.chunk(BATCHES), y.chunk(BATCHES), strict=True))[dist.get_rank() :: RANKS]:
            part = whole.loss(module(inputs), targets) / y.numel()
            part.backward()
            loss += part.item()
        summed = torch.tensor(loss)
        dist.all_reduce(summed)
        return summed.item()

    return step


def against_torch(whole, chosen):
    """Returns the steps of our schedules, torch's and the bound by name."""
    one, two = even(whole.layers, RANKS), even(whole.layers, 2 * RANKS)
    steps = {f"ours {name}": ours(whole, cp.schedule(name, RANKS, BATCHES), chosen) for name in SCHEDULES}
    steps |= {
        "torch GPipe": theirs(whole, ScheduleGPipe, one),
        "torch 1F1B": theirs(whole, Schedule1F1B, one),
        "torch Interleaved1F1B": theirs(whole, ScheduleInterleaved1F1B, two),
        "torch InterleavedZeroBubble": theirs(whole, ScheduleInterleavedZeroBubble, two),
        NO_WAITING: without_waiting(whole),
    }
    best_cut = balanced(whole, chosen)
    if best_cut != one:
        steps[f"torch 1F1B, layers {best_cut}"] = theirs(whole, Schedule1F1B, best_cut)
    return steps


def compiled_and_eager(whole, chosen):
    """Returns steps by name, each with eager and with compiled layers."""
    steps = {}
    for is_compiled, suffix in ((False, ""), (True, COMPILED)):
        for name in SCHEDULES:
            steps[f"ours {name}{suffix}"] = ours(whole, cp.schedule(name, RANKS, BATCHES), chosen, is_compiled)
        steps[f"torch 1F1B{suffix}"] = theirs(whole, Schedule1F1B, even(whole.layers, RANKS), is_compiled)
        steps[f"{NO_WAITING}{suffix}"] = without_waiting(whole, is_compiled)
    return steps


def timed(step, x, y):
    dist.barrier()
    start = time.perf_counter()
    loss = step(x, y)
    dist.barrier()
    return time.perf_counter() - start, loss


def ratio_text(theirs_times, our_times):
    ratios = [a / b for a, b in zip(theirs_times, our_times, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} (quartiles {low:.2f} to {high:.2f})"


def main():
    chosen = options()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    whole = model(chosen)
    x, y = whole.inputs, whole.targets
    steps = compiled_and_eager(whole, chosen) if chosen.compiled else against_torch(whole, chosen)
    times = {name: [] for name in steps}
    names = list(steps)
    losses = {name: timed(steps[name], x, y)[1] for name in names}  # Warm-up
    if chosen.compiled:
        if not torch._dynamo.utils.counters["stats"]["unique_graphs"]:
            raise SystemExit("pipelines.py: torch.compile left all layers eager")
    for turn in range(chosen.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(timed(steps[name], x, y)[0])
    if dist.get_rank() == 0:
        report(times, losses)


def report(times, losses):
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name:28} {seconds * 1e3:8.1f} ms  loss {losses[name]:.7f}")
    for name in medians:
        if name + COMPILED in times:
            print(f"{name} / {name}{COMPILED}: {ratio_text(times[name], times[name + COMPILED])}")
    best_of_ours, best_of_theirs = (
        min((name for name in medians if name.startswith(whose)), key=medians.get) for whose in ("ours", "torch")
    )
    for theirs_name in dict.fromkeys((best_of_theirs, "torch 1F1B")):
        for name in (best_of_ours, NO_WAITING):
            print(f"{theirs_name} / {name}: {ratio_text(times[theirs_name], times[name])}")
    spread = max(losses.values()) - min(losses.values())
    print(f"losses differ by {spread:.1e}")


if __name__ == "__main__":
    main()
