"""Cases of users on two ranks. Prints a line for each that passes on a rank."""

import os
import sys

import torch
from models import perceptron, squares
from torch import nn
from users import CASES, SCHEDULES, Pair, Shift, refused, samples

import chimerapipe as cp

RANK = int(os.environ["RANK"])


def say(words):
    sys.stdout.write(f"rank {RANK}: {words}\n")  # One write, so that lines of ranks do not mix
    sys.stdout.flush()


def pipeline(layers=None, schedule=None, **options):
    return cp.Pipeline(layers or perceptron(4).layers, squares, schedule or cp.schedule("1f1b", 2, 4), **options)


def different_arguments():
    """Each rank gives another value of one argument."""

    def narrow():
        return [*perceptron(4).layers[:3], nn.Linear(6, 6 + RANK).double()]

    for words, options in (
        ("partition: [1, 3] on rank 0, but [2, 2] on rank 1", {"partition": [1, 3] if RANK == 0 else [2, 2]}),
        ("schedule: 1f1b of 2 stages and 4 micro", {"schedule": cp.schedule(["1f1b", "gpipe"][RANK], 2, 4)}),
        ("schedule: 1f1b of 2 stages and 4 micro", {"schedule": cp.schedule("1f1b", 2, 4 + 4 * RANK)}),
        ("reduction: 'natural' on rank 0, but 'canonical'", {"reduction": ["natural", "canonical"][RANK]}),
        ("layer 3, weight: [6, 6] of float64 on rank 0, but [7, 6]", {"layers": narrow()}),
        ("number of layers: 4 on rank 0, but 3", {"layers": perceptron(4 - RANK, layers=4 - RANK).layers}),
    ):
        refused(lambda options=options: pipeline(**options), words, cp.ConfigError)

    def make():
        if RANK == 1:
            raise MemoryError("too large")
        return nn.Linear(6, 6).double()

    refused(lambda: pipeline([*perceptron(4).layers[:3], make]), "too large")
    trains = pipeline()
    inputs, targets = samples()
    refused(lambda: trains.step(inputs, targets, clip=1.0 + RANK), "clip: 1.0 on rank 0, but 2.0 on rank 1")
    refused(lambda: trains.step(inputs[: 4 - RANK], targets), "3 samples, but a step of this process takes 4")
    trains.step(inputs, targets)


def planned_alike():
    layers, example = perceptron(4).layers, samples(8)[0]
    profile = cp.profile(layers, example, repeats=1)
    plan = cp.plan(profile, workers=2, mini_batch=8)
    cut = cp.partition(profile, cp.schedule("1f1b", 2, 4))
    told = [None] * 2
    torch.distributed.init_process_group("gloo") if not torch.distributed.is_initialized() else None
    torch.distributed.all_gather_object(told, [profile, plan, cut])
    assert told[0] == told[1]
    refused(lambda: cp.plan(profile, workers=2, mini_batch=0), "mini_batch", cp.ScheduleError)
    cp.Pipeline(layers, squares, plan.best.schedule, **plan.best.pipeline_options())


def equal_buffers():
    layers = [Shift(1), Shift(RANK + 2), Shift(RANK + 3), Shift(4)]
    made = pipeline(layers, cp.schedule("chimera", 2, 4))
    made.step(*samples())
    expected = {"1.shift": 2.0, "2.shift": 4.0}  # Owned by ranks 0 and 1
    for name, value in made.state_dict().items():
        if name in expected:
            assert (value == expected[name]).all(), name


def changed_copies_are_found():
    made = pipeline(schedule=cp.schedule("chimera", 2, 4))
    made.step(*samples())
    if RANK == 1:
        with torch.no_grad():
            made.state_dict()["0.0.weight"].add_(1e-9)
    cp._pipeline._CHECK_COPIES_EVERY, before = 1, cp._pipeline._CHECK_COPIES_EVERY
    refused(lambda: made.step(*samples()), "stage 0: the replicas on ranks 0 and 1 hold different values")
    cp._pipeline._CHECK_COPIES_EVERY = before


class Fails(nn.Linear):
    at = 0

    def forward(self, x):
        Fails.at -= 1
        if Fails.at == 0:
            raise ValueError("deliberate")
        return super().forward(x)


def a_caught_exception_lets_all_ranks_go_on():
    for schedule in SCHEDULES:
        layers = perceptron(4).layers
        layers[3] = Fails(6, 6).double()
        made = pipeline(layers, cp.schedule(schedule, 2, 4))
        made.step(*samples())
        Fails.at = 2 if RANK == 1 else 0
        try:
            made.step(*samples())
        except ValueError:
            assert RANK == 1
        except cp.PeerLostError:
            assert RANK == 0
        else:
            raise AssertionError("no exception")
        Fails.at = 0
        refused(lambda made=made: made.step(*samples()), "failed before")
        Pair(perceptron(4).layers, schedule).step(*samples())


def main():
    torch.set_num_threads(1)
    for case in CASES:
        for schedule in SCHEDULES:
            torch.manual_seed(3)
            case(schedule)
        say(case.__name__)
    for case in (
        different_arguments,
        equal_buffers,
        changed_copies_are_found,
        planned_alike,
        a_caught_exception_lets_all_ranks_go_on,
    ):
        torch.manual_seed(3)
        case()
        say(case.__name__)


if __name__ == "__main__":
    main()
