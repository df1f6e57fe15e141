#!/usr/bin/env python3
"""Compares memory and time of `chimera train --recompute auto --memory G` with the forecast, for five G.

    benchmarks/memory_limits.py [--model llama-mini] [--rounds 3] [--steps 12] [--seconds 20] [--machine FILE]
                                [--program build/chimera] [--dry-run]

Measures a machine profile, then trains in alternating rounds: without a limit, and with five limits evenly between the
peaks of no and full recomputation. Peaks are bytes of tensors on the worker with most. The time of a run is its mean
step, without the first two steps. Because the speed of a shared machine drifts, it is divided by the time of the runs
without a limit just before and after it. The table has the mean ratio of all rounds and its standard error. Both means
leave out the lowest and the highest eighth. The ratio varies by 4 to 5 % between rounds, so 24 rounds (an hour on a
slow machine) reach a standard error of about 1 %. Exits with 1 if a peak is above its limit, or off by more than 2 %,
or a time by more than 3 %. --dry-run only prints the forecasts. Without --machine, their times
rest on one matrix product, measured again for each row, and vary.
"""
import argparse
import json
import random
import statistics
import string
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED_STEPS = 2
LIMITS = 5
PLAIN = ["--recompute", "none"]
MOST_MEMORY_ERROR, MOST_TIME_ERROR = 0.02, 0.03


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of {' '.join(map(str, words))}:\n{done.stderr[-2000:]}")
    return done.stdout


def middle_mean(values):
    """Returns the mean without the lowest and the highest eighth."""
    edge = len(values) // 8
    return statistics.mean(sorted(values)[edge:len(values) - edge])


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        words = random.Random(1).choices(string.ascii_lowercase + "     ", k=1 << 18)
        (folder / "text.txt").write_text("".join(words))
        self.machine = ["--machine", options.machine or folder / "machine.json"]
        if options.machine is None and options.dry_run:
            self.machine = []
        elif options.machine is None:
            call(options.program, "profile", "--model", options.model, "--seconds", options.seconds, "--output",
                 self.machine[1])

    def words(self, choice):
        return ["train", "--model", self.options.model, "--schedule", "1f1b", "--stages", 2, "--micro-batches", 8,
                "--micro-batch-size", 2, "--sequence", 128, "--threads", 1, *self.machine, *choice]

    def forecast(self, *choice):
        """Returns peak bytes and seconds of a step."""
        job = json.loads(call(self.options.program, *self.words(choice), "--dry-run", "--format", "json"))
        return job["peak_memory_bytes"], job["step_seconds"]

    def train(self, choice, *more):
        metrics = self.folder / "metrics.jsonl"
        call(self.options.program, *self.words(choice), "--data", self.folder / "text.txt", "--overwrite", "--metrics",
             metrics, *more)
        return [json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()]

    def peak(self, choice):
        tensors = self.folder / "tensors.json"
        self.train(choice, "--steps", 3, "--tensor-memory", tensors)
        return max(json.loads(tensors.read_text())["peak_bytes"])

    def seconds(self, choice):
        return middle_mean(self.train(choice, "--steps", self.options.steps)[SKIPPED_STEPS:])


def compare(bench, options):
    """Returns whether all are as predicted."""
    most, plain_seconds = bench.forecast(*PLAIN)
    least, _ = bench.forecast("--recompute", "full:1000")
    limits = [least + i * (most - least) / (LIMITS + 1) for i in range(1, LIMITS + 1)]
    choices = [["--recompute", "auto", "--memory", f"{limit / 2**30:.6f}"] for limit in limits]
    forecasts = [bench.forecast(*choice) for choice in choices]
    ratios = [[] for _ in choices]
    for turn in range(0 if options.dry_run else options.rounds):
        before = bench.seconds(PLAIN)
        for i in random.sample(range(len(choices)), len(choices)):
            own, after = bench.seconds(choices[i]), bench.seconds(PLAIN)
            ratios[i].append(2 * own / (before + after))
            before = after
        latest = " ".join(f"{row[-1]:.3f}" for row in ratios)
        print(f"round {turn + 1} of {options.rounds}: {latest}", file=sys.stderr, flush=True)
    holds = True
    print("| limit MiB | predicted MiB | measured MiB | error | predicted time | measured time | error |\n"
          "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for limit, choice, (bytes_, seconds), measured in zip(limits, choices, forecasts, ratios):
        row = f"| {limit / 2**20:.2f} | {bytes_ / 2**20:.2f} | "
        ratio = seconds / plain_seconds
        if options.dry_run:
            print(f"{row}- | - | {ratio:.3f} | - | - |")
            continue
        peak, time = bench.peak(choice), middle_mean(measured)
        standard_error = statistics.stdev(measured) / len(measured)**0.5 if len(measured) > 1 else float("nan")
        memory_error, time_error = bytes_ / peak - 1, ratio / time - 1
        print(f"{row}{peak / 2**20:.2f} | {100 * memory_error:+.1f} % | {ratio:.3f} | {time:.3f} ± {standard_error:.3f} | "
              f"{100 * time_error:+.1f} % |")
        holds &= peak <= limit and abs(memory_error) <= MOST_MEMORY_ERROR
        holds &= abs(time_error) <= MOST_TIME_ERROR
    return holds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="llama-mini", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--steps", type=int, default=12, metavar="N", help="steps of a run, with the two not counted")
    parser.add_argument("--seconds", type=float, default=20, metavar="X", help="time of `chimera profile`")
    parser.add_argument("--machine", type=Path, metavar="FILE", help="a profile, instead of measuring one")
    parser.add_argument("--program", type=Path, default=ROOT / "build/chimera", metavar="FILE")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps <= SKIPPED_STEPS:
        parser.error(f"--rounds must be 1 or more, and --steps more than {SKIPPED_STEPS}")
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(0 if compare(Bench(options, Path(folder)), options) else 1)


if __name__ == "__main__":
    main()
