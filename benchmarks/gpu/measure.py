#!/usr/bin/env python3
"""Tests, measures and compares on this machine with a GPU in five minutes, offline: `tools/gpu`.

    measure.py [--packed DIR] [--all] [--output build/gpu] [--peak TFLOPS] [--seconds 300] [--dry-run]

It builds from the packages of `tools/cuda-build`, or runs a packed build of `tools/gpu-pack`, which needs only python3
with torch. Without --packed it uses .gpu if `tools/cuda-build` has not run here. Each part has a time limit:

- Build (not within --seconds), or start of the packed build.
- Tests that need a GPU. A skipped or missing test is a failure.
- The blocks of gpt2-64 at 1,024 tokens and micro-batch 4: share of the GPU's peak in bfloat16 (--peak if its data sheet
  is unknown), kernels per block, launch-bound or compute-bound, memory. No share, or less than 45 %, is a failure.
- Every tensor of small models against the CPU's, layer by layer, and losses against the CPU's.
- Training, with and without CUDA graphs, and over NCCL. If there is one GPU, ranks share it, which tests correctness.
- The same blocks with transformers and torch.distributed.pipelining, if an interpreter has them. Chimera must not be
  slower.

--all adds other micro-batch sizes, Llama, the Python package, and more runs over NCCL (600 s). The output folder keeps
the log of each part, and summary.txt. Exits with 1 if a part failed, with 2 if there is no GPU or nothing to run.
--dry-run prints the parts without running them.
"""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ["--layers", "8", "--sequence", "1024", "--micro-batches", "10"]
ASKED_SHARE = 45  # Percent of peak that eager kernels can give
COMPARED = "gpt2-mini,llama-mini,bert-tiny"
ASKED_RATIO = 1.0  # Other frameworks' time over Chimera's
LOSS_TOLERANCE = 1e-3  # Relative, in float32
SECONDS = 300  # Of all parts but the build; their own limits add up to no more
SECONDS_OF_ALL = 600
SKIPPED = re.compile(r"^\[  SKIPPED \] (\S+)|^SKIPPED \[\d+\] (\S+)", re.MULTILINE)
LAUNCHES = re.compile(
    r"^\S+ +b?float\d+ +([\d.]+) +([\d.]+) +(launches|compute) +([\d.]+) +([\d.]+) +(\d+)$", re.MULTILINE)


@dataclasses.dataclass
class Part:
    """A command."""
    name: str
    command: list
    limit: int  # Seconds
    skip: str = ""  # Reason not to run it
    verdict: object = None  # Function from the output to a reason for failure, empty on success
    against: str = ""  # Earlier part, whose output is the second argument of `verdict`
    note: str = ""  # For the summary


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
            return None
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)  # It has its own session
                child.wait()


def run_part(part, folder, seconds_left, earlier):
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
    why = why_not(part, text, earlier)
    return Outcome(part, "FAILED" if why else "passed", why, text, seconds)


def why_not(part, text, earlier):
    if part.verdict is None:
        return ""
    return part.verdict(text, earlier.get(part.against, "")) if part.against else part.verdict(text)


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "(it printed nothing)"


def run_all(parts, folder, seconds):
    """Runs the parts in order, and keeps their logs and the summary so far. If the first part, the build or the start,
    fails, no other part runs."""
    folder.mkdir(parents=True, exist_ok=True)
    end, outcomes = time.monotonic() + seconds, []
    for part in parts:
        if outcomes and outcomes[0].state == "FAILED":
            part = dataclasses.replace(part, skip=f"the {outcomes[0].part.name} failed")
        print(f"== {part.name}", file=sys.stderr, flush=True)
        is_build = part.name == "build"
        left = part.limit if is_build else end - time.monotonic()
        outcomes.append(run_part(part, folder, left, {o.part.name: o.text for o in outcomes}))
        end += outcomes[-1].seconds if is_build else 0
        (folder / "summary.txt").write_text("\n".join(summary(outcomes)) + "\n")
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


def faster_than_ours(text, blocks):
    theirs, ours = peer_milliseconds(text), our_milliseconds(blocks)
    if theirs is None:
        return "it printed no milliseconds"
    if ours is None:
        return "there are no milliseconds of ours to compare with"
    ratio = theirs / ours
    return "" if ratio >= ASKED_RATIO else f"it takes {ratio:.2f} times as long as ours, asked are {ASKED_RATIO:.2f}"


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


