#!/usr/bin/env python3
"""What failures and preemptions cost, and whether the run that goes on is the one that nothing has disturbed.

  benchmarks/recovery.py [--kills 100] [--twins 100] [--preemptions 100] [--faults 300] [--flips 300] [--seed 1]
      [--program build/chimera]

Five campaigns on gpt2-tiny, four ranks, `--reduction canonical`; 0 leaves one out.

kills        one run with --max-restarts: a random rank gets SIGKILL at a random moment, again and again. Measured is the
             time from the kill until two more steps are done than before: the next one may have been as good as done.
             Every step, also one that is done again, must have the parameters of a run that nothing has disturbed.
twins        the same with --recover twin: the other ranks go on. Counted are the steps that had been done and were done
             again.
preemptions  SIGTERM, SIGUSR1 or SIGHUP to the launcher or to all processes at a random moment, then the same command
             again. Measured is the time from the signal to the end, which must come with exit code 75.
faults       short runs with --max-restarts, each with one fault (CHIMERA_FAULT) of a random kind, at a random place of a
             random rank. Each must end with exit code 0 and the parameters of the undisturbed run after every step, and
             `chimera diagnose` must name the rank.
flips        short runs with --verify-messages, --on-different-copies repair and --recover twin on four copies of each stage.
             In each one bit flips in a message, a weight or a moment of the optimizer, before or after an update. Each
             must say so and end with exit code 0 and the parameters of the undisturbed run after every step.

Exits with 1 where anything was not as it must be."""
import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
RANKS = 4
PATIENCE = 120  # seconds for anything
SHAPE = ["--model", "gpt2-tiny", "--schedule", "chimera", "--stages", str(RANKS), "--micro-batches", "8",
         "--micro-batch-size", "2", "--sequence", "32", "--reduction", "canonical", "--dropout", "0.1",
         "--learning-rate-shape", "constant"]
failures = []


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


class Run:
    """A training run whose metrics are read as they come. `steps` has the hash of the parameters after each step."""

    def __init__(self, options, folder, steps, flags, fault=""):
        self.options, self.folder, self.last_step = options, Path(folder), steps
        self.flags = [options.program, "train", "--data", options.data, *SHAPE, "--steps", str(steps), *flags]
        self.fault = fault
        self.steps, self.contradictions = {}, []
        self.news = threading.Condition()
        self.process = None
        pipe = self.folder / "metrics.pipe"
        os.mkfifo(pipe)
        self.flags += ["--metrics", pipe]
        self.pipe = os.open(pipe, os.O_RDWR)  # stays open however often the run ends
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with os.fdopen(os.dup(self.pipe)) as lines:
            for line in lines:
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
        """Whether it came; else the run has ended."""
        limit = time.monotonic() + PATIENCE
        with self.news:
            while max(self.steps, default=0) <= step and time.monotonic() < limit:
                if self.process.poll() is not None:
                    return False
                self.news.wait(0.05)
            return max(self.steps, default=0) > step

    def ranks(self):
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        return [int(child) for child in Path(path).read_text().split()]

    def end(self):
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            return self.process.wait()

    def messages(self):
        return (self.folder / "messages").read_text(errors="replace")


