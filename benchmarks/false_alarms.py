#!/usr/bin/env python3
"""Tests whether hang detection reports healthy runs on a busy machine.

  benchmarks/false_alarms.py [--minutes 30] [--load 8] [--steps 100] [--seed 1] [--program build/chimera]

Repeated runs of gpt2-tiny on four ranks with the default --hang-seconds, beside processes that compute until the
machine has this load. From time to time a rank is stopped for up to 1.2 s, less than half of the hang limit. Every run
must exit with code 0, without a report of a hang, and with the parameters of the undisturbed run after every step.
Exits with 1 if a run does not.
"""
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faulted import RANKS, Run, campaign_parser, failures, own_text, require, undisturbed

LONGEST_PAUSE = 1.2  # Seconds


@contextlib.contextmanager
def busy(processes):
    """Runs this number of processes that compute."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def pause(rank, seconds):
    try:
        os.kill(rank, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(rank, signal.SIGCONT)
        return 1
    except ProcessLookupError:  # The run has ended
        return 0


def one_run(options, chance, clean):
    """Trains once. Returns how often a rank was stopped."""
    pauses = 0
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, folder, options.steps, [])
        run.start()
        run.await_step_after(0)
        while run.process.poll() is None:
            time.sleep(chance.uniform(0, 2))
            ranks = run.ranks()
            if ranks and run.process.poll() is None:
                pauses += pause(chance.choice(ranks), chance.uniform(0, LONGEST_PAUSE))
        code = run.end()
        run.close()
        require(code == 0 and "no progress" not in run.messages(), f"exit code {code}: {run.messages()[-500:]}")
        require(run.steps == clean, "parameters differ from those of the undisturbed run")
    return pauses


def main():
    parser = campaign_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--load", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    runs, pauses, loads = 0, 0, []
    with own_text(options), tempfile.TemporaryDirectory() as folder:
        clean = undisturbed(options, Path(folder), options.steps)
        end = time.monotonic() + 60 * options.minutes
        with busy(max(0, options.load - RANKS)):
            while time.monotonic() < end:
                pauses += one_run(options, chance, clean)
                runs += 1
                loads.append(os.getloadavg()[0])
    print(f"{runs} runs of {options.steps} steps in {options.minutes:g} minutes, load {statistics.mean(loads):.1f} in the mean: "
          f"{pauses} pauses, {len(failures)} false alarms or other failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
