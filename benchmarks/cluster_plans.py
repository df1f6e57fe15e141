#!/usr/bin/env python3
"""Tests whether the planner chooses the fastest candidate on several hosts with a slow network.

    benchmarks/cluster_plans.py [--only TEXT] [--rounds 4] [--steps 12] [--seconds 15] [--program build/chimera]

Ten problems. Each has hosts: network namespaces on one bridge, with process namespaces, and sending limited by `tc
tbf`. Each host is pinned to one core; if there are more hosts than cores, a cgroup gives each a part of a core. A
stand-in for ssh enters the hosts. `chimera profile --hosts` measures, `chimera plan --top 0` lists all candidates that
fit, and `chimera launch --hosts` trains each of them in alternating rounds. The result of a candidate is its median
step time, without the first two steps of each run. Candidates other than the planner's choice are dropped if no step of
the short first round is within 1.5 times the fastest.

Needs root and tc. Exits with 77 if this machine does not permit it. If all ten problems ran, exits with 1 if fewer than
nine chosen candidates are the fastest or within 5 % of it.
"""
import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import typing
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/cluster"))
from hosts import Hosts, OwnProcesses, has, namespaces_work  # noqa: E402  (behind the path)

AS_FAST = 1.05  # Of the fastest time
OUT = 1.5  # Of the fastest time; slower candidates are dropped
FIRST_STEPS = 6  # Of the first round
SKIPPED_STEPS = 2
PATIENCE = 600  # Seconds for any command
SKIPPED = 77  # Exit code if this machine does not permit the test
ENOUGH = 9  # Of ten problems


class Problem(typing.NamedTuple):
    name: str
    hosts: int
    ranks: int  # Per host
    rate: int  # Mbit/s; 0: unlimited
    model: str
    vocabulary: int
    mini_batch: int
    sequence: int
    schedules: str = "1f1b,chimera,zb-h1"
    given: tuple = ()  # Further flags of the planner

    @property
    def workers(self):
        return self.hosts * self.ranks


SIZES = {size: ("--micro-batch-size", f"{size},{2 * size}") for size in (2, 4)}  # Limits the number of candidates
PROBLEMS = [
    Problem("2 hosts, unlimited", 2, 1, 0, "gpt2-mini", 512, 8, 64, given=SIZES[2]),
    Problem("2 hosts, 1000 Mbit/s", 2, 1, 1000, "gpt2-mini", 512, 8, 64, given=SIZES[2]),
    Problem("2 hosts, 200 Mbit/s, BERT", 2, 1, 200, "bert-tiny", 512, 32, 64, given=SIZES[4]),
    Problem("2 hosts, 100 Mbit/s", 2, 1, 100, "gpt2-tiny", 4096, 16, 64, given=SIZES[4]),
    Problem("2 hosts, 50 Mbit/s, large head", 2, 1, 50, "gpt2-tiny", 8192, 8, 64, given=SIZES[2]),
    Problem("2 hosts of 2, 1000 Mbit/s", 2, 2, 1000, "gpt2-mini", 512, 8, 64, "1f1b,chimera", SIZES[2]),
    Problem("2 hosts of 2, 100 Mbit/s", 2, 2, 100, "gpt2-tiny", 4096, 16, 64, "1f1b,chimera", SIZES[2]),
    # A part of a core means turns of some milliseconds. Long sequences take several turns, so they see a slower core.
    Problem("4 hosts, 200 Mbit/s", 4, 1, 200, "gpt2-tiny", 512, 8, 256, given=SIZES[2]),
    Problem("4 hosts, 100 Mbit/s, BERT", 4, 1, 100, "bert-tiny", 512, 8, 256, given=SIZES[2]),
    Problem("4 hosts, 50 Mbit/s", 4, 1, 50, "gpt2-tiny", 4096, 8, 256, given=SIZES[2]),
]
MODELS = {  # Family, layers, hidden, heads, positions
    "gpt2-tiny": ("gpt2", 4, 64, 4, 1024),
    "gpt2-mini": ("gpt2", 8, 224, 7, 1024),
    "bert-tiny": ("bert", 4, 64, 4, 512),
}
AXES = {"chimera": ("pipelines", "chunks", "scale")}  # Flags of a schedule in addition to the common ones