def undisturbed(options, folder, steps):
    """Hashes of the parameters after each step of a run in one process."""
    metrics = Path(folder, f"undisturbed-{steps}.jsonl")
    subprocess.run([options.program, "train", "--data", options.data, *SHAPE, "--steps", str(steps), "--transport",
                    "threads", "--metrics", metrics], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {line["step"]: line["parameters_hash"] for line in map(json.loads, metrics.read_text().splitlines())}


def require_undisturbed(run, name, folder):
    require(not run.contradictions, f"{name}: steps done again differ: {run.contradictions[:5]}")
    clean = undisturbed(run.options, folder, max(run.steps))
    equal = sum(run.steps.get(step) == found for step, found in clean.items())
    require(equal == len(clean), f"{name}: parameters differ from those of the undisturbed run")
    print(f"{name}: {equal} of {len(clean)} steps with the parameters of the undisturbed run", flush=True)


def saving(folder, *flags):
    return ["--checkpoint", str(Path(folder, "run")), "--save-every", "5", *flags]


def kill_campaign(options, chance):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, folder, 1_000_000, saving(folder, "--max-restarts", str(options.kills)))
        run.start()
        seconds = []
        for kill in range(options.kills):
            if not run.await_step_after(run.newest()):
                break
            time.sleep(chance.uniform(0.1, 1.5))
            ranks = run.ranks()
            if not ranks:
                continue
            start, newest = time.monotonic(), run.newest()
            os.kill(chance.choice(ranks), signal.SIGKILL)
            if not run.await_step_after(newest + 1):  # the next one may have been done already
                break
            seconds.append(time.monotonic() - start)
        require(len(seconds) == options.kills, f"kills: only {len(seconds)} were survived: {run.messages()[-500:]}")
        run.process.send_signal(signal.SIGTERM)
        require(run.end() == 75, "kills: the run did not save at its end")
        describe(f"kills: {len(seconds)}, from the kill to two new steps", seconds)
        require_undisturbed(run, "kills", folder)


def lost_steps(run, newest):
    """How many of the steps that were done when a rank was killed the run did again, by its last line about that."""
    first = int(re.findall(r"goes on with step (\d+) after", run.messages())[-1])
    return max(0, newest + 1 - first)


def twin_campaign(options, chance):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, folder, 1_000_000,
                  saving(folder, "--recover", "twin", "--max-recoveries", str(options.twins)))
        run.start()
        seconds, lost = [], 0
        for kill in range(options.twins):
            if not run.await_step_after(run.newest()):
                break
            time.sleep(chance.uniform(0.1, 1.5))
            start, newest = time.monotonic(), run.newest()
            os.kill(chance.choice(run.ranks()), signal.SIGKILL)
            if not run.await_step_after(newest + 1):  # the next one may have been done already
                break
            seconds.append(time.monotonic() - start)
            lost += lost_steps(run, newest)
        messages = run.messages()
        require(len(seconds) == options.twins, f"twins: only {len(seconds)} were survived: {messages[-500:]}")
        require(lost == 0, f"twins: {lost} steps were lost")
        require(messages.count("; recovery ") == options.twins, f"twins: not all were recovered: {messages[-500:]}")
        run.process.send_signal(signal.SIGTERM)
        require(run.end() == 75, "twins: the run did not save at its end")
        describe(f"twins: {len(seconds)} kills, {lost} steps lost, from the kill to two new steps", seconds)
        within = [float(number) for number in re.findall(r"goes on with step \d+ after ([\d.]+) s", messages)]
        describe("twins: from the death to the next step's beginning", within)
        require_undisturbed(run, "twins", folder)


