#!/usr/bin/env python3
"""Tests, measures and compares on this machine with a GPU, offline, in two halves of at most 500 s: `tools/gpu`.

    measure.py [--half 1|2] [--packed DIR] [--output build/gpu] [--peak TFLOPS] [--seconds 500] [--dry-run]
    measure.py --rehearse build/tests/multiprocess/libchimera_cuda.so [--half 1|2]

It builds from the packages of `tools/cuda-build`, or runs a packed build of `tools/gpu-pack`, which needs only python3
with torch. Without --packed it uses .gpu if `tools/cuda-build` has not run here. Each part has a time limit and an
expected value; the summary says whether it was met. A skipped or missing test is a failure.

First half: memory of an idle process; tests that need a GPU; every tensor of small models against the CPU's, in float32
and bfloat16, and with an odd vocabulary; training with an odd and an even vocabulary; the blocks of gpt2-64 and Llama
(share of the GPU's peak in bfloat16; --peak if its data sheet is unknown), with both libraries of products, and beside
waiting thread blocks; memory and speed of CUDA graphs of steps and of ops; times of ops; Llama's memory against the
plan; streams beside waiting ones.

Second half: training over NCCL (if there is one GPU, ranks share it, which tests correctness) against the CPU's losses,
also if a rank is lost and the others go on; memory that does not grow with N; ranks that share layers;
a token outside of the vocabulary; the Python package; too little memory;
ranks that are killed and stopped; compiled blocks; the same blocks with transformers and torch.distributed.pipelining,
if an interpreter has them.

The output folder keeps the log of each part, and summary.txt. Exits with 1 if a part failed, with 2 if there is no GPU
or nothing to run. --dry-run prints the parts without running them.

--rehearse runs them without a GPU, on the fake device of the tests: small models, equal losses and tensors checked,
speed and memory not; parts that need a GPU do not run.
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
COMPARED = "gpt2-mini,llama-mini,bert-tiny"
ASKED_RATIO = 1.0  # Other frameworks' time over Chimera's
LOSS_TOLERANCE = 1e-3  # Relative, in float32
# In place of the sizes of a part, on a fake device
SMALL_BLOCKS = ["--layers", "1", "--sequence", "16", "--micro-batches", "2", "--rounds", "1"]
SMALL_TRAINING = ["--model", "gpt2-tiny", "--sequence", "16", "--micro-batch-size", "2", "--micro-batches", "2",
                  "--steps", "6"]
SECONDS = 500  # Of all parts of a half but the build
ODD_MODEL = """family = "gpt2"
layers = 2
hidden = 128
heads = 2
feed_forward = 512
vocabulary = 333
positions = 128
tied = false
"""
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
    expect: str = ""  # Value that `verdict` asks for, in words
    facts: object = None  # Function from the output to the value that was found, in words
    rehearsed: str = "not"  # On a fake device: "not" run, "run" without `verdict`, or "judged" by it


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


def share_of_at_least(asked):
    """Returns a verdict about the share of the peak, in percent."""
    def too_small_a_share(text):
        share = share_of_peak(text)
        if share is None:
            return "it printed no share of the peak; give --peak TFLOPS"
        return "" if share >= asked else f"{share:.1f} % of the peak, expected are {asked} %"

    return too_small_a_share


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
    steps = [step["step_seconds"] for step in steps_of(text)]
    return 1e3 * statistics.median(steps[3:]) if len(steps) > 3 else None


def no_steps(text):
    return "" if step_milliseconds(text) is not None else "it printed no steps"


def losses(text):
    return [step["loss"] for step in steps_of(text)]


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


def no_recovery_or_other_losses(text, of_cpu):
    return other_losses(text, of_cpu) if "recovery 1 of" in text else "no rank was lost and recovered from"


def steps_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"step"')]


def tokens_per_second(text):
    """Returns the median of the steps from the fourth on; None if the run printed no metrics."""
    rates = [step["tokens_per_second"] for step in steps_of(text)]
    return statistics.median(rates[3:]) if len(rates) > 3 else None


def much_slower(text, other):
    """Verdict: the run has at least 95 % of the tokens per second of the other run."""
    ours, theirs = tokens_per_second(text), tokens_per_second(other)
    if ours is None or theirs is None:
        return "there are no tokens per second to compare"
    return "" if ours >= 0.95 * theirs else f"{ours:.0f} tokens a second, the other vocabulary {theirs:.0f}"


def used_mebibytes(text):
    """Returns the memory in use after each step."""
    return [step["used_memory_bytes"] / 2**20 for step in steps_of(text) if "used_memory_bytes" in step]


def grows_by_recording(text):
    """Verdict: memory after step 4, which a graph runs, is that after step 2, within 5 %."""
    used = used_mebibytes(text)
    if len(used) < 4:
        return "it printed no memory of four steps"
    return "" if used[3] <= 1.05 * used[1] else f"{used[1]:.0f} MiB in step 2, {used[3]:.0f} MiB in step 4"


def grows_with_micro_batches(text, fewer):
    ours, theirs = used_mebibytes(text), used_mebibytes(fewer)
    if not ours or not theirs:
        return "there is no memory to compare"
    return "" if ours[-1] <= 1.02 * theirs[-1] else f"{theirs[-1]:.0f} MiB with fewer, {ours[-1]:.0f} MiB"


def last_json(text):
    """Returns the last line of a probe; empty if it printed none."""
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {}


def asks(test, what):
    """Returns a verdict about the last line of a probe."""
    def verdict(text):
        found = last_json(text)
        if not found:
            return "it printed no result"
        return "" if test(found) else what(found)

    return verdict


def of_memory(text):
    return ", ".join(f"{value:.0f}" for value in used_mebibytes(text)[1:4]) + " MiB in steps 2 to 4"


def of_tokens(text):
    rate = tokens_per_second(text)
    return "" if rate is None else f"{rate:.0f} tokens a second"


def of_probe(text):
    return ", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                     for name, value in last_json(text).items() if name != "probe")


def of_tensors(text):
    """Returns the lines of `models --compare`, one for each model."""
    return [line for line in text.splitlines() if re.search("first differing tensor|tensors agree", line)]


def of_blocks(outcome):
    """Returns a line about speed, launches and memory of the blocks, or none."""
    share, found = share_of_peak(outcome.text), LAUNCHES.search(outcome.text)
    facts = []
    if share is not None:
        facts.append(f"{share:.1f} % of the GPU's peak in bfloat16")
    if found:
        host, device, bound, forward, backward, mebibytes = found.groups()
        name = {"launches": "launch", "compute": "compute"}[bound]
        facts += [f"{name}-bound (a micro-batch takes the host {host} ms, the device {device} ms)",
                  f"{forward} + {backward} kernels per block", f"{mebibytes} MiB"]
    return [f"{outcome.part.name}: " + "; ".join(facts)] if facts else []


def of_graphs(by_name):
    """Returns at most one line for each kind of CUDA graph, with its effect on the time of a step."""
    milliseconds = {name: step_milliseconds(by_name[name].text) for name in ("no-graphs", "graphs", "op-graphs")
                    if name in by_name and by_name[name].state == "passed"}
    plain = milliseconds.pop("no-graphs", None)
    flags = {"graphs": "--cuda-graphs", "op-graphs": "--op-graphs"}
    return [f"{flags[name]}: a step of gpt2-mini takes {graphs:.2f} ms in place of {plain:.2f}: "
            f"{plain / graphs:.2f} times" for name, graphs in milliseconds.items() if plain]


def of_peer(name, outcome, ours):
    theirs = peer_milliseconds(outcome.text)
    if ours is None or theirs is None:
        return []
    return [f"{name[5:]}: {theirs:.1f} ms where ours take {ours:.1f} ms: {theirs / ours:.2f} times"]


def rehearsal(part):
    """Returns the part for a fake device, whose time and memory say nothing."""
    if part.rehearsed == "not":
        return dataclasses.replace(part, skip=part.skip or "needs a GPU")
    if part.rehearsed == "run":
        return dataclasses.replace(part, verdict=None, expect="exit code 0", facts=None)
    return part


def summary(outcomes):
    by_name = {outcome.part.name: outcome for outcome in outcomes if outcome.state != "not run"}
    lines = []
    for o in outcomes:
        remarks = "; ".join(filter(None, [o.why, "" if o.state == "not run" else o.part.note]))
        lines.append(f"{o.part.name:<24} {o.state:<8} {o.seconds:5.0f} s  {remarks}".rstrip())
        found = o.part.facts(o.text) if o.part.facts and o.text else ""
        if o.part.expect or found:
            lines.append(f"    expected: {o.part.expect or '-'}; found: {found or o.why or 'that'}")
    for name, outcome in by_name.items():
        if name.startswith("blocks"):
            lines += of_blocks(outcome)
        if name.startswith("compare"):
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
    found = sorted((ROOT / ".venv-oracles").glob("lib/python3*/site-packages/torch"))
    return found[-1] if found and (ROOT / ".venv-oracles/torch-packages").exists() else None


def can_import(python, *packages):
    """Returns whether the interpreter exists and finds the packages, without importing them."""
    code = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(p) is None for p in sys.argv[1:]))"
    return shutil.which(python) and subprocess.run([python, "-c", code, *packages], check=False).returncode == 0


def python_with(*packages):
    """Returns an interpreter that has these packages; None if there is none."""
    pythons = [ROOT / ".venv-oracles/bin/python3", "python3"]
    return next((python for python in pythons if can_import(python, *packages)), None)


def count_gpus():
    return len(list(pathlib.Path("/dev").glob("nvidia[0-9]*")))


class Runs:
    """Parts that run what was built, in build/ or in a packed build."""

    def __init__(self, options):
        self.packed, self.output, self.rehearses = options.packed, options.output, options.rehearse is not None
        self.peak = ["--peak", str(options.peak)] if options.peak else []
        self.gpus = count_gpus()

    def program(self, name):
        if self.rehearses:
            return [self.output / "programs" / name]
        return [self.packed / "run", name] if self.packed else [f"build/{name}"]

    def shell(self, *commands):
        return ["sh", "-c", " && ".join(shlex.join(map(str, command)) for command in commands)]

    def start(self):
        if self.rehearses:
            return Part("start", self.shell([*self.program("chimera"), "--version"]), 45, rehearsed="judged")
        torch = "import torch; print('torch', torch.__version__, torch.cuda.get_device_name())"
        return Part("start", self.shell([*self.program("chimera"), "--version"],
                                        [*self.program("benchmarks/models"), "--help"], ["python3", "-c", torch]), 45)

    def blocks(self, name, asked, model="gpt2-64", micro_batch=4, flags=MODEL, environment=()):
        if self.rehearses:
            model, flags = "llama-tiny" if "llama" in model else "gpt2-tiny", SMALL_BLOCKS
        command = [*environment, *self.program("benchmarks/models"), "--device", "cuda", "--blocks", "--kernels",
                   "--dtypes", "bfloat16", "--models", model, *flags, "--micro-batch-size", str(micro_batch),
                   *self.peak]
        return Part(name, command, 40, "", share_of_at_least(asked), expect=f"{asked} % of the peak", rehearsed="run")

    def compare(self, name, models, *flags):
        dtypes = "float32" if self.rehearses else "float32,bfloat16"  # CPU kernels sum norms' gradients in bfloat16
        return Part(name, [*self.program("benchmarks/models"), "--device", "cuda", "--compare", "--models", models,
                           "--dtypes", dtypes, *flags], 30, expect="within rounding", rehearsed="judged")

    def train(self, name, limit, *flags, environment=(), **more):
        """Returns a training run that ends with its metrics."""
        metrics = self.output / f"{name}.jsonl"
        command = [*environment, *self.program("chimera"), "train", "--data", self.output / "text.txt", "--metrics",
                   metrics, *flags, *(SMALL_TRAINING if self.rehearses else [])]
        return Part(name, self.shell(["rm", "-f", metrics], command, ["cat", metrics]), limit, **more)

    def head(self, name, vocabulary, **more):
        return self.train(name, 30, "--device", "cuda", "--transport", "threads", "--schedule", "none", "--model",
                          "gpt2", "--vocabulary", str(vocabulary), "--dtype", "bfloat16", "--sequence", "1024",
                          "--micro-batches", "8", "--micro-batch-size", "8", "--steps", "8", facts=of_tokens,
                          rehearsed="run", **more)

    def small(self, name, *flags, **more):
        """Returns a run whose kernels are shorter than their launch, on one GPU."""
        return self.train(name, 20, "--device", "cuda", "--transport", "threads", "--schedule", "none",
                          "--micro-batches", "8", "--micro-batch-size", "1", "--model", "gpt2-mini", "--dtype",
                          "bfloat16", "--sequence", "128", "--steps", "40", *flags, verdict=no_steps, rehearsed="judged",
                          **more)

    def large(self, name, *flags, **more):
        """Returns a run with gigabytes of activations on one GPU."""
        return self.train(name, 40, "--device", "cuda", "--transport", "threads", "--schedule", "none",
                          "--micro-batches", "4", "--micro-batch-size", "8", "--model", "gpt2", "--dtype", "bfloat16",
                          "--sequence", "1024", "--steps", "6", *flags, facts=of_memory, rehearsed="run", **more)

    def with_losses(self, name, limit, *flags, **more):
        return self.train(name, limit, "--model", "gpt2-mini", "--dtype", "float32", "--sequence", "128",
                          "--micro-batches", "4", "--micro-batch-size", "2", "--steps", "6", *flags, **more)

    def shared(self):
        """Returns the environment in which rank processes share the only GPU."""
        return ["env", "CHIMERA_SHARE_GPU=1"] if self.gpus < 2 else []

    def over_nccl(self, schedule, *flags, fault=None):
        """Returns rank processes with two stages, or as many stages as up to four GPUs allow."""
        name = "-".join(["nccl", schedule, *(flag.lstrip("-") for flag in flags if flag != "--reduction")])
        environment = self.shared()
        if fault:
            environment = ["env", f"CHIMERA_FAULT={fault}", *environment[1:]]
        return self.with_losses(
            name, 40, "--device", "cuda", "--transport", "processes", "--schedule", schedule, "--stages",
            "4" if self.gpus >= 4 else "2", *flags, environment=environment,
            verdict=no_recovery_or_other_losses if fault else other_losses,
            against="losses-cpu", expect="the CPU's losses",
            rehearsed="not" if "--cuda-graphs" in flags else "judged",  # The fake library records no communicators
            note="ranks share one GPU: a test of correctness, not of speed" if self.shared() else "")

    def nccl_memory(self, name, micro_batches, **more):
        return self.train(name, 40, "--model", "gpt2-mini", "--device", "cuda", "--transport", "processes",
                          "--schedule", "1f1b", "--stages", "2", "--sequence", "512", "--micro-batches",
                          str(micro_batches), "--micro-batch-size", "4", "--steps", "4", environment=self.shared(),
                          facts=of_memory, **more)

    def split(self, name, *flags):
        """Returns two ranks that share layers."""
        return self.with_losses(
            name, 40, "--device", "cuda", "--transport", "processes", "--schedule", "none", "--tensor-parallel", "2",
            *flags, environment=self.shared(), verdict=other_losses, against="losses-cpu", expect="the CPU's losses",
            rehearsed="judged")

    def channels(self):
        """Returns ranks whose environment asks NCCL for more blocks than they may have."""
        return self.with_losses(
            "nccl-channels", 30, "--device", "cuda", "--transport", "processes", "--schedule", "1f1b", "--stages", "2",
            environment=["env", "NCCL_MIN_NCHANNELS=32", *self.shared()[1:]], verdict=other_losses,
            against="losses-cpu", expect="the CPU's losses", rehearsed="judged")

    def timeline(self):
        """Returns a run with a trace and the times of its ops."""
        return self.small("timeline", "--trace", self.output / "trace.json", "--op-times", self.output / "times.json",
                          expect="a step within 1 % of no-graphs, simulated with its ops within 5 %")

    def wrong_token(self):
        """Returns a run on raw tokens outside of the vocabulary, which must end in one line."""
        raw = self.output / "wrong.bin"
        make = ["python3", "-c", f"open({str(raw)!r}, 'wb').write(bytes([96, 234]) * 4096)"]  # 60,000
        train = shlex.join(map(str, [*self.program("chimera"), "train", "--device", "cuda", "--transport", "threads",
                                     "--data", raw, "--model", "gpt2-tiny", "--sequence", "16", "--steps", "2"]))
        return Part("wrong-token", ["sh", "-c", f"{shlex.join(make)} && ! {train}"], 20, "",
                    expect="the message names the token", rehearsed="run")

    def tests(self):
        return Part("tests", [*self.program("chimera_program_tests"), "--gtest_filter=TrainingDeviceTest.*"], 60, "",
                    no_test_ran, expect="none skipped")

    def python_tests(self):
        tests = "python/tests/training/test_devices.py"
        if self.packed:
            skip = "" if can_import("python3", "pytest") else "python3 has no pytest"
            return Part("python-tests", [*self.program("python3"), "-m", "pytest", "-q", "-rs", tests], 60, skip)
        skip = "" if PYTHON_PACKAGES.exists() else "needs ./dev python, where there is a network"
        command = ["env", "PYTHONPATH=build/python", PACKAGE_PYTHON, "-m", "pytest", "-q", "-rs", tests]
        return Part("python-tests", command, 60, skip)

    def probe(self, name, limit, *arguments, expect, verdict=None, package=False):
        """Returns a part of probes.py."""
        python = python_with("torch") or "python3"
        command = [python, ROOT / "benchmarks/gpu/probes.py", name, *arguments]
        if package:
            command = ([*self.program("python3"), *command[1:]] if self.packed
                       else ["env", "PYTHONPATH=build/python", *command])
        return Part(name, command, limit, "", verdict, expect=expect, facts=of_probe)

    def job(self, *flags):
        """Returns the command of a training run for a probe."""
        return ["--", *self.shared(), *self.program("chimera"), "train", "--data", self.output / "text.txt", "--device",
                "cuda", "--transport", "processes", "--schedule", "1f1b", "--stages", "2", *flags]

    def signalled(self, name, seconds):
        job = self.job("--model", "gpt2-mini", "--sequence", "128", "--steps", "100000", "--hang-seconds", "4")
        return self.probe(name, 60, *job, expect=f"rank 1 is named within {seconds} s", verdict=asks(
            lambda found: found["names_rank"] and found["seconds"] <= seconds,
            lambda found: f"the job ended after {found['seconds']} s"))

    def too_little_memory(self):
        job = self.job("--model", "gpt2", "--dtype", "bfloat16", "--sequence", "1024", "--micro-batches", "4",
                       "--micro-batch-size", "8", "--steps", "4")
        return self.probe("memory", 90, *job, expect="one line, no hang", verdict=asks(
            lambda found: all(run["exit"] not in (0, None) for run in found["ended"].values()),
            lambda found: f"exit codes and seconds: {found['ended']}"))

    def peer(self, name, *flags):
        needed = ["torch", "transformers"] if name == "transformers" else ["torch"]
        python = python_with(*needed)
        skip = "" if python else f"no interpreter has {' and '.join(needed)}: tools/oracles, where there is a network"
        label = "-".join(["peer", name, *(flag for flag in flags if not flag.startswith("--"))])
        command = [python, ROOT / "benchmarks/gpu/others.py", name, *MODEL, "--micro-batch-size", "4", *flags]
        return Part(label, command, 30, skip, faster_than_ours, "blocks", expect="at least our time")


PACKAGE_PYTHON = ROOT / ".venv/bin/python3"
PYTHON_PACKAGES = ROOT / ".venv/python-packages"  # ./dev python has installed them


def build():
    preset = "ci" if os.environ.get("CI") else "release"
    torch = f" -DTORCH_DIR='{torch_folder()}'" if os.environ.get("TORCH_DIR") else ""
    targets = "chimera chimera_cuda chimera_program_tests models"
    if PYTHON_PACKAGES.exists():
        targets += " chimera_python"
    command = (f"cmake --preset {preset} -DCHIMERA_WITH_CUDA=ON{torch} && "
               f"cmake --build --preset {preset} -j {os.cpu_count() or 1} --target {targets}")
    return Part("build", ["sh", "-c", command], 300)


def first_half(runs):
    lt = ["env", "TORCH_BLAS_PREFER_CUBLASLT=1"]
    llama = ["--layers", "2", "--sequence", "8192", "--micro-batches", "4", "--rounds", "3"]
    return [
        runs.probe("idle", 40, expect="eager loading costs about 1 GB"),
        runs.tests(),
        runs.compare("compare", COMPARED),
        runs.compare("compare-odd", runs.output / "odd.toml"),
        runs.head("head-50304", 50304, verdict=no_steps),
        runs.head("head-50257", 50257, verdict=much_slower, against="head-50304", expect="within 5 % of 50,304"),
        runs.blocks("blocks", 42),
        runs.blocks("blocks-1", 16, micro_batch=1),
        runs.blocks("blocks-8", 45, micro_batch=8),
        runs.blocks("blocks-llama", 50, model="llama-3-8b", micro_batch=1, flags=llama),
        runs.blocks("blocks-lt", 42, environment=lt),
        runs.blocks("blocks-llama-lt", 50, model="llama-3-8b", micro_batch=1, flags=llama, environment=lt),
        runs.probe("products", 60, expect="with a carveout at most 1.1", verdict=asks(
            lambda found: all(max(row) <= 1.1 for name, row in found["slowdown"].items()
                              if name.endswith("cublaslt-carveout")),
            lambda found: "products beside waiting thread blocks take longer with a carveout")),
        runs.large("large-graphs", "--cuda-graphs", verdict=grows_by_recording, expect="equal memory in steps 2 and 4"),
        runs.small("no-graphs"),
        runs.small("graphs", "--cuda-graphs"),
        runs.small("op-graphs", "--op-graphs"),
        runs.timeline(),
        runs.train("llama-8b-4", 60, "--device", "cuda", "--transport", "threads", "--schedule", "none", "--model",
                   "llama-3-8b", "--layers", "4", "--dtype", "bfloat16", "--sequence", "8192", "--micro-batches", "1",
                   "--micro-batch-size", "1", "--steps", "4", facts=of_memory, rehearsed="run",
                   expect="peak_memory_bytes within 1 % of --dry-run"),
        runs.probe("queues", 20, expect="the last of 31 kernels starts", verdict=asks(
            lambda found: found["seconds"] < 2, lambda found: f"streams share queues: {found['seconds']:.1f} s")),
    ]


def second_half(runs):
    return [
        runs.with_losses("losses-cpu", 20, "--transport", "threads", "--schedule", "none", verdict=no_steps,
                         rehearsed="judged"),
        runs.with_losses("losses-gpu", 20, "--device", "cuda", "--transport", "threads", "--schedule", "none",
                         verdict=other_losses, against="losses-cpu", expect="the CPU's losses", rehearsed="judged"),
        runs.over_nccl("chimera"),
        runs.over_nccl("1f1b", "--cuda-graphs"),
        runs.over_nccl("chimera", "--reduction", "canonical"),
        runs.over_nccl("chimera", "--recover", "reroute", fault="kill@backward:1:10"),
        runs.over_nccl("chimera", "--recover", "twin", fault="kill@backward:1:10"),
        runs.nccl_memory("nccl-8", 8),
        runs.nccl_memory("nccl-64", 64, verdict=grows_with_micro_batches, against="nccl-8",
                         expect="memory of 8 micro-batches"),
        runs.probe("python", 70, package=True, expect="losses as threads to 1e-6", verdict=asks(
            lambda found: found["largest_difference"] <= 1e-6,
            lambda found: f"losses differ by {found['largest_difference']:.2g}")),
        runs.python_tests(),
        runs.split("nccl-split", "--sequence-parallel", "auto"),
        runs.split("nccl-split-whole", "--sequence-parallel", "none"),
        runs.channels(),
        runs.wrong_token(),
        runs.signalled("killed", 3),
        runs.signalled("stopped", 6),
        runs.too_little_memory(),
        runs.blocks("blocks", 42),
        runs.peer("pipelining"),
        runs.peer("transformers", "--attention", "sdpa"),
        runs.probe("compiled", 80, expect="1.1 times as fast as eager", verdict=asks(
            lambda found: found["speedup"] >= 1.1, lambda found: f"{found['speedup']:.2f} times")),
    ]


def parts_of(options):
    runs = Runs(options)
    half = first_half if options.half == 1 else second_half
    parts = [runs.start() if options.packed or options.rehearse else build(), *half(runs)]
    return [rehearsal(part) for part in parts] if options.rehearse else parts


def make_text(folder):
    """Writes the data of training runs: the corpus, or the documents of this repository."""
    corpus = ROOT / "corpus/bible.txt"
    sources = [corpus] if corpus.exists() else sorted((ROOT / "docs").glob("*.md"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_bytes(b"".join(source.read_bytes() for source in sources))
    (folder / "odd.toml").write_text(ODD_MODEL)


def copy_programs(library, folder):
    """Copies the library's programs (build/ of build/tests/bench), and puts it where they look for the GPU's."""
    for name in ("chimera", "libchimera_training.so", "benchmarks/models"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library.resolve().parents[2] / name, folder / name)
    shutil.copy(library, folder / "libchimera_cuda.so")


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
    parser.add_argument("--rehearse", type=pathlib.Path, metavar="LIBRARY", help="run on the tests' fake device")
    parser.add_argument("--half", type=int, default=1, choices=[1, 2], help="1: one process; 2: ranks and others")
    parser.add_argument("--parts", type=lambda text: text.split(","), help="only these parts, with commas between")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build/gpu", help="folder for logs and summary")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--peak", type=float, help="TFLOP/s of bfloat16 (default: by the name of the GPU)")
    parser.add_argument("--seconds", type=float, default=SECONDS,
                        help="for all parts but the build, together")
    options = parser.parse_args()
    if options.packed is None and torch_folder() is None and (ROOT / ".gpu/run").exists():
        options.packed = ROOT / ".gpu"
    options.packed = options.packed and options.packed.resolve()
    options.output = options.output.resolve()
    why = "" if options.rehearse else refusal(options.packed)
    if why and not options.dry_run:
        print(f"dev: gpu: {why}", file=sys.stderr)
        return 2
    parts = parts_of(options)
    if options.parts:
        parts = [part for part in parts if part.name in ("build", "start", *options.parts)]
    if options.dry_run:
        for part in parts:
            print(f"{part.name:<24} {part.limit:>4} s  {part.skip or ' '.join(map(str, part.command))}")
            if part.expect:
                print(f"    expected: {part.expect}")
        return 0
    make_text(options.output)
    if options.rehearse:
        copy_programs(options.rehearse, options.output / "programs")
    outcomes = run_all(parts, options.output, options.seconds)
    print("\n".join(summary(outcomes)))
    return 1 if any(outcome.state == "FAILED" for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