def throttle(hosts, rate):
    """Limits the sending rate of each host to Mbit/s, in bursts of 16 kB or 1 ms."""
    burst = max(16_000, rate * 125)
    for name in hosts.names:
        hosts.run(["tc", "-n", name, "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{rate}mbit",
                   "burst", str(burst), "latency", "400ms"])


class PartOfACore:
    """A cgroup that gets a part of a core, in turns of two milliseconds, like a slower core."""

    PERIOD = 2000  # Microseconds

    def __init__(self, name, part):
        self.is_old = Path("/sys/fs/cgroup/cpu/tasks").exists()  # Version 1
        self.folder = Path("/sys/fs/cgroup/cpu" if self.is_old else "/sys/fs/cgroup", name)
        self.folder.mkdir()
        if self.is_old:
            (self.folder / "cpu.cfs_period_us").write_text(str(self.PERIOD))
            (self.folder / "cpu.cfs_quota_us").write_text(str(int(part * self.PERIOD)))
        else:
            (self.folder / "cpu.max").write_text(f"{int(part * self.PERIOD)} {self.PERIOD}")

    def enter(self):
        """Returns a shell line that moves the shell into the cgroup."""
        return f"echo $$ > {self.folder}/cgroup.procs; "

    def end(self):
        """Removes the cgroup, after its processes have exited."""
        end = time.monotonic() + PATIENCE
        while (self.folder / "cgroup.procs").read_text() and time.monotonic() < end:
            time.sleep(0.01)
        self.folder.rmdir()


class Cluster:
    """The problem's hosts, and a stand-in for ssh that enters them."""

    def __init__(self, problem, folder):
        self.problem, self.ssh = problem, Path(folder, "ssh")
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.hosts = stack.enter_context(Hosts(self.problem.hosts))
            if self.problem.rate:
                throttle(self.hosts, self.problem.rate)
            cores = sorted(os.sched_getaffinity(0))
            cases = []
            for host in range(self.problem.hosts):
                limit = ""
                # Several hosts share a core; each gets its part, even if others are idle
                if self.problem.hosts > len(cores):
                    part = PartOfACore(self.hosts.names[host], len(cores) / self.problem.hosts)
                    stack.callback(part.end)  # After its processes have exited, below
                    limit = part.enter()
                own = OwnProcesses(self.hosts.enter(host))
                stack.callback(own.end)
                words = " ".join([*own.enter, "taskset", "--cpu-list", str(cores[host % len(cores)])])
                cases.append(f"{self.hosts.address(host)}) {limit}exec {words} setsid --wait sh -c \"$2\" ;;\n")
            self.ssh.write_text("#!/bin/sh\ncase $1 in\n" + "".join(cases) + "esac\nexit 255\n")
            self.ssh.chmod(0o700)
            self.stack = stack.pop_all()
        return self

    def flags(self, ranks):
        """Returns the flags of a command for all hosts. `ranks`: ranks per host, if not 1."""
        number = f":{ranks}" if ranks > 1 else ""
        names = [self.hosts.address(host) + number for host in range(self.problem.hosts)]
        return ["--hosts", ",".join(names), "--ssh", str(self.ssh)]

    def __exit__(self, *_):
        self.stack.close()


def run(words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode} of {' '.join(map(str, words))}:\n{done.stderr[-2000:]}")
    return done.stdout


def write_model(problem, folder):
    family, layers, hidden, heads, positions = MODELS[problem.model]
    path = Path(folder, f"{problem.model}-{problem.vocabulary}.toml")
    path.write_text(f'family = "{family}"\nlayers = {layers}\nhidden = {hidden}\nheads = {heads}\n'
                    f"feed_forward = {4 * hidden}\nvocabulary = {problem.vocabulary}\npositions = {positions}\n"
                    "tied = false\n")
    return path


def micro_batch_sizes(problem):
    """Returns the powers of two that are possible micro-batch sizes."""
    return ",".join(str(2 ** k) for k in range(10) if 2 ** k <= min(16, problem.mini_batch))


