"""Training runs under faults, and the undisturbed run for comparison. Used by the campaigns in this folder."""
import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RANKS = 4
MICRO_BATCHES = 8
PATIENCE = 120  # Seconds for any wait
SKIPPED = 77  # Exit code of a campaign that this machine does not permit
MODEL = ["--model", "gpt2-tiny", "--micro-batch-size", "2", "--sequence", "32", "--reduction", "canonical", "--dropout",
         "0.1", "--learning-rate-shape", "constant", "--warmup", "0"]
LAYOUT = ["--schedule", "chimera", "--stages", str(RANKS), "--micro-batches", str(MICRO_BATCHES)]
SHAPE = [*MODEL, *LAYOUT]
failures = []


def campaign_parser(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default=str(ROOT / "build/chimera"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="device of the ranks")
    parser.add_argument("--data", default=str(ROOT / "README.md"))
    return parser


@contextlib.contextmanager
def own_text(options):
    """Prints the machine's description, and makes a private copy of the text. Restores SIGHUP, which nohup ignores."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; gpt2-tiny, {RANKS} ranks", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        options.data = shutil.copy(options.data, folder)
        yield


def require(condition, what):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}", flush=True)


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def describe(name, seconds):
    print(f"{name}: median {statistics.median(seconds):.2f} s, p95 {percentile(seconds, 0.95):.2f} s, "
          f"longest {max(seconds):.2f} s", flush=True)


class Lines:
    """A named pipe and the lines written to it by one program after another."""

    def __init__(self, path, take):
        self.path = path
        os.mkfifo(path)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.writing = os.open(path, os.O_WRONLY)  # Stays open
        os.set_blocking(reading, True)
        self.reader = threading.Thread(target=self.read, args=[reading, take], daemon=True)
        self.reader.start()

    def read(self, pipe, take):
        with os.fdopen(pipe) as lines:
            for line in lines:
                take(line)

    def close(self):
        """Reads the remaining lines after the last writer has closed the pipe."""
        os.close(self.writing)
        self.reader.join()


class Run:
    """A training run with live metrics. `steps` has the hash of the parameters after each step."""

    def __init__(self, options, folder, steps, flags, fault="", layout=LAYOUT):
        self.options, self.folder, self.last_step = options, Path(folder), steps
        self.flags = [options.program, "train", "--data", options.data, "--device", options.device, *MODEL,
                      *layout, "--steps", str(steps), *flags]
        self.fault = fault
        self.steps, self.contradictions = {}, []
        self.news = threading.Condition()
        self.process = None
        self.lines = Lines(self.folder / "metrics.pipe", self.take)
        self.flags += ["--metrics", self.lines.path]

    def close(self):
        """Call it after the last end()."""
        self.lines.close()

    def take(self, line):
        metrics = json.loads(line)
        step, found = metrics["step"], metrics["parameters_hash"]
        with self.news:
            if self.steps.setdefault(step, found) != found:
                self.contradictions.append(step)
            self.news.notify_all()

    def start(self):
        with open(self.folder / "messages", "ab") as messages:
            self.process = subprocess.Popen(self.flags, stdout=subprocess.DEVNULL, stderr=messages,
                                            start_new_session=True, env={**os.environ, "CHIMERA_FAULT": self.fault})

    def newest(self):
        with self.news:
            return max(self.steps, default=0)

    def await_step_after(self, step):
        """Returns whether the step came; False if the run ended."""
        limit = time.monotonic() + PATIENCE
        with self.news:
            while max(self.steps, default=0) <= step and time.monotonic() < limit:
                if self.process.poll() is not None:
                    return False
                self.news.wait(0.05)
            return max(self.steps, default=0) > step

    def await_signals(self):
        """Waits until the program handles SIGTERM itself."""
        status, caught = Path(f"/proc/{self.process.pid}/status"), 0
        while self.process.poll() is None and not caught:
            words = dict(line.split(":", 1) for line in status.read_text().splitlines())
            caught = int(words["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1
            time.sleep(0.001)

    def ranks(self):
        """Returns the rank processes; empty if the launcher has exited."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in path.read_text().split()] if path.exists() else []

    def end(self):
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def messages(self):
        return (self.folder / "messages").read_text(errors="replace")


def undisturbed(options, folder, steps):
    """Returns hashes of the parameters after each step of a run in one process."""
    metrics = Path(folder, f"undisturbed-{steps}.jsonl")
    subprocess.run([options.program, "train", "--data", options.data, "--device", options.device, *SHAPE, "--steps",
                    str(steps), "--transport", "threads", "--metrics", metrics], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {line["step"]: line["parameters_hash"] for line in map(json.loads, metrics.read_text().splitlines())}


def require_undisturbed(run, name, folder):
    require(not run.contradictions, f"{name}: steps done again differ: {run.contradictions[:5]}")
    clean = undisturbed(run.options, folder, max(run.steps))
    equal = sum(run.steps.get(step) == found for step, found in clean.items())
    require(equal == len(clean), f"{name}: parameters differ from those of the undisturbed run")
    print(f"{name}: {equal} of {len(clean)} steps with the parameters of the undisturbed run", flush=True)


def saving(folder, *flags):
    return ["--checkpoint", str(Path(folder, "run")), "--save-every", "5", *flags]
