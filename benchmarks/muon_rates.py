#!/usr/bin/env python3
"""Compares learning rates of AdamW and Muon in the first steps of a recipe.

    muon_rates.py [--recipe nanogpt-cpu] [--steps 300] [--rates 0.001,0.003,0.01,0.03] [--folder DIR] [TRAIN FLAGS]

Each run has the recipe's flags, a warmup of a tenth of its steps, and a cosine to a tenth of its rate. Prints the loss
curve of each run (means of a tenth of the steps, at 1/4, 1/2, 3/4 and the end), its validation loss, and the best rate
of each optimizer. `--folder` keeps the metrics: `chimera compare DIR/*.jsonl --format svg` draws the curves.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def train(options, train_flags, folder, optimizer, rate):
    """Returns the metrics of a run, a dict for each step; empty if it did not end well."""
    metrics = folder / f"{options.recipe}-{optimizer}-{rate:g}.jsonl"
    run = subprocess.run(
        [options.chimera, "train", "--recipe", str(ROOT / "recipes" / f"{options.recipe}.toml"), "--data", options.data,
         "--steps", str(options.steps), "--warmup", str(options.steps // 10), "--learning-rate", str(rate),
         "--min-learning-rate", str(rate / 10), "--optimizer", optimizer, "--threads", "1", "--validate-every",
         str(options.steps), "--metrics", str(metrics), *train_flags], stdout=subprocess.DEVNULL, check=False)
    return [json.loads(line) for line in metrics.read_text().splitlines()] if run.returncode == 0 else []


def curve(steps):
    """Returns the mean losses of the tenths of the steps that end at 1/4, 1/2, 3/4 and 1."""
    tenth = max(len(steps) // 10, 1)
    ends = [len(steps) * quarter // 4 for quarter in (1, 2, 3, 4)]
    return [statistics.mean(step["loss"] for step in steps[max(end - tenth, 0):end]) for end in ends]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimera", default=str(ROOT / "build" / "chimera"))
    parser.add_argument("--data", default=str(ROOT / "corpus" / "bible.txt"))
    parser.add_argument("--recipe", default="nanogpt-cpu")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rates", default="0.001,0.003,0.01,0.03")
    parser.add_argument("--folder", type=pathlib.Path)
    options, train_flags = parser.parse_known_args()
    print(f"{options.recipe}.toml, {options.steps} steps; loss: means of {max(options.steps // 10, 1)} steps")
    print(f"{'optimizer':<11}{'rate':>8}{'1/4':>9}{'1/2':>9}{'3/4':>9}{'end':>9}{'validation':>12}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or pathlib.Path(name)
        folder.mkdir(exist_ok=True)
        for optimizer in ("adamw", "muon"):
            best = None
            for rate in map(float, options.rates.split(",")):
                steps = train(options, train_flags, folder, optimizer, rate)
                if not steps:
                    print(f"{optimizer:<11}{rate:>8g}  diverged", flush=True)
                    continue
                last = steps[-1]["validation_loss"]
                best = min(best or (last, rate), (last, rate))
                losses = "".join(f"{loss:>9.4f}" for loss in curve(steps))
                print(f"{optimizer:<11}{rate:>8g}{losses}{last:>12.4f}", flush=True)
            if best:
                print(f"best rate of {optimizer}: {best[1]:g}", flush=True)


if __name__ == "__main__":
    main()