def planned(options, problem, cluster, model, folder):
    """Returns all candidates that fit, in the planner's order."""
    machine = Path(folder, "cluster.json")
    workload = ["--model", model, "--sequence", problem.sequence]
    links = run([options.program, "profile", *cluster.flags(problem.ranks), *workload, "--micro-batch-sizes",
                 micro_batch_sizes(problem), "--seconds", options.seconds, "--output", machine])
    text = run([options.program, "plan", *workload, "--machine", machine, "--workers", problem.workers, "--mini-batch",
                problem.mini_batch, "--schedules", problem.schedules, *problem.given, "--top", 0, "--format", "json"])
    if options.keep:
        kept = Path(options.keep, problem.name.replace("/", " a "))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.with_suffix(".machine.json").write_text(machine.read_text())
        kept.with_suffix(".plan.json").write_text(text)
        kept.with_suffix(".links.txt").write_text(links)
    return [candidate for candidate in json.loads(text)["candidates"] if candidate["fits"]]


def in_words(candidate):
    text = candidate["schedule"]
    if text == "chimera":
        text += "" if candidate["scale"] == "direct" else f" {candidate['scale']}"
        text += "" if candidate["chunks"] == 1 else f" v {candidate['chunks']}"
    text += f"  W {candidate['data_parallel']} x D {candidate['stages']}, "
    text += f"{candidate['micro_batches']} micro-batches of {candidate['micro_batch_size']}"
    if candidate["partition"] != "even":
        text += f", stages of {candidate['partition']}"
    return text + (", replicas far" if candidate["replica_layout"] == "far" else "")


def train_words(problem, model, candidate):
    words = ["train", "--model", model, "--sequence", problem.sequence]
    for flag in ("schedule", "stages", "micro_batches", "data_parallel", "micro_batch_size", "recompute", "partition",
                 "replica_layout", *AXES.get(candidate["schedule"], ())):
        words += ["--" + flag.replace("_", "-"), candidate[flag]]
    return words


class Contest:
    """All candidates of a problem, run in alternating order."""

    def __init__(self, options, problem, cluster, model, candidates, folder):
        self.options, self.problem, self.cluster, self.model, self.folder = options, problem, cluster, model, folder
        self.candidates, self.taking_part = candidates, list(range(len(candidates)))
        self.seconds = [[] for _ in candidates]  # Of steps

    def measured(self, index):
        return statistics.median(self.seconds[index])

    def fastest(self):
        return min(range(len(self.candidates)), key=self.measured)

    def train(self, index, steps):
        metrics = Path(self.folder, "metrics.jsonl")
        metrics.unlink(missing_ok=True)
        words = train_words(self.problem, self.model, self.candidates[index])
        run([self.options.program, "launch", *self.cluster.flags(self.problem.ranks), "--", *words, "--data",
             self.options.data, "--steps", steps, "--metrics", metrics])
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        self.seconds[index] += [line["step_seconds"] for line in lines[SKIPPED_STEPS:]]

    def run(self):
        for index in self.taking_part:
            self.train(index, FIRST_STEPS)
        limit = OUT * self.measured(self.fastest())
        self.taking_part = [index for index in self.taking_part if index == 0 or min(self.seconds[index]) <= limit]
        for _ in range(self.options.rounds):
            for index in self.taking_part:
                self.train(index, self.options.steps)


# Baselines that ignore the problem: a schedule with W = 1 or D = 1, and the largest or smallest micro-batch.
def constants():
    yield "data parallelism, largest micro-batch", "1f1b", False, max
    yield "data parallelism, smallest micro-batch", "1f1b", False, min
    for schedule in ("1f1b", "chimera", "zb-h1"):
        yield f"{schedule}, W = 1, largest micro-batch", schedule, True, max
        yield f"{schedule}, W = 1, smallest micro-batch", schedule, True, min


def answer(contest, schedule, is_deep, best):
    """Returns the step time, None if there is no such candidate."""
    one = "data_parallel" if is_deep else "stages"
    found = [index for index, each in enumerate(contest.candidates)
             if each["schedule"] == schedule and each[one] == 1 and each["scale"] == "direct"]
    if not found:
        return None
    return contest.measured(best(found, key=lambda index: (contest.candidates[index]["micro_batch_size"], -index)))


