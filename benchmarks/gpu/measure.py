#!/usr/bin/env python3
"""Builds for GPUs, tests, measures and compares on this machine, in ten minutes and without a network: `tools/gpu`.

    measure.py [--dry-run] [--peak TFLOPS] [--seconds 600]

Parts, each with a limit of its own, none of which may take what the others need: the library for GPUs and the program
are built from what `tools/cuda-build` has installed, the Python package too where `./dev python` has; the tests that
need a GPU run, and one that skips, or that is not there, has failed; the blocks of gpt2-64 at 1,024 tokens are measured
as a share of the GPU's peak in bfloat16 (--peak where its data sheet is not known), and no share, or less than 60 %,
has failed; runs train, over NCCL where there are two GPUs, and a small model with CUDA graphs and without; the same
blocks are measured by transformers and torch.distributed.pipelining where an interpreter has them (`tools/oracles`).
What the parts print is kept in build/gpu.
Exits with 1 where a part has failed, 2 where there is no GPU, or nothing to build from. --dry-run says what would run.
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
ASKED_SHARE = 60  # percent of peak
SECONDS = 600  # for all parts together, whose own limits are no more
SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+)|^SKIPPED \[\d+\] (\S+)", re.MULTILINE)


@dataclasses.dataclass
class Part:
    """A command; `skip` says why there is nothing to run."""
    name: str
    command: list
    limit: int  # seconds
    skip: str = ""
    verdict: object = None  # a function: why what it printed is a failure, empty where it is none


@dataclasses.dataclass
class Outcome:
    part: Part
    state: str  # passed, FAILED, not run
    why: str = ""
    text: str = ""
    seconds: float = 0.0


def run_limited(command, limit, log):
    """Its exit status, None where the limit was over; all that it started is then ended."""
    with open(log, "w") as output:
        child = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            return child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)  # its own session
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
    """In order, the build first: without it nothing else runs."""
    folder.mkdir(parents=True, exist_ok=True)
    end, outcomes = time.monotonic() + seconds, []
    for part in parts:
        if outcomes and outcomes[0].state == "FAILED":
            part = dataclasses.replace(part, skip="nothing is built")
        print(f"== {part.name}", file=sys.stderr, flush=True)
        outcomes.append(run_host_ranks(part, folder, end - time.monotonic()))
    return outcomes


def share_of_peak(text):
    """Of the table that `models` prints; None where it knows no peak."""
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
    """Of a run that has printed its metrics, the median of the steps from the fourth on; None where it has not."""
    steps = [json.loads(line)["step_seconds"] for line in text.splitlines() if line.startswith('{"step"')]
    return 1e3 * statistics.median(steps[3:]) if len(steps) > 3 else None


def no_steps(text):
    return "" if step_milliseconds(text) is not None else "it printed no steps"


def of_graphs(by_name):
    """What CUDA graphs change, in a list of at most one line."""
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
    """That of the full torch; None where it is not there."""
    if "TORCH_DIR" in os.environ:
        return pathlib.Path(os.environ["TORCH_DIR"])
    found = sorted((ROOT / ".venv-cuda").glob("lib/python3*/site-packages/torch"))
    return found[-1] if found and (ROOT / ".venv-cuda/torch-packages").exists() else None


def can_import(python, *packages):
    """Whether the interpreter is there and finds them; without importing any."""
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
    """Ranks as processes, two stages or as many as four GPUs allow."""
    skip = "" if gpus >= 2 else "this machine has one GPU"
    stages = 4 if gpus >= 4 else 2
    return Part("-".join(["nccl", schedule, *(flag.lstrip("-") for flag in flags if flag != "--reduction")]),
                ["build/chimera", "train", "--device", "cuda", "--transport", "processes", "--schedule", schedule,
                 "--stages", str(stages), "--micro-batches", "4", "--model", "gpt2-mini", "--dtype", "bfloat16",
                 "--data", "corpus/bible.txt", "--sequence", "128", "--steps", "10", *flags], 30, skip)


def small(name, *flags):
    """A model whose kernels take less time than launching them, on one GPU; ends with its metrics."""
    metrics = f"build/gpu/{name}.jsonl"
    train = ["build/chimera", "train", "--device", "cuda", "--transport", "threads", "--schedule", "none",
             "--micro-batches", "8", "--micro-batch-size", "1", "--model", "gpt2-mini", "--dtype", "bfloat16", "--data",
             "corpus/bible.txt", "--sequence", "128", "--steps", "40", "--metrics", metrics, *flags]
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
    """Why nothing can run here, one line; empty where it can."""
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
