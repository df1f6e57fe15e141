#!/usr/bin/env python3
"""Tests whether ten measured runs on this machine give a profile that predicts ten others.

    benchmarks/fit_here.py [--rounds 4] [--steps 7] [--seconds 20] [--scalars NAMES] [--program build/chimera]
                           [--keep FOLDER] [--dry-run]

Twenty runs of two models on 2 and 4 workers train in alternating rounds, for less than ten minutes. The step time of a
run is the median over rounds of the median over steps, without the first two. `chimera profile` measures the machine,
`build/benchmarks/fit` fits this profile to every other run, and `chimera plan` predicts all runs with both profiles.
Exits with 1 if the median error of the other ten exceeds 5 %.

--dry-run trains and measures nothing: the profile is that of a P100, and the step times are predictions of a P100 with
slower layers and links. The fit must find them.
"""
import argparse
import json
import random
import statistics
import string
import subprocess
import sys
import tempfile
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEQUENCE = 128
SKIPPED_STEPS = 2
MOST_ERROR = 0.05
PATIENCE = 600  # Seconds for any command


class Run(typing.NamedTuple):
    model: str
    micro_batch_size: int
    stages: int
    schedule: str
    micro_batches: int

    def __str__(self):
        return f"{self.model} b {self.micro_batch_size}, {self.schedule} D {self.stages} N {self.micro_batches}"


def all_runs():
    for model, size in (("gpt2-mini", 2), ("bert-tiny", 8)):
        for stages in (2, 4):
            for schedule, times in (("1f1b", 1), ("gpipe", 2), ("chimera", 1), ("zb-h1", 2), ("chimera", 2)):
                yield Run(model, size, stages, schedule, times * stages)


def call(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of {' '.join(map(str, words))}:\n{done.stderr[-2000:]}")
    return done.stdout


def train(program, folder, run, steps):
    """Returns the median seconds of a step."""
    metrics = folder / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    call(program, "train", "--model", run.model, "--schedule", run.schedule, "--stages", run.stages, "--micro-batches",
         run.micro_batches, "--micro-batch-size", run.micro_batch_size, "--partition", "even", "--sequence", SEQUENCE,
         "--threads", 1, "--data", folder / "text.txt", "--steps", steps, "--metrics", metrics)
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    return statistics.median(line["step_seconds"] for line in lines[SKIPPED_STEPS:])


def measure(options, folder, runs):
    """Returns the profile and the step time of each run."""
    words = random.Random(1).choices(string.ascii_lowercase + "     ", k=1 << 18)
    (folder / "text.txt").write_text("".join(words))
    profile = folder / "measured.json"
    call(options.program, "profile", "--model", ",".join(sorted({run.model for run in runs})), "--seconds",
         options.seconds, "--output", profile)
    times = [[] for _ in runs]
    for turn in range(options.rounds):
        for run, seconds in sorted(zip(runs, times), key=lambda _: random.random()):
            seconds.append(train(options.program, folder, run, options.steps))
        print(f"round {turn + 1} of {options.rounds}", file=sys.stderr, flush=True)
    return profile, [statistics.median(seconds) for seconds in times]


def pretend(options, folder, runs):
    """Returns what measure() does, for a P100 whose layers and links are slower than its profile."""
    profile = ROOT / "machines/p100-aries.json"
    slower = json.loads(profile.read_text())
    for layer in slower["layers"]:
        for time in layer["times"]:
            for op in ("forward", "input_gradient", "weight_gradient"):
                time[op] *= 1.3
    for link in slower["point_to_point"].values():
        link["beta"] *= 2
    machine = folder / "slower.json"
    machine.write_text(json.dumps(slower))
    return profile, [predict(options.program, machine, run) for run in runs]


def predict(program, machine, run):
    text = call(program, "plan", "--model", run.model, "--machine", machine, "--workers", run.stages, "--mini-batch",
                run.micro_batches * run.micro_batch_size, "--sequence", SEQUENCE, "--dtype", "float32", "--schedules",
                run.schedule, "--stages", run.stages, "--micro-batch-size", run.micro_batch_size, "--recompute", "none",
                "--partition", "even", "--memory", 1000, "--top", 0, "--format", "json")
    usual = {"pipelines": 2, "chunks": 1, "scale": "direct", "micro_batches": run.micro_batches}
    return next(each["step_seconds"] for each in json.loads(text)["candidates"]
                if usual.items() <= each.items())


def write_runs(path, runs, seconds):
    path.write_text(f"sequence = {SEQUENCE}\n" + "".join(
        f'\n[[runs]]\nmodel = "{run.model}"\nschedule = "{run.schedule}"\nstages = {run.stages}\n'
        f"micro-batches = {run.micro_batches}\nmicro-batch-size = {run.micro_batch_size}\nstep-seconds = {time}\n"
        for run, time in zip(runs, seconds)))


def median_size(errors):
    return statistics.median(abs(error) for error in errors)


def test(options, folder):
    """Returns the median error of the runs that are left out of the fit."""
    runs = list(all_runs())
    profile, seconds = (pretend if options.dry_run else measure)(options, folder, runs)
    write_runs(folder / "runs.toml", runs[::2], seconds[::2])
    fitted = folder / "fitted.json"
    print(call(options.program.resolve().parent / "benchmarks/fit", "--machine", profile, "--runs",
               folder / "runs.toml", "--scalars", options.scalars, "--output", fitted))
    errors = {machine: [predict(options.program, machine, run) / time - 1 for run, time in zip(runs, seconds)]
              for machine in (profile, fitted)}
    print("| run | use | measured ms | error before | error after |\n| --- | --- | ---: | ---: | ---: |")
    for i, run in enumerate(runs):
        print(f"| {run} | {'test' if i % 2 else 'fit'} | {1e3 * seconds[i]:.1f} | {100 * errors[profile][i]:+.1f} % | "
              f"{100 * errors[fitted][i]:+.1f} % |")
    print()
    for use, first in (("fitted", 0), ("left out", 1)):
        print(f"{use}: median error {100 * median_size(errors[profile][first::2]):.1f} % before, "
              f"{100 * median_size(errors[fitted][first::2]):.1f} % after")
    return median_size(errors[fitted][1::2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, metavar="N")
    parser.add_argument("--steps", type=int, default=7, metavar="N", help="steps of a run, with the two not counted")
    parser.add_argument("--seconds", type=float, default=20, metavar="X", help="time of `chimera profile`")
    parser.add_argument("--scalars", default="layers,sent,summed", metavar="NAME,NAME",
                        help="numbers that `build/benchmarks/fit` changes")
    parser.add_argument("--program", type=Path, default=ROOT / "build/chimera", metavar="FILE")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write profiles and measured runs to this folder")
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps <= SKIPPED_STEPS:
        parser.error(f"--rounds must be 1 or more, and --steps more than {SKIPPED_STEPS}")
    with tempfile.TemporaryDirectory() as folder:
        if options.keep:
            options.keep.mkdir(parents=True, exist_ok=True)
        error = test(options, options.keep or Path(folder))
    sys.exit(0 if error <= MOST_ERROR else 1)


if __name__ == "__main__":
    main()
