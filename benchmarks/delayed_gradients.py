#!/usr/bin/env python3
"""Compares delayed gradients (pipedream-2bw) with synchronous ones (1f1b), for AdamW and for Muon.

    delayed_gradients.py [--steps 2000] [--stages 2] [--learning-rate 0.003] [--folder DIR]

Trains a small Llama four times from the same weights on the same samples: micro-batches of 4 x 64 tokens, bytes of the
corpus that `./dev run` makes. Prints the mean loss of the last tenth of the steps, the
validation loss, and what the delay costs each optimizer. `--folder` keeps the metrics of each run.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCHEDULES = {"synchronous": "1f1b", "2BW": "pipedream-2bw"}


def train(options, folder, optimizer, schedule):
    """Returns the metrics of a run, a dict for each step."""
    metrics = folder / f"{optimizer}-{schedule}.jsonl"
    subprocess.run(
        [options.chimera, "train", "--model", "llama-tiny", "--layers", str(options.layers), "--hidden", "64", "--heads",
         "4", "--key-value-heads", "4", "--tied", "false", "--data", options.data, "--sequence", "64",
         "--micro-batch-size", "4", "--micro-batches", str(options.stages), "--stages", str(options.stages), "--steps",
         str(options.steps), "--warmup", str(options.steps // 20), "--learning-rate", str(options.learning_rate),
         "--weight-decay", "0.1", "--beta2", "0.95", "--optimizer", optimizer, "--schedule", schedule, "--threads", "1",
         "--validate-every", str(options.steps), "--metrics", str(metrics)],
        check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in metrics.read_text().splitlines()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chimera", default=str(ROOT / "build" / "chimera"))
    parser.add_argument("--data", default=str(ROOT / "corpus" / "bible.txt"))
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=0.003)
    parser.add_argument("--folder", type=pathlib.Path)
    options = parser.parse_args()
    last = max(options.steps // 10, 1)
    print(f"Llama of {options.layers} layers of 64, D = N = {options.stages}, {options.steps} steps of "
          f"{options.stages * 4 * 64} tokens, learning rate {options.learning_rate}; loss: mean of the last {last} steps")
    print(f"{'optimizer':<11}{'schedule':<14}{'loss':>8}{'validation':>12}{'gap':>9}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or pathlib.Path(name)
        folder.mkdir(exist_ok=True)
        for optimizer in ("adamw", "muon"):
            first = None
            for words, schedule in SCHEDULES.items():
                steps = train(options, folder, optimizer, schedule)
                loss = statistics.mean(step["loss"] for step in steps[-last:])
                first = loss if first is None else first
                print(f"{optimizer:<11}{words:<14}{loss:>8.4f}{steps[-1]['validation_loss']:>12.4f}{loss - first:>+9.4f}",
                      flush=True)


if __name__ == "__main__":
    main()
