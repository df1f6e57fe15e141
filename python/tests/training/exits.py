"""Ends pairs of processes in each way, and fails if one aborts, hangs or ends with another status than expected.

Usage: exits.py [RUNS OF EACH KIND, 200] [KINDS...]

Each rank is forked from this process, which has imported torch, and ends as an interpreter of its own does.
"""

import gc
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import torch
from torch import distributed, nn

import chimerapipe as cp

SECONDS = 150  # Of a run that hangs
KEPT = []  # Lives until the interpreter ends


class Waits:
    """Lets other threads run while the interpreter ends."""

    def __del__(self, sleep=time.sleep):
        sleep(0.1)


def trained():
    torch.manual_seed(1)
    layers = [nn.Linear(6, 6) for _ in range(4)]
    model = cp.Pipeline(layers, nn.MSELoss(reduction="sum"), cp.schedule("chimera", 2, 4))
    KEPT.append(model)
    step(model)
    return model


def step(model):
    model.step(torch.ones(4, 6), torch.zeros(4, 6))


def gathered():
    model = trained()
    model.gather()
    return model


def ends_after_validation():
    trained().validate(torch.ones(4, 6), torch.zeros(4, 6))


def ends_with_the_users_group():
    distributed.init_process_group("gloo")
    for value in trained().parameters():
        distributed.broadcast(value.detach().view(-1), 0)


def ends_after_destroying_the_group():
    distributed.init_process_group("gloo")
    gathered()
    distributed.destroy_process_group()


def ends_after_two_pipelines():
    trained()
    gathered()


def ends_during_a_save():
    trained().save_checkpoint(os.environ["FOLDER"], wait=False)


def exits():
    gathered()
    sys.exit(4)


def exits_on_one_rank():
    model = trained()
    if os.environ["RANK"] == "1":
        sys.exit(int(os.environ["RUN"]) % 2 * 4)
    step(model)


def raises():
    gathered()
    raise ValueError("deliberate")


def raises_on_one_rank():
    model = trained()
    if os.environ["RANK"] == "1":
        raise ValueError("deliberate")
    step(model)


def raises_in_a_layer():
    model = trained()
    if os.environ["RANK"] == "1":
        model._layers.held[0][0].module.register_forward_hook(lambda *_: 1 / 0)
    step(model)


def press_ctrl_c_soon():
    seconds = 0.02 + 0.001 * (os.getpid() % 7 + int(os.environ["RUN"]) % 13)
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def ctrl_c_in_steps():
    model = gathered()
    press_ctrl_c_soon()
    while True:
        step(model)


def ctrl_c_between_steps():
    gathered()
    press_ctrl_c_soon()
    time.sleep(SECONDS)


INTERRUPTED = {-signal.SIGINT, 1, 3}  # 1 and 3: of guarded calls
STATUSES = {  # Of the kinds, by rank
    **dict.fromkeys((trained, gathered, ends_after_validation, ends_with_the_users_group), [{0}, {0}]),
    **dict.fromkeys((ends_after_destroying_the_group, ends_after_two_pipelines, ends_during_a_save), [{0}, {0}]),
    exits: [{4}, {4}],
    exits_on_one_rank: [{3}, {0, 4}],
    raises: [{1}, {1}],
    **dict.fromkeys((raises_on_one_rank, raises_in_a_layer), [{3}, {1}]),
    ctrl_c_in_steps: [INTERRUPTED, INTERRUPTED],
    ctrl_c_between_steps: [{-signal.SIGINT}, {-signal.SIGINT}],
}
KINDS = {kind.__name__: kind for kind in STATUSES}


class InForkedRank(BaseException):
    """Leaves the functions of the parent. Its argument is the kind."""


def start(kind, rank, run, port, folder):
    process = os.fork()
    if process:
        return process
    output = os.open(f"{folder}/{rank}", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1), os.dup2(output, 2)
    place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "RUN": run}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "FOLDER": f"{folder}/saved"}
    os.environ.update({key: str(value) for key, value in place.items()})
    raise InForkedRank(kind)


def ended(kind, run):
    """Returns the statuses of both ranks, and what they printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tempfile.mkdtemp()
    ranks = [start(kind, rank, run, port, folder) for rank in (0, 1)]
    statuses = [os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]
    printed = [Path(folder, str(rank)).read_text() for rank in (0, 1)]
    shutil.rmtree(folder)
    return statuses, printed


def run_all(runs, kinds):
    """Returns the number of failures."""
    failures = 0
    for kind in kinds:
        begun, seen = time.monotonic(), Counter()
        for run in range(runs):
            statuses, printed = ended(kind, run)
            seen[tuple(statuses)] += 1
            if any(status not in allowed for status, allowed in zip(statuses, STATUSES[kind], strict=True)):
                failures += 1
                print(f"{kind.__name__}, run {run}: statuses {statuses}", *printed, sep="\n", flush=True)
        seconds = time.monotonic() - begun
        print(f"{kind.__name__}: {runs} runs, {seconds:.0f} s, statuses {dict(seen)}", flush=True)
    return failures


cp.Pipeline  # noqa: B018; imports its modules
gc.freeze()  # The end of a rank need not look at what the parent has imported
try:
    failures = run_all(int(sys.argv[1]) if len(sys.argv) > 1 else 200, [KINDS[name] for name in sys.argv[2:] or KINDS])
    print(f"{failures} failures")
    sys.exit(failures > 0)
except InForkedRank as forked:
    kind = forked.args[0]
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.alarm(SECONDS)
# A thread that frees a tensor needs the interpreter. It comes too late much more often if both share a core.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(os.environ["RUN"]) % len(cores)]})
sys.setswitchinterval(SECONDS)
last = Waits()
kind()
