"""Trains a model twice by one proven schedule: here, and in torch.distributed.pipelining, which reads it as CSV.

    torchrun --nproc-per-node 2 examples/side_by_side.py [SCHEDULE]

SCHEDULE: one of a single replica whose stages stand on ranks in turn: gpipe, 1f1b, zb-h1, interleaved-1f1b or
interleaved-zb (default). Rank 0 prints both losses of each step.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

import chimerapipe as cp

BATCHES, SIZE = 4, 2  # micro-batches of a step, and their samples


def squares(output, target):
    return (output - target).square().sum()


def theirs(layers, schedule, targets):
    """The ranks' own stages of `layers`, and torch's runtime with the order of `schedule`."""
    rank, stages = dist.get_rank(), schedule.stages
    size = len(layers) // stages
    held = [
        PipelineStage(nn.Sequential(*layers[s * size : (s + 1) * size]), s, stages, torch.device("cpu"))
        for s, worker in enumerate(schedule.placement[0])
        if worker == rank
    ]
    loss = lambda output, target: squares(output, target) / targets  # noqa: E731
    runtime = _PipelineScheduleRuntime(held, BATCHES, loss_fn=loss, scale_grads=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "schedule.csv"
        file.write_text(schedule.to_csv())
        runtime._load_csv(str(file), format="compute_only")
    return held, runtime


def step_of_theirs(held, runtime, x, y):
    """Runs a step; returns the loss on all ranks."""
    losses = []
    has_last = any(stage.is_last for stage in held)
    arguments = {"target": y, "losses": losses} if has_last else {}
    runtime.step(*([x] if any(stage.is_first for stage in held) else []), **arguments)
    loss = torch.stack([each.detach() for each in losses]).sum() if has_last else torch.zeros((), dtype=x.dtype)
    dist.all_reduce(loss)
    return loss.item()


def main():
    dist.init_process_group("gloo")
    name = sys.argv[1] if len(sys.argv) > 1 else "interleaved-zb"
    schedule = cp.schedule(name, stages=dist.get_world_size(), micro_batches=BATCHES)
    assert schedule.check() == []  # proven: it cannot deadlock
    torch.manual_seed(1)
    layers = [nn.Sequential(nn.Linear(16, 16), nn.Tanh()).double() for _ in range(8)]
    x, y = torch.randn(2, BATCHES * SIZE, 16, dtype=torch.float64)
    model = cp.Pipeline(copy.deepcopy(layers), squares, schedule, micro_batch_size=SIZE)
    held, runtime = theirs(layers, schedule, y.numel())
    parameters = [parameter for stage in held for parameter in stage.submod.parameters()]
    optimizers = [torch.optim.Adam(each, lr=0.01) for each in (model.parameters(), parameters)]
    for step in range(5):
        ours = model.step(x, y, optimizer=optimizers[0]).loss
        optimizers[1].zero_grad()
        loss = step_of_theirs(held, runtime, x, y)
        optimizers[1].step()
        if dist.get_rank() == 0:
            print(f"step {step}: here {ours:.12f}, in torch {loss:.12f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
