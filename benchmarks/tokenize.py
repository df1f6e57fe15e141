#!/usr/bin/env python3
"""Compares tokenizing with the Python package tokenizers: same documents, same tokenizer, alternating rounds.

    tools/oracles && .venv-oracles/bin/python benchmarks/tokenize.py [--megabytes 200] [--rounds 3]

The text is the default corpus, repeated, with a document every hundred lines. Measured on one core and on two (CPU
affinity): MB/s of `chimera tokenize` from JSONL to Megatron's files, as it reports, and of encode_batch_fast on texts
in memory, with one thread per core. Loading the tokenizer is not counted. The token counts must be equal.

It also prints MB per second of CPU time (of all threads; for `chimera tokenize`, of the whole command), which is valid
on a shared machine too.

--runs measures only `chimera tokenize`, without the package: CPU time per byte of long runs of emoji, blanks and line
ends, and their ratio to prose.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = 100  # Per document


def documents(corpus, megabytes):
    lines = corpus.read_text().splitlines(keepends=True)
    once = ["".join(lines[i:i + LINES]) for i in range(0, len(lines), LINES)]
    texts, size = [], 0
    while size < megabytes * 1e6:
        texts.append(once[len(texts) % len(once)])
        size += len(texts[-1].encode())
    return texts, size


def of_tokenizers(tokenizer, jsonl, cores):
    """Returns seconds, CPU seconds and tokens of the package. Runs in a new process, because the package reads its
    number of threads when it is loaded."""
    code = ("import json, sys, time\nfrom tokenizers import Tokenizer\ntokenizer = Tokenizer.from_file(sys.argv[1])\n"
            "texts = [json.loads(line)['text'] for line in open(sys.argv[2])]\n"
            "start = time.perf_counter(), time.process_time()\ntokens = 0\nfor i in range(0, len(texts), 1000):\n"
            "    for encoding in tokenizer.encode_batch_fast(texts[i:i + 1000], add_special_tokens=False):\n"
            "        tokens += len(encoding)\n"
            "print(json.dumps([time.perf_counter() - start[0], time.process_time() - start[1], tokens]))\n")
    environment = {**os.environ, "RAYON_NUM_THREADS": str(cores), "TOKENIZERS_PARALLELISM": "true" if cores > 1 else "false"}
    run = subprocess.run(pinned(cores) + [sys.executable, "-c", code, tokenizer, jsonl], stdout=subprocess.PIPE, check=True,
                         env=environment)
    return json.loads(run.stdout)


def cpu_seconds_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def of_chimera(program, tokenizer, jsonl, cores, folder):
    before = cpu_seconds_of_children()
    run = subprocess.run(pinned(cores) + [program, "tokenize", jsonl, "--tokenizer", tokenizer, "--output", folder / "out",
                                          "--workers", str(cores), "--end-of-document", "none", "--overwrite", "--format", "json"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    report = json.loads(run.stdout)
    return [report["seconds"], cpu_seconds_of_children() - before, report["tokens"]]


RUNS = {"emoji": "\U0001F600", "emoji of 9 kinds": "".join(chr(0x1F600 + 7 * i) for i in range(9)), "blanks": " ",
        "line ends": "\n", "blank lines": "   \n"}


def measure_runs(flags, tokenizer, folder):
    """Prints CPU time per byte of runs of 8 MB, as text files, against prose of the same size."""
    size = 8 << 20
    prose = flags.corpus.read_text()
    texts = {"prose": prose, **RUNS}
    files = {}
    for name, unit in texts.items():
        files[name] = folder / f"{name}.txt"
        files[name].write_text((unit * (size // len(unit.encode()) + 1))[:size])
    times = {name: [] for name in texts}
    for _ in range(flags.rounds):
        for name, file in files.items():
            times[name].append(of_chimera(flags.program, tokenizer, file, 1, folder)[1] / file.stat().st_size * 1e9)
    medians = {name: statistics.median(each) for name, each in times.items()}
    for name, median in medians.items():
        print(f"{name}: {median:.1f} ns of CPU time per byte, {median / medians['prose']:.2f} times prose")


def pinned(cores):
    return ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", default=ROOT / "build" / "chimera")
    parser.add_argument("--corpus", type=Path, default=ROOT / "corpus" / "bible.txt")
    parser.add_argument("--tokenizer", help="a tokenizer.json (default: a byte-level BPE of 8192 of the corpus)")
    parser.add_argument("--runs", action="store_true")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tokenizer = flags.tokenizer or folder / "tokenizer.json"
        if not flags.tokenizer:
            subprocess.run([flags.program, "tokenizer", "train", "--vocabulary", "8192", flags.corpus, "--output", tokenizer],
                           check=True)
        if flags.runs:
            return measure_runs(flags, tokenizer, folder)
        texts, size = documents(flags.corpus, flags.megabytes)
        jsonl = folder / "texts.jsonl"
        jsonl.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        print(f"{size / 1e6:.0f} MB in {len(texts)} documents, {jsonl.stat().st_size / 1e6:.0f} MB as JSONL", flush=True)
        contests = {(who, cores): [] for cores in (1, 2) for who in ("tokenizers", "chimera")}
        counts = set()
        for _ in range(flags.rounds):
            for (who, cores), rates in contests.items():
                if who == "chimera":
                    seconds, cpu, tokens = of_chimera(flags.program, tokenizer, jsonl, cores, folder)
                else:
                    seconds, cpu, tokens = of_tokenizers(str(tokenizer), str(jsonl), cores)
                rates.append((size / 1e6 / seconds, size / 1e6 / cpu))
                counts.add(tokens)
                print(f"  {who}, {cores} cores: {rates[-1][0]:.1f} MB/s, {rates[-1][1]:.1f} a CPU second, {tokens} tokens",
                      flush=True)
        assert len(counts) == 1, counts
        for measure, what in enumerate(("MB/s", "MB a CPU second")):
            median = {key: statistics.median(rate[measure] for rate in rates) for key, rates in contests.items()}
            for cores in (1, 2):
                ours, theirs = median["chimera", cores], median["tokenizers", cores]
                print(f"{cores} cores, {what}: chimera {ours:.1f}, tokenizers {theirs:.1f}, ratio {ours / theirs:.1f}")
            print(f"two cores against one, {what}: chimera {median['chimera', 2] / median['chimera', 1]:.2f}, tokenizers "
                  f"{median['tokenizers', 2] / median['tokenizers', 1]:.2f}")


main()
