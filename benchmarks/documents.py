#!/usr/bin/env python3
"""Compares a step with attention inside documents (--documents split) to one over whole windows (pack).

  benchmarks/documents.py [--sequence 2048] [--document 128] [--rounds 3] [--program build/chimera]

A Llama of four blocks reads raw tokens in documents of equal length; each round trains both ways, in alternating order.
"""
import argparse
import json
import random
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

END, VOCABULARY, STEPS = 0, 333, 6
MODEL = """family = "llama"
layers = 4
hidden = 256
heads = 8
feed_forward = 704
vocabulary = {}
positions = {}
tied = false
"""
DOCUMENTS = {"pack": [], "split": ["--documents", "split", "--end-of-document", str(END)]}


def seconds_of_a_step(options, folder, documents):
    metrics = Path(folder, "metrics.jsonl")
    command = [options.program, "train", "--model", Path(folder, "model.toml"), "--data", Path(folder, "tokens.bin"),
               *DOCUMENTS[documents], "--schedule", "1f1b", "--stages", "2", "--micro-batches", "2",
               "--micro-batch-size", "1", "--sequence", str(options.sequence), "--steps", str(STEPS),
               "--metrics", metrics, "--overwrite"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr.strip())
    return statistics.median(json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequence", type=int, default=2048)
    parser.add_argument("--document", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default="build/chimera")
    options = parser.parse_args()
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        tokens = [END if i % options.document == options.document - 1 else chance.randrange(1, VOCABULARY)
                  for i in range(40 * options.sequence)]
        Path(folder, "tokens.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        Path(folder, "model.toml").write_text(MODEL.format(VOCABULARY, options.sequence))
        times = {"pack": [], "split": []}
        for i in range(options.rounds):
            for documents in sorted(times, reverse=i % 2 == 1):
                times[documents].append(seconds_of_a_step(options, folder, documents))
    pack, split = (statistics.median(times[each]) for each in ("pack", "split"))
    print(f"Windows of {options.sequence} with documents of {options.document} tokens: "
          f"pack {pack:.3f} s, split {split:.3f} s, {pack / split:.2f} times as fast")


if __name__ == "__main__":
    main()
