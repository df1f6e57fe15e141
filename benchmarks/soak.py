#!/usr/bin/env python3
"""Disturbs one training run with all kinds of faults, and compares the result with the undisturbed run.

  benchmarks/soak.py [--faults 1000] [--seed 1] [--program build/chimera]

gpt2-tiny on four ranks, `--reduction canonical`, with --recover twin, --max-restarts, --verify-messages and
checkpoints. Each fault comes shortly after new steps: one or two ranks are killed (perhaps the last replicas of a
stage), a rank aborts or is stopped, a bit flips in a message or a weight, the launcher is killed, the job is asked to
save and exit, or a bit of the newest checkpoint flips while nothing runs. If the run has ended, the same command
restarts it. At the end, every step must have the parameters of the undisturbed run. Exits with 1 if a step does not.
"""
import collections
import os
import random
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

from faulted import RANKS, Run, campaign_parser, describe, failures, own_text, require, require_undisturbed, saving


def kill_rank(run, chance, signal_=signal.SIGKILL):
    os.kill(chance.choice(run.ranks()), signal_)


def kill_two(run, chance):
    for rank in chance.sample(run.ranks(), 2):
        os.kill(rank, signal.SIGKILL)


def end_with(run, signal_, code):
    run.process.send_signal(signal_)
    found = run.end()
    require(found == code, f"exit code {found} after {signal_.name}: {run.messages()[-500:]}")


def damage_checkpoint(run, chance):
    """Flips a bit of the newest checkpoint while nothing runs; the run must use an older one."""
    end_with(run, signal.SIGKILL, -signal.SIGKILL)
    committed = sorted(path.parent for path in Path(run.folder, "run").glob("step-*[0-9]/manifest.json"))
    if len(committed) > 1:
        file = chance.choice(sorted(committed[-1].iterdir()))
        with open(file, "r+b") as opened:
            offset = chance.randrange(file.stat().st_size)
            opened.seek(offset)
            byte = opened.read(1)[0]
            opened.seek(offset)
            opened.write(bytes([byte ^ 1 << chance.randrange(8)]))


FAULTS = {  # With their weights
    "rank killed": (6, kill_rank),
    "two ranks killed": (2, kill_two),
    "rank aborts": (2, lambda run, chance: kill_rank(run, chance, signal.SIGABRT)),
    "rank stopped": (2, lambda run, chance: kill_rank(run, chance, signal.SIGSTOP)),
    "launcher killed": (1, lambda run, chance: end_with(run, signal.SIGKILL, -signal.SIGKILL)),
    "preempted": (1, lambda run, chance: end_with(run, signal.SIGTERM, 75)),
    "checkpoint damaged": (1, damage_checkpoint),
}


def flips(chance):
    """Returns CHIMERA_FAULT for a start: bit flips in messages and weights, some at moments that may not occur."""
    places = [f"flip@message:{chance.randrange(RANKS)}:{chance.randint(13, 600)}",
              f"flip@step:{chance.randrange(RANKS)}:{chance.randint(2, 50)}"]
    return ",".join(chance.sample(places, chance.randint(0, 2)))


def soak(options, chance, folder):
    many = str(1_000_000)
    run = Run(options, folder, 1_000_000,
              saving(folder, "--resume", "auto", "--recover", "twin", "--max-recoveries", many, "--max-restarts", many,
                     "--verify-messages", "--on-different-copies", "repair", "--hang-seconds", "2.5"))
    done, seconds = collections.Counter(), []
    names = list(FAULTS)
    while sum(done.values()) < options.faults:
        if run.process is None or run.process.poll() is not None:
            run.fault = flips(chance)
            run.start()
        start, newest = time.monotonic(), run.newest()
        if not run.await_step_after(newest + 1):
            require(False, f"no step after {newest}: {run.messages()[-2000:]}")
            break
        seconds.append(time.monotonic() - start)
        time.sleep(chance.uniform(0, 0.4))
        if len(run.ranks()) < RANKS:  # A bit has flipped in the meantime
            continue
        name = chance.choices(names, [FAULTS[each][0] for each in names])[0]
        FAULTS[name][1](run, chance)
        done[name] += 1
        if sum(done.values()) % 100 == 0:
            print(f"{sum(done.values())} faults, step {run.newest()}", flush=True)
    if run.process.poll() is not None:
        run.fault = ""
        run.start()
    require(run.await_step_after(run.newest() + 1), "no steps after the last fault")
    end_with(run, signal.SIGTERM, 75)
    run.close()
    for name, pattern in {"message flipped": "changed on the way", "weight flipped": "changed since the last"}.items():
        done[name] = len(re.findall(pattern, run.messages()))
    print(f"{sum(done.values())} faults: " + ", ".join(f"{count} x {name}" for name, count in done.items()))
    describe("from a fault to two new steps", seconds[1:])
    require_undisturbed(run, "in the end", folder)


def main():
    parser = campaign_parser(__doc__)
    parser.add_argument("--faults", type=int, default=1000)
    options = parser.parse_args()
    with own_text(options), tempfile.TemporaryDirectory() as folder:
        soak(options, random.Random(options.seed), folder)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
