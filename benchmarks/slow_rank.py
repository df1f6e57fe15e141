#!/usr/bin/env python3
"""Measures a step while a rank or a link is slow, with the order kept (--adapt none) and followed (--adapt all).

  benchmarks/slow_rank.py [--factor 2] [--schedule chimera-zb] [--data-parallel 1] [--rounds 2]
      [--program build/chimera]
  benchmarks/slow_rank.py --delay 4 [--stages 2] [...]
  benchmarks/slow_rank.py --changes 200 [...]

A GPT-2 of eight blocks on D = 2, N = 8. Rank 1 is slow (CHIMERA_FAULT) from step 31 to step 90 of 130. With --delay,
messages between the two middle ranks take as long as so many forwards instead, a forward being 1 / 3N of a healthy
step. Rounds train both ways, in alternating order. Prints the changes and medians of step times. Exits with 1 if a run
answers later than after 30 steps.

--changes is a test of endurance: so many random factors and delays of a canonical run with small steps, and a kill of
rank 1 for every 25 of them. Exits with 1 if the losses, norms or parameters of a step are not those of an undisturbed
run.
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


def run(options, folder, flags, fault=""):
    """Returns the lines of the metrics, and the messages."""
    metrics = Path(folder, "metrics.jsonl")
    command = [options.program, "train", "--data", Path(folder, "text.txt"), "--schedule", options.schedule,
               "--stages", str(options.stages), "--micro-batches", "8", "--micro-batch-size", "1",
               "--data-parallel", str(options.data_parallel), "--threads", "1", "--metrics", metrics, "--overwrite",
               *flags]
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"CHIMERA_FAULT": fault})
    if result.returncode:
        sys.exit(result.stderr.strip())
    return [json.loads(line) for line in metrics.read_text().splitlines()], result.stderr


def train(options, folder, adapt, fault, steps=STEPS):
    """Returns step times by number, the steps with another order, and the predicted and the measured time."""
    lines, messages = run(options, folder, ["--model", "gpt2-mini", "--layers", "8", "--hidden", "128", "--heads", "4",
                                            "--sequence", "128", "--steps", str(steps), "--recover", "reroute",
                                            "--adapt", adapt], fault)
    seconds = {line["step"]: line["step_seconds"] for line in lines}
    followed = [line["step"] for line in lines if line.get("factors") or line.get("delays")]
    print(*(line + "\n" for line in messages.splitlines() if line.startswith("chimera: step ")), sep="", end="")
    predicted = re.search(r"([\d.e-]+) s a step instead of ([\d.e-]+) \(predicted\)", messages)
    return seconds, followed, predicted and (float(predicted[1]), float(predicted[2]))


def median(seconds, first, last):
    return statistics.median(time for step, time in seconds.items() if first <= step <= last)


def write_text(folder):
    chance = random.Random(1)
    words = ["one", "two", "three", "four"]
    Path(folder, "text.txt").write_text(" ".join(chance.choice(words) for _ in range(50_000)))


def endure(options, folder):
    """Compares a run with random changes and kills to an undisturbed one."""
    chance = random.Random(2)
    length, kills = 30, options.changes // 25
    steps = length * (options.changes + 1)
    flags = ["--model", "gpt2-tiny", "--sequence", "32", "--steps", str(steps), "--reduction", "canonical",
             "--recover", "twin", "--max-recoveries", str(kills + 1)]
    faults = []
    for i in range(options.changes):
        kind = chance.choice(["slow*{:.1f}@step:0", "slow*{:.1f}@step:1", "delay*{:.3f}@link:0-1"])
        size = chance.uniform(0.01, 0.04) if kind.startswith("delay") else chance.uniform(3, 10)
        first = length * i + chance.randrange(1, 5)
        faults.append(f"{kind.format(size)}:{first}-{first + chance.randrange(20, 40)}:0")
    # The k-th process of rank 1 dies, so that the next one replaces it.
    faults += [f"kill@step:1:{chance.randrange(steps // (kills + 2), steps // (kills + 1))}:{k + 1}"
               for k in range(kills)]
    told, messages = run(options, folder, [*flags, "--adapt", "all"], ",".join(faults))
    expected, _ = run(options, folder, [*flags, "--adapt", "none"])
    fields = ["step", "loss", "grad_norm", "parameters_hash"]
    differing = [i + 1 for i, (one, other) in enumerate(zip(told, expected)) if any(one[f] != other[f] for f in fields)]
    changes = len(re.findall(r"^chimera: step .*predicted", messages, re.M))
    print(f"{options.changes} random speeds and {kills} kills in {steps} steps: the order changed {changes} times, "
          f"{steps - len(told)} steps are missing, {len(differing)} differ")
    return int(len(told) != steps or bool(differing) or changes == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--factor", type=float, default=2)
    parser.add_argument("--delay", type=float, help="in forwards")
    parser.add_argument("--changes", type=int)
    parser.add_argument("--schedule", default="chimera-zb")
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--data-parallel", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--program", default="build/chimera")
    options = parser.parse_args()
    healthy, kept, followed, predicted, answers, returns = [], [], [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        write_text(folder)
        if options.changes:
            return endure(options, folder)
        fault, slowness = f"slow*{options.factor:g}@step:1:{FIRST}-{LAST}", f"factor {options.factor:g}"
        if options.delay:
            forward = median(train(options, folder, "none", "", 20)[0], 5, 20) / 24
            low, slowness = options.stages // 2 - 1, f"delay of {options.delay:g} forwards"
            fault = f"delay*{options.delay * forward:.4f}@link:{low}-{low + 1}:{FIRST}-{LAST}"
        for i in range(options.rounds):
            for adapt in sorted(["none", "all"], reverse=i % 2 == 1):
                seconds, steps, forecast = train(options, folder, adapt, fault)
                healthy.append(median(seconds, 5, FIRST - 1))
                if adapt == "none":
                    kept.append(median(seconds, FIRST + PATIENCE, LAST) / healthy[-1])
                elif steps and forecast:
                    slow = [step for step in steps if step <= LAST]
                    answers.append(slow[0] - FIRST)
                    returns.append(max(steps) - LAST)
                    followed.append(median(seconds, slow[0] + 1, LAST) / healthy[-1])
                    predicted.append(forecast[0] / healthy[-1])
    name = f"`{options.schedule}`, {options.stages}, 8, {options.data_parallel}"
    if not followed:
        sys.exit(f"{name}: no run has followed, kept {statistics.median(kept):.2f}")
    print("| schedule, D, N, W | slow | healthy | order kept | followed | predicted | answered after | back after |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    kept, followed, predicted = (statistics.median(each) for each in (kept, followed, predicted))
    # An order that hides a delay is as fast without it, and may stay.
    stays = options.delay and max(returns) == STEPS - LAST
    print(f"| {name} | {slowness} | {statistics.median(healthy):.3f} s | {kept:.2f} | {followed:.2f} | "
          f"{predicted:.2f} | {max(answers)} steps | {'stays' if stays else f'{max(returns)} steps'} |")
    return int(max(answers) > PATIENCE or (max(returns) > PATIENCE and not stays))


if __name__ == "__main__":
    sys.exit(main())
