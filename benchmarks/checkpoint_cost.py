#!/usr/bin/env python3
"""Measures the cost of saving: alternating runs with a checkpoint every 20 steps and without.

    benchmarks/checkpoint_cost.py [--model gpt2-mini] [--steps 100] [--rounds 5] [--folder /var/tmp] [--slow SECONDS]

Times are arrival times of --metrics lines through a pipe. `s/step` is the mean time between lines. `longest` is the
longest time between two lines, in mean steps: 2 means that a step was delayed by one.

--slow delays each fsync() by this time, like a slow disk (build/tests/multiprocess/libslow_disk.so).
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
EVERY = 20  # Steps
SLOW_DISK = ROOT / "build/tests/multiprocess/libslow_disk.so"


def arrivals(pipe, times):
    with open(pipe) as lines:
        for _ in lines:
            times.append(time.perf_counter())


def train(options, folder, saves):
    """Returns seconds per step, and the longest step divided by the mean."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        pipe = Path(scratch, "metrics")
        os.mkfifo(pipe)
        times = []
        reader = threading.Thread(target=arrivals, args=(pipe, times))
        reader.start()
        command = [ROOT / "build/chimera", "train", "--data", options.data, "--model", options.model, "--schedule",
                   "chimera", "--steps", str(options.steps), "--stages", "2", "--micro-batches", "4", "--metrics", pipe]
        if saves:
            command += ["--checkpoint", Path(scratch, "run"), "--save-every", str(EVERY)]
        slow = {"LD_PRELOAD": str(SLOW_DISK), "SLOW_DISK_SECONDS": str(options.slow)} if options.slow > 0 else {}
        subprocess.run(command, env=os.environ | slow, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        reader.join()
    steps = [later - earlier for earlier, later in zip(times[1:], times[2:])]  # The first step touches all memory
    return statistics.mean(steps), max(steps) / statistics.mean(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=ROOT / "README.md")
    parser.add_argument("--model", default="gpt2-mini")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", default="/var/tmp", help="on the disk that is to be measured")
    parser.add_argument("--slow", type=float, default=0)
    options = parser.parse_args()
    results = {False: [], True: []}
    for round_ in range(options.rounds):
        for saves in ((False, True), (True, False))[round_ % 2]:
            results[saves].append(train(options, options.folder, saves))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.model}, {options.steps} steps, "
          f"{options.rounds} rounds")
    print(f"{'':22}{'s/step':>8}  {'longest':>8}")
    means = {}
    for saves, name in ((False, "without checkpoints"), (True, f"one every {EVERY} steps")):
        means[saves] = statistics.median(seconds for seconds, _ in results[saves])
        longest = statistics.median(worst for _, worst in results[saves])
        print(f"{name:22}{means[saves]:8.4f}  {longest:8.2f}")
    pairs = [saving[0] / plain[0] - 1 for plain, saving in zip(results[False], results[True])]
    print(f"saving costs {100 * statistics.median(pairs):+.1f} % (median of rounds; {100 * min(pairs):+.1f} to "
          f"{100 * max(pairs):+.1f})")


if __name__ == "__main__":
    sys.exit(main())
