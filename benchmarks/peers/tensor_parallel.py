#!/usr/bin/env python3
"""Compares layers that two ranks share with torch's parallelize_module, and with one process of two threads.

    tensor_parallel.py [--python PYTHON] [--micro-batch-size 4] [--micro-batches 2] [--rounds 3]

GPipe with D = 1: a GPT-2 of 8 layers of 512, 8 heads, vocabulary 4,096, sequence 256, float32, one thread per rank.
PYTHON is an interpreter as in compare.py. Leave the machine otherwise idle.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import compare

OURS = ["--schedule gpipe --tensor-parallel 2", "--schedule gpipe --tensor-parallel 2 --sequence-parallel none"]


def workload(options, folder):
    return ["--model", "gpt2-mini", "--layers", "8", "--hidden", "512", "--heads", "8", "--vocabulary", "4096", "--tied",
            "false", "--data", str(folder / "text"), "--sequence", "256", "--micro-batch-size",
            str(options.micro_batch_size), "--micro-batches", str(options.micro_batches), "--steps", str(options.steps)]


def contest(options, folder):
    """Returns the results by name: tokens per second of each round, and the difference of the loss."""
    exported = folder / "exported"
    bench = [options.chimera, "bench", *workload(options, folder)]
    subprocess.run([*bench, "--stages", "2", "--export", str(exported)], check=True)  # Exports do not depend on D
    peers = pathlib.Path(__file__).parent
    commands = {"torch, split": f"{peers / 'torch_tensor_parallel.py'} {exported}",
                "torch, two threads": f"{peers / 'torch_pipelining.py'} {exported} --schedule none --processes 1 --threads 2"}
    words = [*bench, "--stages", "1", "--rounds", str(options.rounds), "--retries", str(options.retries), "--skip", "1",
             "--format", "json"]
    for flags in [*(f"{flags} --threads 1" for flags in OURS), "--schedule none --threads 2"]:
        words += ["--run", flags]
    for name, command in commands.items():
        words += ["--command", f"{name}={options.python} {command}"]
    result = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"{result['machine']}; {options.rounds} interleaved rounds of {options.steps} steps", flush=True)
    return {run["name"]: run for run in result["runs"]}


def sums(options, folder):
    """Returns the seconds in sums inside ops by name: rank 0's in each step but the first, over interleaved rounds."""
    metrics, seconds = folder / "metrics.jsonl", {}
    commands = {f"{flags} --threads 1": [options.chimera, "train", *workload(options, folder), "--stages", "1",
                                         "--threads", "1", "--overwrite", *flags.split(), "--metrics", str(metrics)]
                for flags in OURS}
    peer = pathlib.Path(__file__).parent / "torch_tensor_parallel.py"
    commands["torch, split"] = [options.python, str(peer), str(folder / "exported"), "--metrics", str(metrics)]
    for _ in range(options.rounds):
        for name, command in commands.items():
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            steps = [json.loads(line) for line in metrics.read_text().splitlines()]
            seconds.setdefault(name, []).extend(step["op_sum_seconds"] for step in steps[1:])
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--chimera", default=str(compare.ROOT / "build" / "chimera"))
    parser.add_argument("--micro-batch-size", type=int, default=4)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--retries", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        compare.write_text(folder / "text")
        runs = contest(options, folder)
        seconds = sums(options, folder)
    threads = next(run for name, run in runs.items() if "--threads 2" in name)
    print(f"{'run':<72}{'tokens/s':>10}{'of two threads':>16}{'loss off':>10}{'s in sums':>11}")
    for name, run in runs.items():
        print(f"{name:<72}{statistics.median(run['tokens_per_second']):>10.0f}{compare.ratio(run, threads):>16.3f}"
              f"{run['loss_difference']:>10.1e}"
              + (f"{statistics.median(seconds[name]):>11.4f}" if name in seconds else ""))


if __name__ == "__main__":
    main()
