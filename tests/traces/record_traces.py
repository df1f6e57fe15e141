"""Runs a small model with torch.distributed.pipelining under torch.profiler, and writes one trace per rank.

Each rank is a process of this host, connected by Gloo. The schedule is a class of torch (`interleaved_1f1b`, ...), or
a CSV file for the table runtime. The last step times are printed as JSON, measured without the profiler.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining
from torch.distributed.pipelining import schedules

CLASSES = {
    "gpipe": "ScheduleGPipe",
    "1f1b": "Schedule1F1B",
    "looped_bfs": "ScheduleLoopedBFS",
    "interleaved_1f1b": "ScheduleInterleaved1F1B",
    "interleaved_zb": "ScheduleInterleavedZeroBubble",
    "zbv": "ScheduleZBVZeroBubble",
    "dualpipev": "ScheduleDualPipeV",
}
V_SHAPED = ("zbv", "dualpipev")


class Sleep(torch.autograd.Function):
    """Takes a fixed time forward and backward without using a core, for more ranks than cores."""

    @staticmethod
    def forward(context, inputs, seconds):
        context.seconds = seconds
        time.sleep(seconds)
        return inputs.view_as(inputs)

    @staticmethod
    def backward(context, gradient):
        time.sleep(context.seconds)
        return gradient, None


class Block(nn.Module):
    def __init__(self, width, sleep):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.sleep = sleep

    def forward(self, inputs):
        if self.sleep:
            inputs = Sleep.apply(inputs, self.sleep)
        return inputs + self.down(nn.functional.gelu(self.up(inputs)))


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("schedule", help=f"{', '.join(CLASSES)}, or a CSV file")
    parser.add_argument("folder")
    parser.add_argument("--ranks", type=int, default=2, help="of a pipeline")
    parser.add_argument("--data-parallel", type=int, default=1)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--stages", type=int, default=0, help="default: 2 per rank, 1 for gpipe and 1f1b")
    parser.add_argument("--blocks", type=int, default=0, help="of the model; default: one per stage")
    parser.add_argument("--steps", type=int, default=3, help="profiled steps")
    parser.add_argument("--timed", type=int, default=0, help="steps timed without the profiler")
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rows", type=int, default=8, help="of a micro-batch")
    parser.add_argument("--sleep", type=float, default=0, help="seconds of each block, forward and backward")
    parser.add_argument("--zip", action="store_true", help="write .json.gz")
    return parser.parse_args()


def holders(options, stages):
    """Rank of each stage."""
    if pathlib.Path(options.schedule).suffix == ".csv":
        rows = pathlib.Path(options.schedule).read_text(encoding="utf-8").splitlines()
        rank_of = {}
        for rank, row in enumerate(rows):
            for cell in filter(None, row.split(",")):
                for action in [schedules._Action.from_str(cell)]:
                    for op in action.sub_actions or [action]:
                        rank_of[op.stage_index] = rank
        return [rank_of[stage] for stage in sorted(rank_of)]
    if options.schedule in V_SHAPED:
        return [*range(options.ranks), *reversed(range(options.ranks))]
    return [stage % options.ranks for stage in range(stages)]


def make_schedule(options, stages, loss):
    if pathlib.Path(options.schedule).suffix != ".csv":
        single = options.schedule in ("gpipe", "1f1b")
        make = getattr(pipelining, CLASSES[options.schedule])
        return make(stages[0] if single else stages, options.micro_batches, loss_fn=loss)
    schedule = schedules._PipelineScheduleRuntime(stages, options.micro_batches, loss_fn=loss)
    schedule._load_csv(options.schedule)
    return schedule


def run_rank(options, rank):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world = options.ranks * options.data_parallel
    # A file of an earlier recording in the folder would hold its addresses.
    store = pathlib.Path(options.folder, f"store-{os.getppid()}").absolute()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    mesh = dist.init_device_mesh("cpu", (options.data_parallel, options.ranks), mesh_dim_names=("dp", "pp"))
    own = mesh["pp"].get_local_rank()
    num_stages = options.stages or options.ranks * (1 if options.schedule in ("gpipe", "1f1b") else 2)
    rank_of = holders(options, num_stages)
    num_stages = len(rank_of)
    blocks = options.blocks or num_stages
    cuts = [blocks * stage // num_stages for stage in range(num_stages + 1)]
    stages, parameters = [], []
    for stage in [stage for stage, holder in enumerate(rank_of) if holder == own]:
        layers = [Block(options.width, options.sleep) for _ in range(cuts[stage], cuts[stage + 1])]
        module = nn.Sequential(*layers)
        parameters += module.parameters()
        if options.data_parallel > 1:
            # By default, torch 2.15 arranges the buckets of one stage with the parameters of all, and fails (reducer.cpp).
            module = nn.parallel.DistributedDataParallel(
                module, process_group=mesh["dp"].get_group(), find_unused_parameters=True
            )
        stages.append(
            pipelining.PipelineStage(module, stage, num_stages, torch.device("cpu"), group=mesh["pp"].get_group())
        )
    for stage in stages:  # Gloo cannot send to its own rank, as the first exchange of a V does
        stage._get_init_p2p_neighbors_ops = list
    schedule = make_schedule(options, stages, nn.functional.mse_loss)
    if rank == 0:
        orders = getattr(schedule, "pipeline_order", {})
        rows = [[str(op) for a in orders[w] if a and a.is_compute_op for op in a.sub_actions or (a,)] for w in orders]
        pathlib.Path(options.folder, "orders.txt").write_text(json.dumps(rows), encoding="utf-8")
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    inputs = torch.randn(options.micro_batches * options.rows, options.width)
    is_first, is_last = rank_of[0] == own, rank_of[-1] == own

    def step():
        schedule.step(*([inputs] if is_first else []), **({"target": inputs, "losses": []} if is_last else {}))
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(2):
        step()
    seconds = []
    for _ in range(options.timed):
        dist.barrier()
        began = time.perf_counter()
        step()
        dist.barrier()
        seconds.append(time.perf_counter() - began)
    dist.barrier()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for _ in range(options.steps):
            step()
    suffix = ".json.gz" if options.zip else ".json"
    profiler.export_chrome_trace(os.path.join(options.folder, f"worker_{world - rank}{suffix}"))
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0 and seconds:
        print(json.dumps({"step_seconds": statistics.median(seconds)}))


def main():
    options = parse()
    os.makedirs(options.folder, exist_ok=True)
    children = []
    for rank in range(options.ranks * options.data_parallel):
        child = os.fork()  # The import of torch takes longer than the run
        if child == 0:
            try:
                run_rank(options, rank)
                os._exit(0)  # Gloo's threads need not end in order
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children))


if __name__ == "__main__":
    main()