def preemption_campaign(options, chance):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, folder, 1_000_000, saving(folder, "--resume", "auto"))
        seconds = []
        for number in range(options.preemptions):
            run.start()
            if chance.random() < 0.9:  # else it comes while the run starts
                run.await_step_after(run.newest())
            time.sleep(chance.uniform(0, 0.5))
            kind = chance.choice([signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
            start = time.monotonic()
            (os.killpg if chance.random() < 0.5 else os.kill)(run.process.pid, kind)
            code = run.end()
            seconds.append(time.monotonic() - start)
            require(code == 75, f"preemption {number}: exit code {code} after {kind.name}: {run.messages()[-500:]}")
        describe(f"preemptions: {len(seconds)}, from the signal to the end", seconds)
        require(max(seconds) <= 10, "preemptions: one took longer than 10 s")
        require_undisturbed(run, "preemptions", folder)


def random_fault(chance, steps):
    point = chance.choice(["start", "connected", "step", "forward", "backward", "optimizer", "updated", "save"])
    action = chance.choice(["kill", "throw", "segfault", "stop"] if point in ("step", "forward", "backward") else
                           ["kill", "segfault"])
    passages = {"start": 1, "connected": 1, "save": 2, "step": steps, "optimizer": steps, "updated": steps}
    rank = chance.randrange(RANKS)
    # 8 micro-batches, of each of which a rank runs one stage of two replicas: 8 forwards a step
    return f"{action}@{point}:{rank}:{chance.randint(1, passages.get(point, 8 * steps))}", rank


def fault_campaign(options, chance):
    steps = 12
    with tempfile.TemporaryDirectory() as folder:
        clean = undisturbed(options, folder, steps)
    equal, named, judged = 0, 0, 0
    for number in range(options.faults):
        with tempfile.TemporaryDirectory() as folder:
            fault, rank = random_fault(chance, steps)
            run = Run(options, folder, steps, saving(folder, "--max-restarts", "2", "--hang-seconds", "2"), fault)
            run.start()
            code = run.end()
            run.await_step_after(steps - 1)
            good = code == 0 and run.steps == clean and not run.contradictions
            require(good, f"fault {number}, {fault}: exit code {code}, {len(run.steps)} steps: {run.messages()[-500:]}")
            equal += good
            previous = Path(folder, "run", "flight-previous")
            if previous.is_dir():
                judged += 1
                answer = subprocess.run([options.program, "diagnose", previous, "--format", "json"], check=True,
                                        stdout=subprocess.PIPE)
                guilty = json.loads(answer.stdout)["guilty"]
                named += guilty == rank
                require(guilty == rank, f"fault {number}, {fault}: diagnose names {guilty}")
    print(f"faults: {equal} of {options.faults} runs ended with the parameters of the undisturbed run after every step; "
          f"diagnose named the rank in {named} of {judged}", flush=True)


def flip_campaign(options, chance):
    steps = 6
    with tempfile.TemporaryDirectory() as folder:
        clean = undisturbed(options, folder, steps)
    flags = ["--pipelines", "4", "--verify-messages", "--on-different-copies", "repair", "--recover", "twin"]
    found, equal = 0, 0
    for number in range(options.flips):
        point = chance.choice(["message", "step", "updated", "moments"])
        # from the second step on, as ranks are replaced then; 12 of a step's messages come to each rank
        passage = chance.randint(13, 12 * steps) if point == "message" else chance.randint(2, steps)
        fault = f"flip@{point}:{chance.randrange(RANKS)}:{passage}"
        with tempfile.TemporaryDirectory() as folder:
            run = Run(options, folder, steps, flags, fault)
            run.start()
            code = run.end()
            run.await_step_after(steps - 1)
            is_found = re.search("changed on the way|changed since the last|differed from most", run.messages()) is not None
            is_equal = code == 0 and run.steps == clean and not run.contradictions
            require(is_found and is_equal, f"flip {number}, {fault}: exit code {code}: {run.messages()[-500:]}")
            found, equal = found + is_found, equal + is_equal
    print(f"flips: {found} of {options.flips} found; {equal} runs ended with the parameters of the undisturbed run after "
          "every step", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--twins", type=int, default=100)
    parser.add_argument("--preemptions", type=int, default=100)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--flips", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default=str(ROOT / "build/chimera"))
    parser.add_argument("--data", default=str(ROOT / "README.md"))
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; gpt2-tiny, {RANKS} ranks", flush=True)
    campaigns = {kill_campaign: options.kills, twin_campaign: options.twins, preemption_campaign: options.preemptions,
                 fault_campaign: options.faults, flip_campaign: options.flips}
    with tempfile.TemporaryDirectory() as folder:  # whatever happens to the text meanwhile
        options.data = shutil.copy(options.data, folder)
        for campaign, count in campaigns.items():
            if count > 0:
                campaign(options, random.Random(f"{options.seed} {campaign.__name__}"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
