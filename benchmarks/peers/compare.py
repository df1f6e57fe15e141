#!/usr/bin/env python3
"""Compares Chimera with torch.distributed.pipelining: same model, weights, batches and optimizer, alternating runs.

    compare.py [--python PYTHON] [--micro-batches 2 4 8] [--rounds 3]

Two processes with one thread each on two cores: 8 layers of 256, 4 heads, vocabulary 4,096, sequence 128, micro-batches
of 4, float32. PYTHON is an interpreter with torch 2.11, all its dependencies, and safetensors. Leave the machine
otherwise idle.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OURS = ["1f1b", "chimera", "chimera-zb", "interleaved-zb", "zb-v", "dualpipev"]
OURS_WITH_FLAGS = ["--schedule chimera-zb --chunks 2"]
THEIRS = ["gpipe", "1f1b", "interleaved-1f1b", "interleaved-zb", "zbv", "dualpipev"]
LEAST_MICRO_BATCHES = {"dualpipev": 4}  # Of two processes, for torch and for Chimera
REQUIRED_BEST = 1.1  # Best Chimera speed relative to torch's best pipeline
REQUIRED_CHIMERA = {2: 1.3}  # `chimera` relative to torch's 1F1B, by N
MOST_LOSS_DIFFERENCE = 1e-5


def write_text(path):
    words = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    path.write_text(" ".join("".join(words.choices(letters, k=words.randint(1, 9))) for _ in range(100_000)))


def contest(options, folder, micro_batches):
    """Returns the results by name: tokens per second of each round, and the difference of the loss."""
    shared = ["--model", "gpt2-mini", "--layers", "8", "--hidden", "256", "--heads", "4", "--vocabulary", "4096",
              "--tied", "false", "--data", str(folder / "text"), "--micro-batch-size", "4", "--sequence", "128",
              "--stages", "2", "--micro-batches", str(micro_batches), "--steps", str(options.steps)]
    exported = folder / f"exported-{micro_batches}"
    bench = [options.chimera, "bench", *shared]
    subprocess.run([*bench, "--export", str(exported)], check=True)
    peer = f"{options.python} {ROOT}/benchmarks/peers/torch_pipelining.py {exported}"
    can_run = [name for name in THEIRS if micro_batches >= LEAST_MICRO_BATCHES.get(name, 1)]
    commands = {f"torch {name}": f"{peer} --schedule {name}" for name in can_run}
    commands["torch, one process"] = f"{peer} --schedule none --processes 1"
    commands["torch, one process of two threads"] = f"{peer} --schedule none --processes 1 --threads 2"
    ours = [name for name in OURS if micro_batches >= LEAST_MICRO_BATCHES.get(name, 1)]
    words = [*bench, "--threads", "1", "--rounds", str(options.rounds), "--retries", str(options.retries), "--format",
             "json", "--schedules", ",".join(["none", *ours])]
    for flags in OURS_WITH_FLAGS:
        words += ["--run", flags]
    for name, command in commands.items():
        words += ["--command", f"{name}={command}"]
    result = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"\nN = {micro_batches}; {result['machine']}; {options.rounds} interleaved rounds of {options.steps} steps")
    return {run["name"]: run for run in result["runs"]}


def ratio(run, other):
    """Returns the median over rounds of the ratio of both speeds in the same round."""
    return statistics.median(a / b for a, b in zip(run["tokens_per_second"], other["tokens_per_second"]))


def verdict(what, reached, required):
    print(f"{what}: {reached:.3f}; required: at least {required}: {'met' if reached >= required else 'NOT MET'}")
    return reached >= required


def report(runs, micro_batches):
    pipelines = {name: run for name, run in runs.items() if name.startswith("torch ")}
    one = runs["torch, one process"]
    best_torch = max(pipelines.values(), key=lambda run: ratio(run, one))
    print(f"{'run':<36}{'tokens/s':>10}{'step':>8}{'of torch best':>15}{'loss off':>10}  rounds disturbed")
    for name, run in runs.items():
        step = 2 / ratio(run, one)  # Half of the one-process step is 1
        print(f"{name:<36}{statistics.median(run['tokens_per_second']):>10.0f}{step:>8.3f}"
              f"{ratio(run, best_torch):>15.3f}{run['loss_difference']:>10.1e}  {run['disturbed_rounds'] or ''}")
    print("step: that of torch's half one-process, one-thread step is 1.00")
    ours = {name: run for name, run in runs.items() if not name.startswith(("torch", "none"))}
    best = max(ours.values(), key=lambda run: ratio(run, one))
    met = [verdict(f"our best ({best['name']}) over its best ({best_torch['name']})", ratio(best, best_torch),
                   REQUIRED_BEST)]
    if micro_batches in REQUIRED_CHIMERA:
        met.append(verdict("chimera over torch 1f1b", ratio(runs["chimera"], runs["torch 1f1b"]),
                           REQUIRED_CHIMERA[micro_batches]))
    if micro_batches == 8:
        met.append(verdict("our best over torch's one process of two threads",
                           ratio(best, runs["torch, one process of two threads"]), 1.0))
    off = max(run["loss_difference"] for run in runs.values())
    print(f"largest difference of a step's loss: {off:.1e}; required: at most {MOST_LOSS_DIFFERENCE:.0e}: "
          f"{'met' if off <= MOST_LOSS_DIFFERENCE else 'NOT MET'}")
    return all(met) and off <= MOST_LOSS_DIFFERENCE


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--chimera", default=str(ROOT / "build" / "chimera"))
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--retries", type=int, default=30)
    options = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / "text")
        for micro_batches in options.micro_batches:
            met = report(contest(options, folder, micro_batches), micro_batches) and met
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
