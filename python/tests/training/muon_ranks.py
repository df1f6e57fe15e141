"""Trains with cp.Muon on two and on four processes, and compares with the whole model."""

import torch
from forked_ranks import launch
from test_muon import SCHEDULES, STEPS, expect_torchs

from chimerapipe import _muon


def main(stages, width):
    torch.set_num_threads(1)
    counted = []
    iterate = _muon.orthogonalized
    _muon.orthogonalized = lambda *arguments: counted.append(1) or iterate(*arguments)
    for schedule in SCHEDULES:
        counted.clear()
        expect_torchs(schedule, stages, width)
    if width == 1:  # The ranks share the 30 matrices of chimera-zb, the last schedule
        assert len(counted) == 15 * STEPS


if __name__ == "__main__":
    launch(2, main, 2, 1)
    launch(4, main, 2, 2)
