#!/usr/bin/env python3
"""Prints connections, memory and start-up time of 8 to 64 ranks (Chimera, W = 4, a tiny model) as a table.

Usage: benchmarks/connections.py [CHIMERA [RANKS...]]

Columns: time from the launch to the end of the first step; open files of a rank; its sockets for connections; its
private memory. Each is the maximum over ranks, after all ranks have started their steps.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

GROUPS = 4  # W
PATIENCE = 300


def ranks_of(launcher):
    return [int(child) for child in pathlib.Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


def open_files(process):
    return [str(entry.readlink()) for entry in pathlib.Path(f"/proc/{process}/fd").iterdir() if entry.is_symlink()]


def private_mebibytes(process):
    lines = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def measure(program, ranks, folder):
    text = folder / "text.txt"
    text.write_text("".join(f"the king went to house {n} and spoke. " for n in range(2000)))
    metrics = folder / f"metrics-{ranks}.jsonl"
    stages = ranks // GROUPS
    words = [program, "train", "--model", "gpt2-tiny", "--layers", str(max(stages, 2)), "--data", str(text), "--schedule", "chimera",
             "--stages", str(stages), "--micro-batches", str(stages), "--micro-batch-size", "1", "--data-parallel", str(GROUPS),
             "--sequence", "32", "--steps", "1000000", "--metrics", str(metrics)]
    start = time.monotonic()
    messages = folder / "messages"
    with messages.open("w") as said, subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said) as job:
        try:
            while not (metrics.exists() and metrics.read_text()):
                if job.poll() is not None or time.monotonic() > start + PATIENCE:
                    raise SystemExit(f"{ranks} ranks: no step is done\n{messages.read_text()}")
                time.sleep(0.01)
            seconds = time.monotonic() - start
            files = [open_files(rank) for rank in ranks_of(job.pid)]
            sockets = max(sum(name.startswith("socket:") for name in names) for names in files)
            memory = max(private_mebibytes(rank) for rank in ranks_of(job.pid))
            return seconds, max(map(len, files)), sockets, memory
        finally:
            job.terminate()


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "build/chimera"
    counts = [int(word) for word in sys.argv[2:]] or [8, 16, 32, 64]
    print("| ranks | D x W | first step, s | open files | sockets | private MiB |\n| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for ranks in counts:
            seconds, files, sockets, memory = measure(program, ranks, pathlib.Path(folder))
            print(f"| {ranks} | {ranks // GROUPS} x {GROUPS} | {seconds:.1f} | {files} | {sockets} | {memory:.0f} |", flush=True)


main()
