#!/usr/bin/env python3
"""Measures a step while a rank is slow, with the order kept (--adapt none) and followed (--adapt all).

  benchmarks/slow_rank.py [--factor 2] [--schedule chimera-zb] [--data-parallel 1] [--rounds 2]
      [--program build/chimera]

A GPT-2 of eight blocks on D = 2, N = 8. Rank 1 is slow (CHIMERA_FAULT) from step 31 to step 90 of 130. Rounds train
both ways, in alternating order. Prints the changes and medians of step times. Exits with 1 if a run answers later than
after 30 steps.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

FIRST, LAST, STEPS, PATIENCE = 31, 90, 130, 30


def train(options, folder, adapt):
    """Returns step times by number, the steps that follow a slow rank, and the predicted and the measured time."""
    metrics = Path(folder, "metrics.jsonl")
    command = [options.program, "train", "--model", "gpt2-mini", "--layers", "8", "--hidden", "128", "--heads", "4",
               "--data", Path(folder, "text.txt"), "--schedule", options.schedule, "--stages", "2",
               "--micro-batches", "8", "--micro-batch-size", "1", "--sequence", "128", "--steps", str(STEPS),
               "--data-parallel", str(options.data_parallel), "--recover", "reroute", "--adapt", adapt,
               "--threads", "1", "--metrics", metrics, "--overwrite"]
    fault = f"slow*{options.factor:g}@step:1:{FIRST}-{LAST}"
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"CHIMERA_FAULT": fault})
    if result.returncode:
        sys.exit(result.stderr.strip())
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    seconds = {line["step"]: line["step_seconds"] for line in lines}
    followed = [line["step"] for line in lines if line.get("factors")]
    print(*(line + "\n" for line in result.stderr.splitlines() if line.startswith("chimera: step ")), sep="", end="")
    predicted = re.search(r"([\d.e-]+) s a step instead of ([\d.e-]+) \(predicted\)", result.stderr)
    return seconds, followed, predicted and (float(predicted[1]), float(predicted[2]))


def median(seconds, first, last):
    return statistics.median(time for step, time in seconds.items() if first <= step <= last)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factor", type=float, default=2)
    parser.add_argument("--schedule", default="chimera-zb")
    parser.add_argument("--data-parallel", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--program", default="build/chimera")
    options = parser.parse_args()
    chance = random.Random(1)
    healthy, kept, followed, predicted, answers, returns = [], [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        words = ["one", "two", "three", "four"]
        Path(folder, "text.txt").write_text(" ".join(chance.choice(words) for _ in range(50_000)))
        for i in range(options.rounds):
            for adapt in sorted(["none", "all"], reverse=i % 2 == 1):
                seconds, steps, forecast = train(options, folder, adapt)
                healthy.append(median(seconds, 5, FIRST - 1))
                if adapt == "none":
                    kept.append(median(seconds, FIRST + PATIENCE, LAST) / healthy[-1])
                elif steps and forecast:
                    slow = [step for step in steps if step <= LAST]
                    answers.append(slow[0] - FIRST)
                    returns.append(max(steps) - LAST)
                    followed.append(median(seconds, slow[0] + 1, LAST) / healthy[-1])
                    predicted.append(forecast[0] / healthy[-1])
    name = f"`{options.schedule}`, 2, 8, {options.data_parallel}"
    if not followed:
        sys.exit(f"{name}: no run has followed the slow rank")
    print("| schedule, D, N, W | factor | healthy | order kept | followed | predicted | answered after | back after |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    kept, followed, predicted = (statistics.median(each) for each in (kept, followed, predicted))
    print(f"| {name} | {options.factor:g} | {statistics.median(healthy):.3f} s | {kept:.2f} | {followed:.2f} | "
          f"{predicted:.2f} | {max(answers)} steps | {max(returns)} steps |")
    return int(max(answers) > PATIENCE or max(returns) > PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
