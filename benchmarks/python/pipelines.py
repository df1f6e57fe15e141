"""Compares chimerapipe with torch.distributed.pipelining: the same modules, weights and batches, in rounds that take turns.

    PYTHONPATH=build/python OMP_NUM_THREADS=1 torchrun --nproc-per-node 2 benchmarks/python/pipelines.py [--rounds 20]

A round runs one step of each, in an order that turns; printed are medians of the step times, ratios of times of the same
round (median and quartiles), and the losses.
"""

import argparse
import copy
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.pipelining import ScheduleInterleavedZeroBubble

import chimerapipe as cp

RANKS = 2
BATCHES = 8


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--micro-batch-size", type=int, default=2)
    return parser.parse_args()


def model(chosen):
    torch.manual_seed(1)
    sizes = {"dim_feedforward": 4 * chosen.hidden, "dropout": 0.0, "batch_first": True}
    return [nn.TransformerEncoderLayer(chosen.hidden, 4, **sizes) for _ in range(chosen.layers)]


def squares(output, target):
    return (output - target).square().sum()


def ours(layers, schedule, chosen):
    pipeline = cp.Pipeline(copy.deepcopy(layers), squares, schedule, micro_batch_size=chosen.micro_batch_size)
    return lambda x, y: pipeline.step(x, y).loss


def theirs(layers, kind, stages_a_rank, total):
    """A step of torch's schedule on contiguous stages, as many on each rank, dealt out in turn."""
    rank, stages = dist.get_rank(), RANKS * stages_a_rank
    size = len(layers) // stages
    held = []
    for index in range(rank, stages, RANKS):
        part = nn.Sequential(*copy.deepcopy(layers[index * size : (index + 1) * size]))
        held.append(PipelineStage(part, index, stages, torch.device("cpu")))
    arguments = {"n_microbatches": BATCHES, "loss_fn": lambda o, t: squares(o, t) / total, "scale_grads": False}
    schedule = kind(held if stages_a_rank > 1 else held[0], **arguments)
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
    layers = model(chosen)
    x = torch.randn(BATCHES * chosen.micro_batch_size, chosen.sequence, chosen.hidden)
    y = torch.randn_like(x)
    steps = {
        "ours 1f1b": ours(layers, cp.schedule("1f1b", RANKS, BATCHES), chosen),
        "ours zb-h1": ours(layers, cp.schedule("zb-h1", RANKS, BATCHES), chosen),
        "ours chimera": ours(layers, cp.schedule("chimera", RANKS, BATCHES), chosen),
        "ours chimera-zb": ours(layers, cp.schedule("chimera-zb", RANKS, BATCHES), chosen),
        "ours interleaved-zb": ours(layers, cp.schedule("interleaved-zb", RANKS, BATCHES), chosen),
        "torch GPipe": theirs(layers, ScheduleGPipe, 1, y.numel()),
        "torch 1F1B": theirs(layers, Schedule1F1B, 1, y.numel()),
        "torch Interleaved1F1B": theirs(layers, ScheduleInterleaved1F1B, 2, y.numel()),
        "torch InterleavedZeroBubble": theirs(layers, ScheduleInterleavedZeroBubble, 2, y.numel()),
    }
    times = {name: [] for name in steps}
    names = list(steps)
    losses = {name: timed(steps[name], x, y)[1] for name in names}  # warm-up
    for turn in range(chosen.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            times[name].append(timed(steps[name], x, y)[0])
    if dist.get_rank() == 0:
        report(times, losses)


def report(times, losses):
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name:28} {seconds * 1e3:8.1f} ms  loss {losses[name]:.7f}")
    best_of_ours, best_of_theirs = (
        min((name for name in medians if name.startswith(whose)), key=medians.get) for whose in ("ours", "torch")
    )
    for theirs_name in (best_of_theirs, "torch 1F1B"):
        print(f"{theirs_name} / {best_of_ours}: {ratio_text(times[theirs_name], times[best_of_ours])}")
    spread = max(losses.values()) - min(losses.values())
    print(f"losses differ by {spread:.1e}")


if __name__ == "__main__":
    main()