def losses(text):
    return [json.loads(line)["loss"] for line in text.splitlines() if line.startswith('{"step"')]


def other_losses(text, of_cpu):
    ours, theirs = losses(text), losses(of_cpu)
    if not theirs:
        return "there are no losses of the CPU to compare with"
    if len(ours) != len(theirs):
        return f"it printed {len(ours)} losses, the CPU {len(theirs)}"
    for step, (found, expected) in enumerate(zip(ours, theirs), 1):
        if not abs(found - expected) <= LOSS_TOLERANCE * abs(expected):
            return f"the loss of step {step} is {found:.6g}, on the CPU {expected:.6g}"
    return ""


def of_tensors(text):
    """Returns the lines of `models --compare`, one for each model."""
    return [line for line in text.splitlines() if re.search("first differing tensor|tensors agree", line)]


def of_blocks(outcome):
    """Returns a line about speed, launches and memory of the blocks, or none."""
    share, found = share_of_peak(outcome.text), LAUNCHES.search(outcome.text)
    facts = []
    if share is not None:
        asked = ""
        if outcome.part.verdict is too_small_a_share:
            asked = " (as asked)" if share >= ASKED_SHARE else f" (asked: {ASKED_SHARE} %)"
        facts.append(f"{share:.1f} % of the GPU's peak in bfloat16{asked}")
    if found:
        host, device, bound, forward, backward, mebibytes = found.groups()
        name = {"launches": "launch", "compute": "compute"}[bound]
        facts += [f"{name}-bound (a micro-batch takes the host {host} ms, the device {device} ms)",
                  f"{forward} + {backward} kernels per block", f"{mebibytes} MiB"]
    return [f"{outcome.part.name}: " + "; ".join(facts)] if facts else []


def of_graphs(by_name):
    """Returns at most one line with the effect of CUDA graphs."""
    with_and_without = [by_name.get(name) for name in ("small-graphs", "small")]
    if any(outcome is None or outcome.state != "passed" for outcome in with_and_without):
        return []
    graphs, plain = (step_milliseconds(outcome.text) for outcome in with_and_without)
    return [f"--cuda-graphs: a step of gpt2-mini takes {graphs:.2f} ms in place of {plain:.2f}: "
            f"{plain / graphs:.2f} times"]


def of_peer(name, outcome, ours):
    theirs = peer_milliseconds(outcome.text)
    if ours is None or theirs is None:
        return []
    return [f"{name[5:]}: {theirs:.1f} ms where ours take {ours:.1f} ms: {theirs / ours:.2f} times"]


def summary(outcomes):
    by_name = {outcome.part.name: outcome for outcome in outcomes if outcome.state != "not run"}
    lines = []
    for o in outcomes:
        remarks = "; ".join(filter(None, [o.why, "" if o.state == "not run" else o.part.note]))
        lines.append(f"{o.part.name:<24} {o.state:<8} {o.seconds:5.0f} s  {remarks}".rstrip())
    for name, outcome in by_name.items():
        if name.startswith("blocks"):
            lines += of_blocks(outcome)
        if name == "compare":
            lines += of_tensors(outcome.text)
    lines += of_graphs(by_name)
    ours = our_milliseconds(by_name["blocks"].text) if "blocks" in by_name else None
    for name, outcome in by_name.items():
        if name.startswith("peer-"):
            lines += of_peer(name, outcome, ours)
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
    return shutil.which(python) and subprocess.run([python, "-c", code, *packages], check=False).returncode == 0


def peer(name, *flags):
    pythons = [ROOT / ".venv-oracles/bin/python3", ROOT / ".venv-cuda/bin/python3", "python3"]
    needed = ["torch", "transformers"] if name == "transformers" else ["torch"]
    python = next((p for p in pythons if can_import(p, *needed)), None)
    skip = "" if python else f"no interpreter has {' and '.join(needed)}: tools/oracles, where there is a network"
    label = "-".join(["peer", name, *(flag for flag in flags if not flag.startswith("--"))])
    command = [python, ROOT / "benchmarks/gpu/others.py", name, *MODEL, "--micro-batch-size", "4", *flags]
    return Part(label, command, 20, skip, faster_than_ours, "blocks")