class Scores:
    def __init__(self):
        self.asked, self.right, self.winners = 0, 0, set()
        self.constants = {name: 0 for name, *_ in constants()}

    def add(self, contest):
        fastest = contest.measured(contest.fastest())
        self.asked += 1
        self.right += contest.measured(0) <= AS_FAST * fastest
        self.winners.add(in_words(contest.candidates[contest.fastest()]))
        for name, *which in constants():
            seconds = answer(contest, *which)
            self.constants[name] += seconds is not None and seconds <= AS_FAST * fastest

    def print(self):
        best = max(self.constants, key=self.constants.get)
        plain = next(iter(self.constants))
        print(f"\n- fastest or within 5 % of it: {self.right} of {self.asked}")
        print(f"- different winners: {len(self.winners)}")
        print(f"- the best constant answer ({best}): {self.constants[best]} of {self.asked}")
        print(f"- {plain}: {self.constants[plain]} of {self.asked}")


def print_row(contest):
    def cells(index):
        each = contest.candidates[index]
        return f"{in_words(each)} | {1e3 * each['step_seconds']:.1f} | {1e3 * contest.measured(index):.1f}"

    fastest = contest.fastest()
    print(f"| {contest.problem.name} | {len(contest.candidates)}, {len(contest.taking_part)} | {cells(0)} | "
          f"{cells(fastest)} | {contest.measured(0) / contest.measured(fastest):.3f} |", flush=True)


def print_all(contest):
    for index, each in enumerate(contest.candidates):
        print(f"    {in_words(each)}: predicted {1e3 * each['step_seconds']:.1f}, measured "
              f"{1e3 * contest.measured(index):.1f} ({len(contest.seconds[index])} steps)", file=sys.stderr, flush=True)


def ask(options, problem):
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Cluster(problem, folder) as cluster:
        model = write_model(problem, folder)
        candidates = planned(options, problem, cluster, model, folder)
        planned_after = time.monotonic() - start
        contest = Contest(options, problem, cluster, model, candidates, folder)
        contest.run()
    print(f"    {problem.name}: {planned_after:.0f} s until planned, {time.monotonic() - start:.0f} s in all",
          file=sys.stderr)
    if options.all:
        print_all(contest)
    return contest


def print_head(options):
    print("The planner's choice and the fastest of all candidates that fit, over several hosts, in ms a step")
    print(f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {len(os.sched_getaffinity(0))} cores, "
          f"load {os.getloadavg()[0]:.2f}")
    print(f"medians of {options.rounds} rounds of {options.steps} steps in which candidates take turns; before them a "
          f"round of {FIRST_STEPS} steps,\nwhich those alone survive that are within {OUT} times the fastest (the "
          "second number)\n")
    print("| problem | fit | chosen | predicted | measured | fastest | predicted | measured | times |")
    print("| --- | ---: | --- | ---: | ---: | --- | ---: | ---: | ---: |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="problems whose names contain this")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=12, help="of a candidate in a round")
    parser.add_argument("--seconds", type=float, default=15, help="of a profile")
    parser.add_argument("--program", default=str(ROOT / "build/chimera"))
    parser.add_argument("--all", action="store_true", help="print all candidates' times on standard error")
    parser.add_argument("--keep", help="folder that gets the profiles and plans")
    options = parser.parse_args()
    if not (namespaces_work() and has("tc", "unshare", "taskset", "setsid")):
        print("skipped: needs what root may do, iproute2 and util-linux", file=sys.stderr)
        return SKIPPED
    options.program = str(Path(options.program).resolve())
    scores = Scores()
    with tempfile.TemporaryDirectory() as folder:
        options.data = Path(folder, "text.txt")
        options.data.write_text("".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz \n", k=100_000)))
        print_head(options)
        for problem in PROBLEMS:
            if options.only not in problem.name:
                continue
            contest = ask(options, problem)
            print_row(contest)
            scores.add(contest)
    scores.print()
    return 1 if scores.asked == len(PROBLEMS) and scores.right < ENOUGH else 0


if __name__ == "__main__":
    sys.exit(main())
