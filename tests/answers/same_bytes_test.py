"""Compares the compiled half under Node with the program: the same requests must give the same bytes.

Usage: same_bytes_test.py CHIMERA ENGINE.JS [--times]. Exits with 77 (skipped) if Node or the web build is missing.
--times prints the times of simulations in both instead.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import time

CHIMERA, ENGINE = sys.argv[1], pathlib.Path(sys.argv[2])
FOLDER = pathlib.Path(__file__).parent
MACHINES = FOLDER.parents[1] / "machines"
FORMATS = ["json", "csv", "csv-communication", "figure", "svg", "text", "timeline", "perfetto"]
COSTS = {"forward": 1.1, "input_gradient": 1.3, "weight_gradient": 0.7, "latency": 0.1, "all_reduce": 0.9,
         "weights": 3e9, "activations": 2.5e8}


def answers(command, lines):
    return subprocess.run(command, input="\n".join(lines) + "\n", text=True, check=True,
                          stdout=subprocess.PIPE).stdout.splitlines()


def native(lines):
    return answers([CHIMERA, "playground", "--answer", "-"], lines)


def compiled(lines):
    return answers(["node", FOLDER / "ask.js", ENGINE], lines)


def shapes_of(entry):
    """The figure's shape, larger ones, and each parameter with other values than the usual one."""
    for stages, micro_batches in [(entry["stages"], entry["micro_batches"]), (2, 2), (4, 8), (6, 5), (8, 16), (8, 64)]:
        yield {"name": entry["name"], "stages": stages, "micro_batches": micro_batches}
    for parameter in entry["parameters"]:
        axis = next(axis for axis in CATALOG["axes"] if axis["name"] == parameter)
        for value in axis["values"] or [1, 2, 3, 4]:
            yield {"name": entry["name"], "stages": 4, "micro_batches": 8, "parameters": {parameter: value}}


def requests():
    yield {"do": "catalog"}
    for entry in CATALOG["schedules"]:
        for schedule in shapes_of(entry):
            yield {"do": "simulate", "schedule": schedule}
            yield {"do": "simulate", "schedule": schedule, "costs": COSTS, "sync": "eager", "data_parallel": 2}
            yield {"do": "simulate", "schedule": schedule, "view": "figure"}
        figure = {"name": entry["name"], "stages": entry["stages"], "micro_batches": entry["micro_batches"]}
        for format_ in FORMATS:
            yield {"do": "export", "format": format_, "schedule": figure, "costs": COSTS}
        yield {"do": "simulate", "schedule": figure, "steps": 3, "blocking_sends": True}
    for text in ["0F0,0B0\n", "0F0,0B0,0F1,0B1\n1B0,1F0,1F1,1B1\n", "nonsense\n", "0F0,0F1,0B1,0B0\n1F0,1B0,1F1,1B1\n"]:
        yield {"do": "check", "schedule": {"text": text}}
    for placement in CATALOG["placements"]:
        yield {"do": "search", "placement": placement["name"], "stages": 4, "micro_batches": 6, "iterations": 3000,
               "seed": 3, "costs": COSTS}
    for model in CATALOG["models"]:
        for partition in ["even", "balanced"]:
            yield {"do": "model", "model": model["name"], "partition": partition, "recompute": "auto",
                   "memory_bytes": 2e9, "schedule": {"name": "chimera", "stages": 2, "micro_batches": 4}}
    for path in sorted(MACHINES.glob("*.json")):
        yield {"do": "plan", "model": "bert-48", "workers": 8, "mini_batch": 64, "memory_bytes": 16 * 2**30,
               "machine": path.read_text(encoding="utf-8"), "top": 5}


def compare():
    lines = [json.dumps(request) for request in requests()]
    wrong = 0
    began = time.monotonic()
    ours, theirs = native(lines), compiled(lines)
    assert len(ours) == len(theirs) == len(lines), (len(ours), len(theirs), len(lines))
    for line, one, other in zip(lines, ours, theirs):
        if one == other:
            continue
        wrong += 1
        at = next((i for i, (a, b) in enumerate(zip(one, other)) if a != b), min(len(one), len(other)))
        around = slice(max(0, at - 60), at + 60)
        print(f"{line[:200]}\n  native   ...{one[around]}\n  compiled ...{other[around]}")
    answered = sum(not answer.startswith('{"error"') for answer in ours)
    print(f"{len(lines)} requests, {answered} of them answered, {wrong} answers differ; "
          f"{time.monotonic() - began:.1f} s")
    assert answered > len(lines) / 2
    return wrong


def print_times():
    """Of many simulations in one run, less one run of a single one: start-up drops out. The least of three runs."""
    def seconds(run, request, count):
        times = []
        for _ in range(3):
            began = time.monotonic()
            run([json.dumps(request)] * count)
            times.append(time.monotonic() - began)
        return min(times)
    for stages, micro_batches, count in [(8, 64, 200), (16, 128, 80), (32, 256, 40), (64, 256, 20)]:
        request = {"do": "simulate", "view": "totals", "costs": COSTS,
                   "schedule": {"name": "chimera", "stages": stages, "micro_batches": micro_batches}}
        ours, theirs = ((seconds(run, request, count + 1) - seconds(run, request, 1)) / count
                        for run in (native, compiled))
        print(f"chimera, D = {stages}, N = {micro_batches}: native {1000 * ours:.2f} ms, compiled "
              f"{1000 * theirs:.2f} ms, {theirs / ours:.2f} times as long")


if shutil.which("node") is None or not ENGINE.exists():
    print("skipped: needs Node and the web build; tools/playground-test makes both")
    sys.exit(77)
CATALOG = json.loads(native(['{"do": "catalog"}'])[0])
if "--times" in sys.argv:
    print_times()
else:
    sys.exit(1 if compare() else 0)
