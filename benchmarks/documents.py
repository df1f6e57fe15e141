#!/usr/bin/env python3
"""Compares a step with attention inside documents (--documents split) to one over whole windows (pack).

  benchmarks/documents.py [--sequence 2048] [--document 128] [--rounds 3] [--program build/chimera]
  benchmarks/documents.py --lognormal [--schedule 1f1b] [--rounds 2] [...]
  benchmarks/documents.py --cost [--sequence 256] [--document 64] [--rounds 20] [...]

A Llama of four blocks reads raw tokens in documents of equal length; each round trains both ways, in alternating order.

--lognormal draws the lengths of documents (median a fifth of a window, sigma 1.6). Each step has the same eight windows
in another order. Prints a table of steps: healthy (documents of equal length and as much work), windows as drawn
(--adapt none), permuted (--adapt documents), and both as simulated. A run with documents of --document tokens shows how
much of an op is attention.

--cost prints the CPU time of all ranks with --adapt documents, which has nothing to deal here, over that with --adapt
none. Each round trains both, and none once more, which shows the noise. CPU time until the first step is left out.
"""
import argparse
import json
import random
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

END, VOCABULARY, STEPS, STAGES = 0, 333, 8, 2
MODEL = """family = "llama"
layers = 4
hidden = {}
heads = {}
feed_forward = {}
vocabulary = {}
positions = {}
tied = false
"""
DEFAULTS = {"cost": (256, 64, 20), "lognormal": (2048, 128, 2), "": (2048, 128, 3)}


