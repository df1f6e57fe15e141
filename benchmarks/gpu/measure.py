#!/usr/bin/env python3
"""Builds for GPUs, tests, measures and compares on this machine in ten minutes, offline: `tools/gpu`.

    measure.py [--dry-run] [--peak TFLOPS] [--seconds 600]

Each part has its own time limit:

- Build: the GPU library and the program from the packages of `tools/cuda-build`; the Python package if `./dev python` has
  installed its packages.
- Tests that need a GPU. A skipped or missing test is a failure.
- The blocks of gpt2-64 at 1,024 tokens, as a share of the GPU's peak in bfloat16 (--peak if its data sheet is unknown).
  A missing share, or less than 60 %, is a failure.
- Training runs, over NCCL if there are two GPUs, and of a small model with and without CUDA graphs.
- The same blocks with transformers and torch.distributed.pipelining, if an interpreter has them (`tools/oracles`).

build/gpu keeps the output of the parts. Exits with 1 if a part failed, with 2 if there is no GPU or nothing to build
from. --dry-run prints the parts without running them.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ["--layers", "8", "--sequence", "1024", "--micro-batch-size", "4", "--micro-batches", "10"]
ASKED_SHARE = 60  # Percent of peak
SECONDS = 600  # Of all parts together; their own limits add up to no more
SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+)|^SKIPPED \[\d+\] (\S+)", re.MULTILINE)


@dataclasses.dataclass
class Part:
    """A command. `skip`: reason not to run it."""
    name: str
    command: list
    limit: int  # Seconds
    skip: str = ""
    verdict: object = None  # Function from the output to a reason for failure, empty on success


@dataclasses.dataclass
class Outcome:
    part: Part
    state: str  # passed, FAILED, not run
    why: str = ""
    text: str = ""
    seconds: float = 0.0


def run_limited(command, limit, log):
    """Returns the exit status, None after the time limit. Kills all processes that the command started."""
    with open(log, "w") as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # It has its own session
            child.wait()
            return None


def run_host_ranks(part, folder, seconds_left):
    if part.skip:
        return Outcome(part, "not run", part.skip)
    limit = min(part.limit, seconds_left)
    if limit < 1:
        return Outcome(part, "FAILED", "no time is left")
    log, start = folder / f"{part.name}.log", time.monotonic()
    status = run_limited(part.command, limit, log)
    seconds, text = time.monotonic() - start, log.read_text(errors="replace")
    skipped = sorted({a or b for a, b in SKIPPED.findall(text)})
    if status is None:
        return Outcome(part, "FAILED", f"not done within {limit:.0f} s", text, seconds)
    if status != 0:
        return Outcome(part, "FAILED", f"exit code {status}: {last_line(text)}", text, seconds)
    if skipped:
        return Outcome(part, "FAILED", "skipped on a machine with a GPU: " + ", ".join(skipped), text, seconds)
    why = part.verdict(text) if part.verdict else ""
    return Outcome(part, "FAILED" if why else "passed", why, text, seconds)


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "(it printed nothing)"


def run_all(parts, folder, seconds):
    """Runs the parts in order. If the build, the first part, fails, no other part runs."""
    folder.mkdir(parents=True, exist_ok=True)
    end, outcomes = time.monotonic() + seconds, []
    for part in parts:
        if outcomes and outcomes[0].state == "FAILED":
            part = dataclasses.replace(part, skip="nothing is built")
        print(f"== {part.name}", file=sys.stderr, flush=True)
        outcomes.append(run_host_ranks(part, folder, end - time.monotonic()))
    return outcomes


def share_of_peak(text):
    """Returns the share from the table of `models`; None if it knows no peak."""
    found = re.search(r"([\d.]+) %$", text, re.MULTILINE)
    return float(found.group(1)) if found else None


def too_small_a_share(text):
    share = share_of_peak(text)
    if share is None:
        return "it printed no share of the peak; give --peak TFLOPS"
    return "" if share >= ASKED_SHARE else f"{share:.1f} % of the peak, asked are {ASKED_SHARE} %"


def no_test_ran(text):
    return "" if re.search(r"^\[  PASSED  \] [1-9]", text, re.MULTILINE) else "no test has this name"


def no_milliseconds(text):
    return "" if peer_milliseconds(text) is not None else "it printed no milliseconds"


def our_milliseconds(text):
    found = re.search(r"^gpt2-64 +\d+ +\d+ +\S+ +([\d.]+)", text, re.MULTILINE)
    return float(found.group(1)) if found else None


def peer_milliseconds(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])["milliseconds"] if lines else None


def step_milliseconds(text):
    """Returns the median of the steps from the fourth on; None if the run printed no metrics."""
    steps = [json.loads(line)["step_seconds"] for line in text.splitlines() if line.startswith('{"step"')]
    return 1e3 * statistics.median(steps[3:]) if len(steps) > 3 else None


def no_steps(text):
    return "" if step_milliseconds(text) is not None else "it printed no steps"


def of_graphs(by_name):
    """Returns at most one line with the effect of CUDA graphs."""
    with_and_without = [by_name.get(name) for name in ("small-graphs", "small")]
    if any(outcome is None or outcome.state != "passed" for outcome in with_and_without):
        return []
    graphs, plain = (step_milliseconds(outcome.text) for outcome in with_and_without)
    return [f"--cuda-graphs: a step of gpt2-mini takes {graphs:.2f} ms in place of {plain:.2f}: {plain / graphs:.2f} times"]


def summary(outcomes):
    by_name = {outcome.part.name: outcome for outcome in outcomes}
    lines = [f"{o.part.name:<22} {o.state:<8} {o.seconds:5.0f} s  {o.why}".rstrip() for o in outcomes]
    lines += of_graphs(by_name)
    measured = by_name.get("blocks")
    if measured is None or measured.state == "not run":
        return lines
    share, ours = share_of_peak(measured.text), our_milliseconds(measured.text)
    if share is not None:
        verdict = "as asked" if share >= ASKED_SHARE else f"asked: {ASKED_SHARE} %"
        lines.append(f"gpt2-64's blocks at 1,024 tokens: {share:.1f} % of the GPU's peak in bfloat16 ({verdict})")
    for name, outcome in by_name.items():
        if not name.startswith("peer-") or outcome.state != "passed" or ours is None:
            continue
        theirs = peer_milliseconds(outcome.text)
        if theirs is None:
            continue
        lines.append(f"{name[5:]}: {theirs:.1f} ms where ours take {ours:.1f} ms: {theirs / ours:.2f} times")
    return lines


def torch_folder():
    """Returns the folder of the full torch; None if it is missing."""
    if "TORCH_DIR" in os.environ:
        return pathlib.Path(os.environ["TORCH_DIR"])
    found = sorted((ROOT / ".venv-cuda").glob("lib/python3*/site-packages/torch"))
    return found[-1] if found and (ROOT / ".venv-cuda/torch-packages").exists() else None


def can_import(python, *packages):
    """Returns whether the interpreter exists and finds the packages, without importing them."""
    code = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(p) is None for p in sys.argv[1:]))"
    return python.exists() and subprocess.run([python, "-c", code, *packages], check=False).returncode == 0


def peer(name, *flags):
    oracles, plain = ROOT / ".venv-oracles/bin/python3", ROOT / ".venv-cuda/bin/python3"
    needed = ["torch", "transformers"] if name == "transformers" else ["torch", "safetensors"]
    python = next((p for p in (oracles, plain) if can_import(p, *needed)), None)
    skip = "" if python else f"no interpreter has {' and '.join(needed)}: tools/oracles, where there is a network"
    label = "-".join(["peer", name, *(flag for flag in flags if not flag.startswith("--"))])
    return Part(label, [python, ROOT / "benchmarks/gpu/others.py", name, *MODEL, *flags], 30, skip, no_milliseconds)


def count_gpus():
    return len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))


def over_nccl(gpus, schedule, *flags):
    """Returns rank processes with two stages, or as many stages as up to four GPUs allow."""
    skip = "" if gpus >= 2 else "this machine has one GPU"
    stages = 4 if gpus >= 4 else 2
    return Part("-".join(["nccl", schedule, *(flag.lstrip("-") for flag in flags if flag != "--reduction")]),
                ["build/chimera", "train", "--device", "cuda", "--transport", "processes", "--schedule", schedule,
                 "--stages", str(stages), "--micro-batches", "4", "--model", "gpt2-mini", "--dtype", "bfloat16",
                 "--data", "corpus/bible.txt", "--sequence", "128", "--steps", "10", *flags], 30, skip)


def small(name, *flags):
    """Returns a run whose kernels are shorter than their launch, on one GPU. It ends with its metrics."""
    metrics = f"build/gpu/{name}.jsonl"
    train = ["build/chimera", "train", "--device", "cuda", "--transport", "threads", "--schedule", "none",
             "--micro-batches", "8", "--micro-batch-size", "1", "--model", "gpt2-mini", "--dtype", "bfloat16", "--data",
             "corpus/bible.txt", "--sequence", "128", "--steps", "40", "--overwrite", "--metrics", metrics, *flags]
    return Part(name, ["sh", "-c", f"{' '.join(train)} && cat {metrics}"], 20, "", no_steps)


def parts_of(options):
    preset = "ci" if os.environ.get("CI") else "release"
    torch = f" -DTORCH_DIR='{torch_folder()}'" if os.environ.get("TORCH_DIR") else ""
    cores = os.cpu_count() or 1
    build = (f"cmake --preset {preset} -DCHIMERA_WITH_CUDA=ON{torch} && "
             f"cmake --build --preset {preset} -j {cores} --target chimera chimera_cuda chimera_program_tests models")
    python = ROOT / ".venv-python/bin/python3"
    no_package = "" if python.exists() else "the Python package cannot be built: ./dev python, where there is a network"
    if not no_package:
        build += " chimera_python"
    peak = ["--peak", str(options.peak)] if options.peak else []
    blocks = ["build/benchmarks/models", "--device", "cuda", "--blocks", "--models", "gpt2-64", "--dtypes", "bfloat16"]
    train = ["build/chimera", "train", "--device", "cuda", "--transport", "threads", "--model", "gpt2", "--dtype",
             "bfloat16", "--data", "corpus/bible.txt", "--sequence", "512", "--stages", "4", "--steps", "20"]
    gpus = count_gpus()
    return [
        Part("build", ["sh", "-c", build], 140),
        Part("tests", ["build/chimera_program_tests", "--gtest_filter=TrainingDeviceTest.*"], 45, "", no_test_ran),
        Part("python-tests", ["env", "PYTHONPATH=build/python", python, "-m", "pytest", "-q", "-rs",
                              "python/tests/training/test_devices.py"], 45, no_package),
        Part("blocks", [*blocks, *MODEL, *peak], 60, "", too_small_a_share),
        Part("train", train, 60),
        small("small"),
        small("small-graphs", "--cuda-graphs"),
        over_nccl(gpus, "1f1b"),
        over_nccl(gpus, "chimera", "--cuda-graphs"),
        over_nccl(gpus, "chimera"),
        over_nccl(gpus, "chimera", "--reduction", "canonical"),
        peer("transformers", "--attention", "sdpa"),
        peer("transformers", "--attention", "eager"),
        peer("pipelining"),
    ]


def refusal():
    """Returns one line with the reason why nothing can run here, or an empty string."""
    if not pathlib.Path("/dev/nvidiactl").exists():
        return "this machine has no GPU (no /dev/nvidiactl)"
    if torch_folder() is None:
        return "the full torch is not here; run tools/cuda-build where there is a network, then this"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--peak", type=float, help="TFLOP/s of bfloat16 (default: by the name of the GPU)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all parts together")
    options = parser.parse_args()
    why_not = refusal()
    if why_not and not options.dry_run:
        print(f"dev: gpu: {why_not}", file=sys.stderr)
        return 2
    parts = parts_of(options)
    if options.dry_run:
        for part in parts:
            print(f"{part.name:<22} {part.limit:>4} s  {part.skip or ' '.join(map(str, part.command))}")
        return 0
    outcomes = run_all(parts, ROOT / "build/gpu", options.seconds)
    print("\n".join(summary(outcomes)))
    return 1 if any(outcome.state == "FAILED" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
