"""Trains with cp.Muon on two and on four processes. Each rank whose values equal the whole model's prints a line."""

import os
import sys

import torch
from forked_ranks import launch
from test_muon import SCHEDULES, expect_torchs

from chimerapipe import _muon


def main(stages, width):
    torch.set_num_threads(1)
    counted = []
    iterate = _muon.orthogonalized
    _muon.orthogonalized = lambda *arguments: counted.append(1) or iterate(*arguments)
    try:
        for schedule in SCHEDULES:
            counted.clear()
            expect_torchs(schedule, stages, width)
    finally:
        _muon.orthogonalized = iterate
    rank, world = os.environ["RANK"], os.environ["WORLD_SIZE"]
    words = f"equal, {len(counted) // 4} of 30 matrices"  # Of a step of chimera-zb, the last schedule
    sys.stdout.write(f"rank {rank} of {world}: {words}\n")  # One write, so that lines of ranks do not mix
    sys.stdout.flush()


if __name__ == "__main__":
    launch(2, main, 2, 1)
    launch(4, main, 2, 2)