def train(options, tokens, documents="split", steps=STEPS, adapt="documents"):
    """Returns the median time of a step, and the CPU time of all processes."""
    metrics = tokens.with_name("metrics.jsonl")
    command = [options.program, "train", "--model", tokens.with_name("model.toml"), "--data", tokens,
               "--documents", documents, "--end-of-document", str(END), "--schedule", options.schedule,
               "--stages", str(STAGES), "--micro-batches", str(options.micro_batches), "--micro-batch-size", "1",
               "--sequence", str(options.sequence), "--steps", str(steps), "--adapt", adapt, "--threads", "1",
               "--metrics", metrics, "--overwrite"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        sys.exit(result.stderr.strip())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = [json.loads(line)["step_seconds"] for line in metrics.read_text().splitlines()]
    return statistics.median(seconds[2:] or seconds), sum(after[:2]) - sum(before[:2])


def write_tokens(path, windows):
    """Writes windows of documents of these lengths."""
    chance = random.Random(1)
    tokens = []
    for lengths in windows:
        for length in lengths:
            tokens += [chance.randrange(1, VOCABULARY) for _ in range(length - 1)] + [END]
        tokens.append(END)  # A window has a token more, the last target
    path.write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    return path


def equal_window(sequence, length):
    return [length] * (sequence // length) + ([sequence % length] if sequence % length else [])


def drawn_window(sequence, chance):
    lengths = []
    while (left := sequence - sum(lengths)) > 0:
        lengths.append(min(left, max(1, round(sequence / 5 * chance.lognormvariate(0, 1.6)))))
    return lengths


def share_of_squares(lengths):
    """Returns the attention of a window of these documents, as a share of that of a window of one document."""
    return sum(length**2 for length in lengths) / sum(lengths)**2


def print_cost(options, tokens):
    start = statistics.median(train(options, tokens, steps=1)[1] for _ in range(3))
    ratios = {"documents": [], "none": []}
    for i in range(options.rounds):
        # The first run of a round may differ from the others.
        ways = ["none", "documents", "again"] if i % 2 == 0 else ["again", "documents", "none"]
        used = {way: train(options, tokens, steps=60, adapt="documents" if way == "documents" else "none")[1] - start
                for way in ways}
        ratios["documents"].append(2 * used["documents"] / (used["none"] + used["again"]))
        ratios["none"].append(used["again"] / used["none"])
    for way, each in ratios.items():
        low, _, high = statistics.quantiles(each, n=4)
        print(f"CPU time of --adapt {way} over none: {statistics.median(each):.4f} (quartiles {low:.4f}, {high:.4f}), "
              f"{len(each)} rounds")


def simulated(options, tokens, work, *flags):
    """Returns the makespan of a step."""
    costs = tokens.with_name("costs.json")
    stage = {"forward": 1, "backward": 2}
    costs.write_text(json.dumps({"latency": 0, "stages": [stage] * STAGES, "micro_batches": work}))
    command = [options.program, "simulate", options.schedule, "--stages", str(STAGES), "--micro-batches",
               str(len(work)), "--costs", costs, "--format", "json", *flags]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["makespan"]


def print_table(options, tokens):
    chance = random.Random(options.seed)
    drawn = [drawn_window(options.sequence, chance) for _ in range(options.micro_batches)]
    squares = [share_of_squares(lengths) for lengths in drawn]
    length = min(range(1, options.sequence + 1),
                 key=lambda each: abs(share_of_squares(equal_window(options.sequence, each)) - statistics.mean(squares)))
    write_tokens(tokens, drawn)
    equal, short = (write_tokens(tokens.with_name(f"{each}.bin"),
                                 [equal_window(options.sequence, each)] * options.micro_batches)
                    for each in (length, options.document))
    times = {"equal": [], "short": [], "none": [], "documents": []}
    runs = {"equal": (equal, "none"), "short": (short, "none"), "none": (tokens, "none"),
            "documents": (tokens, "documents")}
    for i in range(options.rounds):
        for way in sorted(runs, reverse=i % 2 == 1):
            times[way].append(train(options, runs[way][0], adapt=runs[way][1])[0])
    times = {way: statistics.median(each) for way, each in times.items()}
    # The time of an op is in proportion to 1 - a + a * squares.
    saved = 1 - times["short"] / times["equal"]
    a = saved / (saved + (1 - saved) * statistics.mean(squares) - options.document / options.sequence)
    work = [1 - a + a * each for each in squares]
    work = [each / statistics.mean(work) for each in work]
    even = simulated(options, tokens, [1] * len(work))
    kept = statistics.mean(simulated(options, tokens, chance.sample(work, len(work))) for _ in range(12)) / even
    followed = simulated(options, tokens, work, "--permute-micro-batches") / even
    print(f"Attention is {a:.2f} of an op if one document fills the window.")
    print("| schedule, D, N | healthy | as drawn | predicted | permuted | predicted |")
    print("| --- | --- | --- | --- | --- | --- |")
    print(f"| `{options.schedule}`, {STAGES}, {len(work)} | {times['equal']:.3f} s | "
          f"{times['none'] / times['equal']:.2f} | {kept:.2f} | {times['documents'] / times['equal']:.2f} | "
          f"{followed:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--cost", dest="mode", action="store_const", const="cost", default="")
    mode.add_argument("--lognormal", dest="mode", action="store_const", const="lognormal")
    parser.add_argument("--sequence", type=int)
    parser.add_argument("--document", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seed", type=int, default=1, help="of the lengths of --lognormal")
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--program", default="build/chimera")
    options = parser.parse_args()
    for name, default in zip(("sequence", "document", "rounds"), DEFAULTS[options.mode]):
        setattr(options, name, getattr(options, name) or default)
    options.micro_batches = 8 if options.mode == "lognormal" else 2
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder, "tokens.bin")
        shape = (128, 4, 352) if options.mode == "lognormal" else (256, 8, 704)
        Path(folder, "model.toml").write_text(MODEL.format(*shape, VOCABULARY, options.sequence))
        if options.mode == "lognormal":
            return print_table(options, tokens)
        write_tokens(tokens, [equal_window(options.sequence, options.document)] * 40)
        if options.mode == "cost":
            return print_cost(options, tokens)
        times = {"pack": [], "split": []}
        for i in range(options.rounds):
            for documents in sorted(times, reverse=i % 2 == 1):
                times[documents].append(train(options, tokens, documents)[0])
    pack, split = (statistics.median(times[each]) for each in ("pack", "split"))
    print(f"Windows of {options.sequence} with documents of {options.document} tokens: "
          f"pack {pack:.3f} s, split {split:.3f} s, {pack / split:.2f} times as fast")
    return None


if __name__ == "__main__":
    main()