def count_gpus():
    return len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))


class Runs:
    """Parts that run what was built, in build/ or in a packed build."""

    def __init__(self, options):
        self.packed, self.output = options.packed, options.output
        self.peak = ["--peak", str(options.peak)] if options.peak else []
        self.gpus = count_gpus()

    def program(self, name):
        return [self.packed / "run", name] if self.packed else [f"build/{name}"]

    def shell(self, *commands):
        return ["sh", "-c", " && ".join(shlex.join(map(str, command)) for command in commands)]

    def start(self):
        torch = "import torch; print('torch', torch.__version__, torch.cuda.get_device_name())"
        return Part("start", self.shell([*self.program("chimera"), "--version"],
                                        [*self.program("benchmarks/models"), "--help"], ["python3", "-c", torch]), 45)

    def blocks(self, name, model="gpt2-64", micro_batch=4, verdict=None):
        command = [*self.program("benchmarks/models"), "--device", "cuda", "--blocks", "--kernels", "--dtypes",
                   "bfloat16", "--models", model, *MODEL, "--micro-batch-size", str(micro_batch), *self.peak]
        return Part(name, command, 35, "", verdict)

    def compare(self):
        return Part("compare", [*self.program("benchmarks/models"), "--device", "cuda", "--compare", "--models",
                                COMPARED, "--dtypes", "float32"], 20)

    def train(self, name, limit, *flags, environment=(), **more):
        """Returns a training run that ends with its metrics."""
        metrics = self.output / f"{name}.jsonl"
        command = [*environment, *self.program("chimera"), "train", "--data", self.output / "text.txt", "--metrics",
                   metrics, *flags]
        return Part(name, self.shell(["rm", "-f", metrics], command, ["cat", metrics]), limit, **more)

    def small(self, name, *flags):
        """Returns a run whose kernels are shorter than their launch, on one GPU."""
        return self.train(name, 15, "--device", "cuda", "--transport", "threads", "--schedule", "none",
                          "--micro-batches", "8", "--micro-batch-size", "1", "--model", "gpt2-mini", "--dtype",
                          "bfloat16", "--sequence", "128", "--steps", "40", *flags, verdict=no_steps)

    def with_losses(self, name, limit, *flags, **more):
        return self.train(name, limit, "--model", "gpt2-mini", "--dtype", "float32", "--sequence", "128",
                          "--micro-batches", "4", "--micro-batch-size", "2", "--steps", "6", *flags, **more)

    def over_nccl(self, schedule, *flags):
        """Returns rank processes with two stages, or as many stages as up to four GPUs allow."""
        shared = self.gpus < 2
        name = "-".join(["nccl", schedule, *(flag.lstrip("-") for flag in flags if flag != "--reduction")])
        return self.with_losses(
            name, 40, "--device", "cuda", "--transport", "processes", "--schedule", schedule, "--stages",
            "4" if self.gpus >= 4 else "2", *flags, environment=["env", "CHIMERA_SHARE_GPU=1"] if shared else [],
            verdict=other_losses, against="losses-cpu",
            note="ranks share one GPU: a test of correctness, not of speed" if shared else "")

    def tests(self):
        return Part("tests", [*self.program("chimera_program_tests"), "--gtest_filter=TrainingDeviceTest.*"], 35, "",
                    no_test_ran)

    def python_tests(self):
        tests = "python/tests/training/test_devices.py"
        if self.packed:
            skip = "" if can_import("python3", "pytest") else "python3 has no pytest"
            return Part("python-tests", [*self.program("python3"), "-m", "pytest", "-q", "-rs", tests], 45, skip)
        skip = "" if PACKAGE_PYTHON.exists() else "needs ./dev python, where there is a network"
        command = ["env", "PYTHONPATH=build/python", PACKAGE_PYTHON, "-m", "pytest", "-q", "-rs", tests]
        return Part("python-tests", command, 45, skip)


PACKAGE_PYTHON = ROOT / ".venv-python/bin/python3"


