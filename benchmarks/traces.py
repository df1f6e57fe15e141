#!/usr/bin/env python3
"""Compares predictions of `chimera diagnose` with torch: replays traces, and runs the schedules that it proposes.

Usage: benchmarks/traces.py CHIMERA [--ranks D] [--sleep SECONDS]. Needs a Python with torch, such as .venv-oracles.
Records interleaved 1F1B, and runs each CSV that would be faster with the same model, under the profiler. Records all
of them again in every round, so that each prediction is compared with a run of the same minute, and prints medians
over the rounds. Run it on an idle machine with as many cores as ranks; with --sleep, blocks sleep and ranks may share
cores.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

RECORDER = pathlib.Path(__file__).resolve().parents[1] / "tests/traces/record_traces.py"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("chimera")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--sleep", type=float, default=0)
    parser.add_argument("--most", type=int, default=3, help="schedules to run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", default="interleaved_1f1b")
    options = parser.parse_args()
    size = ["--width", "256", "--rows", "128"] if options.sleep == 0 else ["--width", "16", "--sleep", options.sleep]
    size += ["--ranks", options.ranks, "--micro-batches", options.micro_batches, "--steps", 5]
    size += ["--blocks", 4 * options.ranks]

    def measure(schedule, folder):
        command = [sys.executable, RECORDER, schedule, folder, *size]
        subprocess.run([str(each) for each in command], check=True, stderr=subprocess.DEVNULL)
        command = [options.chimera, "diagnose", folder, "--format", "json", "--output", f"{folder}/out"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def play(folder, chosen):
        """Returns a list of (prediction or None, run): the first schedule, then the chosen ones."""
        first = measure(options.first, f"{folder}/first")
        predictions = {(entry["name"], entry["stages"]): entry["seconds"] for entry in first["better"]}
        runs = [(None, first)]
        for name, path in chosen.items():
            runs.append((predictions.get(name), measure(path, f"{folder}/{path.stem}")))
        return runs

    with tempfile.TemporaryDirectory() as work:
        first = measure(options.first, f"{work}/chosen")
        # An order that a search has found differs from round to round.
        better = [each for each in first["better"] if each["runs_in_torch"] and each["name"] != "searched order"]
        chosen = {(each["name"], each["stages"]): pathlib.Path(work, "chosen/out", each["file"]) for each in better}
        chosen = dict(list(chosen.items())[: options.most])
        rounds = [play(f"{work}/{number}", chosen) for number in range(options.rounds)]
        print(f"{'schedule':20} {'stages':>6} {'measured':>10} {'replayed':>10} {'off':>7} {'predicted':>10} {'off':>7}")
        for runs in zip(*rounds):
            show(runs)


def show(runs):
    """Prints the medians of one schedule over its runs."""

    def compare(pairs):
        """Returns the median of the times, and that of their errors."""
        if not pairs:
            return f"{'':10} {'':>7}"
        off = statistics.median(seconds / run["step_seconds"] - 1 for seconds, run in pairs)
        return f"{statistics.median(seconds for seconds, _ in pairs):10.4f} {100 * off:+6.1f}%"

    measured = statistics.median(run["step_seconds"] for _, run in runs)
    replayed = compare([(run["simulated_seconds"], run) for _, run in runs])
    predicted = compare([pair for pair in runs if pair[0] is not None])
    run = runs[0][1]
    print(f"{run['name']:20} {run['stages']:6} {measured:10.4f} {replayed} {predicted}", flush=True)


main()
