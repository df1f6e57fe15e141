#!/usr/bin/env python3
"""Compares steps with Muon: chimera-zb, whose two copies of each stage share the iterations, and 1F1B of
torch.distributed.pipelining with torch.optim.Muon.

    muon.py [--python PYTHON] [--rounds 5] [--dtype bfloat16]

Two processes with one thread each on two cores, N = 2: 8 layers of 256, 4 heads, vocabulary 4,096, sequence 256,
micro-batches of 8, float32; both iterate in `--dtype`. PYTHON is an interpreter as in compare.py. Leave the machine
otherwise idle.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import compare

REQUIRED = 1.25  # chimera-zb relative to torch's 1F1B
MOST_LOSS_DIFFERENCE = 1e-3  # Iterations in bfloat16 round in another order


def contest(options, folder):
    """Returns the results by name."""
    exported = folder / "exported"
    bench = [options.chimera, "bench", "--model", "gpt2-mini", "--layers", "8", "--hidden", "256", "--heads", "4",
             "--vocabulary", "4096", "--tied", "false", "--data", str(folder / "text"), "--sequence", "256",
             "--micro-batch-size", str(options.micro_batch_size), "--stages", "2", "--micro-batches", "2", "--steps",
             str(options.steps), "--optimizer", "muon", "--muon-dtype", options.dtype]
    subprocess.run([*bench, "--export", str(exported)], check=True)
    peer = f"{options.python} {compare.ROOT}/benchmarks/peers/torch_pipelining.py {exported} --schedule 1f1b"
    words = [*bench, "--threads", "1", "--rounds", str(options.rounds), "--retries", str(options.retries), "--format",
             "json", "--schedules", "chimera-zb,chimera,1f1b", "--command", f"torch 1f1b={peer}"]
    result = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"{result['machine']}; {options.rounds} interleaved rounds of {options.steps} steps; iterations in "
          f"{options.dtype}")
    return {run["name"]: run for run in result["runs"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--chimera", default=str(compare.ROOT / "build" / "chimera"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--retries", type=int, default=30)
    parser.add_argument("--micro-batch-size", type=int, default=8)
    parser.add_argument("--dtype", default="bfloat16")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        compare.write_text(folder / "text")
        runs = contest(options, folder)
    torch = runs["torch 1f1b"]
    print(f"{'run':<16}{'tokens/s':>10}{'of torch 1f1b':>15}{'loss off':>10}  rounds disturbed")
    for name, run in runs.items():
        print(f"{name:<16}{statistics.median(run['tokens_per_second']):>10.0f}{compare.ratio(run, torch):>15.3f}"
              f"{run['loss_difference']:>10.1e}  {run['disturbed_rounds'] or ''}")
    met = compare.verdict("chimera-zb over torch 1f1b", compare.ratio(runs["chimera-zb"], torch), REQUIRED)
    off = max(run["loss_difference"] for run in runs.values())
    sys.exit(0 if met and off <= MOST_LOSS_DIFFERENCE else 1)


if __name__ == "__main__":
    main()
