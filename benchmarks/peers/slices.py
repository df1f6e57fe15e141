#!/usr/bin/env python3
"""Compares schedules with and without slices, and torch.distributed.pipelining: speed and peak of tensor memory.

    slices.py [--python PYTHON] [--stages 2 4] [--sequence 2048 4096] [--rounds 3]

A GPT-2 of about 20 million parameters (8 layers of 384, 6 heads, vocabulary 4,096), N = D micro-batches of one sequence,
float32, one thread per process. PYTHON is an interpreter as in compare.py. Leave the machine otherwise idle.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import compare

OURS = ["--schedule 1f1b", "--schedule chimera-zb", "--schedule 1f1b --slices 4", "--schedule chimera-zb --slices 2",
        "--schedule chimera-zb --slices 4", "--schedule chimera-zb --slices 8"]
THEIRS = ["1f1b", "zbv"]
MODEL = """family = "gpt2"
layers = 8
hidden = 384
heads = 6
feed_forward = 1536
vocabulary = 4096
positions = 8192
tied = false
"""


def training_flags(folder, stages, sequence, steps):
    return ["--model", str(folder / "model.toml"), "--data", str(folder / "text"), "--micro-batch-size", "1", "--sequence",
            str(sequence), "--stages", str(stages), "--micro-batches", str(stages), "--steps", str(steps), "--threads",
            "1"]


def contest(options, folder, stages, sequence):
    """Returns the results by name: tokens per second of each round, and the difference of the loss."""
    exported = folder / f"exported-{stages}-{sequence}"
    bench = [options.chimera, "bench", *training_flags(folder, stages, sequence, options.steps)]
    subprocess.run([*bench, "--export", str(exported)], check=True)
    peer = f"{options.python} {pathlib.Path(__file__).with_name('torch_pipelining.py')} {exported} --processes {stages}"
    words = [*bench, "--rounds", str(options.rounds), "--retries", str(options.retries), "--skip", "1", "--format", "json"]
    for flags in OURS:
        words += ["--run", flags]
    for name in THEIRS:
        words += ["--command", f"torch {name}={peer} --schedule {name}"]
    result = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"\nD = N = {stages}, sequence {sequence}; {result['machine']}; {options.rounds} interleaved rounds of "
          f"{options.steps} steps", flush=True)
    return {run["name"]: run for run in result["runs"]}


def peak_bytes(options, folder, stages, sequence, flags):
    """Returns the largest peak of tensor bytes over the workers of a run of two steps."""
    file = folder / "tensors.json"
    subprocess.run([options.chimera, "train", *training_flags(folder, stages, sequence, 2), *flags.split(),
                    "--tensor-memory", str(file), "--overwrite"], check=True, capture_output=True)
    return max(json.loads(file.read_text())["peak_bytes"])


def report(options, folder, stages, sequence):
    runs = contest(options, folder, stages, sequence)
    names = {name for name in runs if not name.startswith("torch ")}
    unsliced = {name: run for name, run in runs.items() if "--slices" not in name}
    fastest = max(unsliced.values(), key=lambda run: statistics.median(run["tokens_per_second"]))
    print(f"{'run':<36}{'tokens/s':>10}{'of best unsliced':>18}{'peak tensors':>14}{'loss off':>10}")
    for name, run in runs.items():
        peak = f"{peak_bytes(options, folder, stages, sequence, name) / 2**20:.0f} MiB" if name in names else "-"
        print(f"{name:<36}{statistics.median(run['tokens_per_second']):>10.0f}{compare.ratio(run, fastest):>18.3f}"
              f"{peak:>14}{run['loss_difference']:>10.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--chimera", default=str(compare.ROOT / "build" / "chimera"))
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sequence", type=int, nargs="+", default=[2048, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--retries", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        compare.write_text(folder / "text")
        (folder / "model.toml").write_text(MODEL)
        for stages in options.stages:
            for sequence in options.sequence:
                report(options, folder, stages, sequence)


if __name__ == "__main__":
    main()
