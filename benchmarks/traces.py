#!/usr/bin/env python3
"""Compares predictions of `chimera diagnose` with torch: replays traces, and runs the schedules that it proposes.

Usage: benchmarks/traces.py CHIMERA [--ranks D] [--sleep SECONDS]. Needs a Python with torch, such as .venv-oracles.
Records interleaved 1F1B, and runs each CSV that would be faster with the same model, under the profiler. Run it on an
idle machine with as many cores as ranks; with --sleep, blocks sleep and ranks may share cores.
"""

import argparse
import json
import pathlib
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

    with tempfile.TemporaryDirectory() as work:
        first = measure(options.first, f"{work}/first")
        print(f"{'schedule':20} {'stages':>6} {'predicted':>10} {'measured':>10} {'off':>7} {'replayed':>10} {'off':>7}")

        def show(name, stages, predicted, run):
            seconds = run["step_seconds"]
            off = f"{100 * (predicted / seconds - 1):+6.1f}%" if predicted else ""
            replayed = run["simulated_seconds"]
            text = f"{predicted:10.4f}" if predicted else ""
            print(f"{name:20} {stages:6} {text:>10} {seconds:10.4f} {off:>7} {replayed:10.4f} "
                  f"{100 * (replayed / seconds - 1):+6.1f}%", flush=True)

        show(first["name"], first["stages"], None, first)
        runnable = [entry for entry in first["better"] if entry["runs_in_torch"]]
        for number, entry in enumerate(runnable[: options.most]):
            run = measure(f"{work}/first/out/{entry['file']}", f"{work}/{number}")
            show(entry["name"], entry["stages"], entry["seconds"], run)


main()