def build():
    preset = "ci" if os.environ.get("CI") else "release"
    torch = f" -DTORCH_DIR='{torch_folder()}'" if os.environ.get("TORCH_DIR") else ""
    targets = "chimera chimera_cuda chimera_program_tests models"
    if PACKAGE_PYTHON.exists():
        targets += " chimera_python"
    command = (f"cmake --preset {preset} -DCHIMERA_WITH_CUDA=ON{torch} && "
               f"cmake --build --preset {preset} -j {os.cpu_count() or 1} --target {targets}")
    return Part("build", ["sh", "-c", command], 300)


def parts_of(options):
    runs = Runs(options)
    on_gpu = ["--device", "cuda", "--transport", "threads"]
    parts = [
        runs.start() if options.packed else build(),
        runs.tests(),
        runs.blocks("blocks", verdict=too_small_a_share),
        runs.compare(),
        runs.with_losses("losses-cpu", 15, "--transport", "threads", "--schedule", "none", verdict=no_steps),
        runs.with_losses("losses-gpu", 15, *on_gpu, "--schedule", "none", verdict=other_losses, against="losses-cpu"),
        runs.over_nccl("chimera"),
        runs.small("small"),
        runs.small("small-graphs", "--cuda-graphs"),
        runs.train("train", 20, *on_gpu, "--model", "gpt2", "--dtype", "bfloat16", "--sequence", "512", "--stages", "4",
                   "--steps", "10", verdict=no_steps),
        peer("transformers", "--attention", "sdpa"),
        peer("pipelining"),
    ]
    if not options.all:
        return parts
    return [
        *parts,
        runs.blocks("blocks-1", micro_batch=1),
        runs.blocks("blocks-8", micro_batch=8),
        runs.blocks("blocks-llama", model="llama-3.2-1b"),
        runs.over_nccl("1f1b"),
        runs.over_nccl("chimera", "--cuda-graphs"),
        runs.over_nccl("chimera", "--reduction", "canonical"),
        peer("transformers", "--attention", "eager"),
        runs.python_tests(),
    ]


def make_text(folder):
    """Writes the data of training runs: the corpus, or the documents of this repository."""
    corpus = ROOT / "corpus/bible.txt"
    sources = [corpus] if corpus.exists() else sorted((ROOT / "docs").glob("*.md"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_bytes(b"".join(source.read_bytes() for source in sources))


def refusal(packed):
    """Returns one line with the reason why nothing can run here, or an empty string."""
    if not pathlib.Path("/dev/nvidiactl").exists():
        return "this machine has no GPU (no /dev/nvidiactl)"
    if packed and not (packed / "run").exists():
        return f"{packed}/run does not exist; tools/gpu-pack makes it, where this can be built"
    if packed and not can_import("python3", "torch"):
        return "a packed build needs a python3 with torch"
    if not packed and torch_folder() is None:
        return "neither the full torch nor a packed build is here; run tools/cuda-build, or copy .gpu of tools/gpu-pack"
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packed", type=pathlib.Path, help="folder of tools/gpu-pack, to run in place of building")
    parser.add_argument("--all", action="store_true", help="also the longer parts")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/gpu", help="folder for logs and summary")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--peak", type=float, help="TFLOP/s of bfloat16 (default: by the name of the GPU)")
    parser.add_argument("--seconds", type=float, help="for all parts but the build, together")
    options = parser.parse_args()
    if options.packed is None and torch_folder() is None and (ROOT / ".gpu/run").exists():
        options.packed = ROOT / ".gpu"
    options.packed = options.packed and options.packed.resolve()
    options.output = options.output.resolve()
    why = refusal(options.packed)
    if why and not options.dry_run:
        print(f"dev: gpu: {why}", file=sys.stderr)
        return 2
    parts = parts_of(options)
    if options.dry_run:
        for part in parts:
            print(f"{part.name:<24} {part.limit:>4} s  {part.skip or ' '.join(map(str, part.command))}")
        return 0
    make_text(options.output)
    seconds = options.seconds or (SECONDS_OF_ALL if options.all else SECONDS)
    outcomes = run_all(parts, options.output, seconds)
    print("\n".join(summary(outcomes)))
    return 1 if any(outcome.state == "FAILED" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
