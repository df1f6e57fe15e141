#!/usr/bin/env python3
"""Sends foreign connections to a job, during rendezvous and to every listening port during training.

  benchmarks/strangers.py [--connections 10000] [--steps 400] [--rounds 3] [--seed 1] [--program build/chimera]

Four ranks on one host, placed by hand, rendezvous at a TCP address with a secret. The last rank starts only after half
of the foreign connections, which stay silent, hang up, or send random bytes, an HTTP request, a length of 4 GiB, or the
right greeting with a wrong proof. The other half arrive during training. The same job without them runs alternately.
Every step must have the same parameters. Prints how much longer the steps took, and the CPU time of the foreign
connections. Exits with 1 if a condition fails.
"""
import collections
import json
import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from faulted import PATIENCE, RANKS, SHAPE, Lines, campaign_parser, failures, own_text, require

GREETING = b"chimera meeting 1\n"
SILENT = 20  # Connections that stay open and silent


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def words_of(chance):
    return chance.choice([
        b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\xff\xff\xff\xff" + chance.randbytes(60),
        chance.randbytes(chance.randint(1, 2000)), GREETING + chance.randbytes(64), GREETING + bytes(32)])


class Strangers:
    """Connects to listening addresses one after another."""

    def __init__(self, chance):
        self.chance, self.answers = chance, collections.Counter()
        self.silent = collections.deque(maxlen=SILENT)
        self.count, self.cpu = 0, 0.0

    def come(self, places):
        self.count += 1
        try:
            one = socket.create_connection(self.chance.choice(places), timeout=5)
        except OSError:
            self.answers["refused"] += 1
            return
        words = words_of(self.chance)
        if not words and self.chance.random() < 0.5:
            self.silent.append(one)  # The oldest hangs up
            self.answers["stays"] += 1
            return
        try:
            one.sendall(words)
            if self.chance.random() < 0.2:
                one.settimeout(0.02)
                self.answers["answered" if one.recv(4096) else "let go"] += 1
            else:
                self.answers["hung up"] += 1
        except OSError:
            self.answers["let go"] += 1
        finally:
            one.close()

    def come_often(self, places, count, seconds):
        """Spreads the connections over the time."""
        start = time.monotonic()
        for number in range(count):
            self.come(places)
            time.sleep(max(0, start + (number + 1) * seconds / count - time.monotonic()))
        self.cpu = time.thread_time()


def listening(processes):
    """Returns listening addresses and ports."""
    ids = {process.pid for process in processes}
    table = subprocess.run(["ss", "-ltnpH"], check=True, stdout=subprocess.PIPE, text=True).stdout
    own = (line.split()[3].rsplit(":", 1) for line in table.splitlines()
           if ids & {int(pid) for pid in re.findall(r"pid=(\d+)", line)})
    return sorted({(address.strip("[]"), int(port)) for address, port in own})


class Job:
    """Ranks of one job, started one by one."""

    def __init__(self, options, folder):
        self.options, self.folder = options, Path(folder)
        self.place, self.secret = ("127.0.0.1", free_port()), os.urandom(32).hex()
        self.processes, self.arrivals = [], []
        self.lines = Lines(self.folder / "metrics", self.take)

    def start(self, rank):
        environment = {**os.environ, "CHIMERA_RANK": str(rank), "CHIMERA_WORLD_SIZE": str(RANKS),
                       "CHIMERA_LOCAL_RANK": str(rank), "CHIMERA_LOCAL_WORLD_SIZE": str(RANKS),
                       "MASTER_ADDR": self.place[0], "MASTER_PORT": str(self.place[1]), "CHIMERA_SECRET": self.secret}
        command = [self.options.program, "train", "--data", self.options.data, *SHAPE, "--steps",
                   str(self.options.steps), "--metrics", self.lines.path]
        with open(self.folder / f"messages-{rank}", "wb") as messages:
            self.processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=messages, env=environment))

    def take(self, line):
        self.arrivals.append((time.monotonic(), json.loads(line)["parameters_hash"]))

    def await_(self, condition, what):
        limit = time.monotonic() + PATIENCE
        while not condition() and time.monotonic() < limit:
            time.sleep(0.02)
        require(condition(), f"{what}: {self.messages()}")

    def messages(self):
        return "".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("messages-*")))[-1000:]

    def steps_per_second(self):
        times = [time_ for time_, _ in self.arrivals[1:]]  # The first step touches all memory
        return (len(times) - 1) / (times[-1] - times[0])


def train(options, strangers, seconds):
    """Returns the job after its end. `seconds`: expected time of its steps."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(options, folder)
        for rank in range(RANKS - 1):
            job.start(rank)
        job.await_(lambda: job.place in listening(job.processes), "nobody listens")
        half = options.connections // 2
        if strangers:
            strangers.come_often([job.place], half, 0)
        job.start(RANKS - 1)
        job.await_(lambda: len(job.arrivals) > 1, "no step")
        places = listening(job.processes)
        if strangers and places:
            coming = threading.Thread(target=strangers.come_often, args=(places, half, 0.8 * seconds))
            coming.start()
        for process in job.processes:
            require(process.wait(PATIENCE + seconds) == 0, f"a rank ended with {process.returncode}: {job.messages()}")
        if strangers and places:
            coming.join()
        job.lines.close()
        require(len(job.arrivals) == options.steps, f"{len(job.arrivals)} steps: {job.messages()}")
        return job, places


def main():
    parser = campaign_parser(__doc__)
    parser.add_argument("--connections", type=int, default=10000)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.connections //= options.rounds
    chance = random.Random(options.seed)
    alone, beside, shares = [], [], []
    strangers = Strangers(chance)
    with own_text(options):
        for _ in range(options.rounds):
            clean, _ = train(options, None, 0)
            seconds = clean.arrivals[-1][0] - clean.arrivals[0][0]
            disturbed, places = train(options, strangers, seconds)
            equal = [hash_ for _, hash_ in clean.arrivals] == [hash_ for _, hash_ in disturbed.arrivals]
            require(equal, "parameters differ from those of the job without strangers")
            alone.append(clean.steps_per_second())
            beside.append(disturbed.steps_per_second())
            shares.append(strangers.cpu / seconds)
    print(f"{strangers.count} strangers, half of them before the last rank had come: " +
          ", ".join(f"{count} {what}" for what, count in strangers.answers.most_common()))
    print(f"ports that listened while the job trained: {len(places)}")
    print(f"a step beside strangers took {statistics.median(a / b for a, b in zip(alone, beside)):.3f} times as long "
          f"(rounds: {', '.join(f'{a / b:.3f}' for a, b in zip(alone, beside))}); they themselves took "
          f"{100 * statistics.median(shares):.1f} % of a core")
    if not failures:
        print(f"{len(beside) * options.steps} steps with the parameters of the job without strangers")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
