"""Measures the cost of an op of a Python pipeline in addition to the calls of its modules.

    PYTHONPATH=build/python OMP_NUM_THREADS=1 .venv/bin/python benchmarks/python/overhead.py

One process holds the only stage, so there are no messages. The overhead is the step time of the pipeline minus the time
of the same forwards and backwards without it, divided by the number of ops. Prints medians of alternating rounds.
"""

import argparse
import copy
import statistics
import time

import torch
from torch import nn

import chimerapipe as cp


def squares(output, target):
    return (output - target).square().sum()


def seconds(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(hidden, micro_batches, rounds):
    """Returns median seconds of a step with and without the pipeline."""
    layers = [nn.Linear(hidden, hidden) for _ in range(8)]
    pipeline = cp.Pipeline(copy.deepcopy(layers), squares, cp.schedule("1f1b", 1, micro_batches), micro_batch_size=2)
    module = nn.Sequential(*layers)
    x = torch.randn(2 * micro_batches, hidden)
    y = torch.randn_like(x)

    def bare():
        for inputs, targets in zip(x.chunk(micro_batches), y.chunk(micro_batches), strict=True):
            squares(module(inputs), targets).backward()

    def step():
        pipeline.step(x, y)

    seconds(step), seconds(bare)  # Warm-up
    times = [(seconds(step), seconds(bare)) for _ in range(rounds)]
    return tuple(statistics.median(column) for column in zip(*times, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--micro-batches", type=int, default=8)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for hidden in (16, 128):
        pipeline, bare = measure(hidden, chosen.micro_batches, chosen.rounds)
        beyond = (pipeline - bare) / (2 * chosen.micro_batches)
        print(f"8 layers of {hidden}: step {1e3 * pipeline:.2f} ms, bare {1e3 * bare:.2f} ms, {1e6 * beyond:.0f} us an op beyond")


if __name__ == "__main__":
    main()
