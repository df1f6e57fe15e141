#!/usr/bin/env python3
"""Trains over two hosts with a bad network, and checks the reports of lost hosts.

  benchmarks/network.py [--disturbed 100] [--faults 20] [--seed 1] [--program build/chimera]

gpt2-tiny on four ranks, two on each of two hosts: network namespaces at the ends of a simulated cable (bad_cable.py).
Needs root.

disturbed  Short runs, each with one disturbance from some step on: frames are lost (5 %), delayed (50 ms), limited to
           10 Mbit/s, duplicated, reordered, corrupted (a flipped bit or a missing end), or blocked for 2 s. Each run
           must exit with code 0 and the parameters of the undisturbed run after every step. Or connections are
           reset: then all ranks must report a lost connection and exit, and no step may be wrong.
faults     This number of each kind: a dead process, a dead host, a cut cable, a link in one direction only, a stopped
           host. All running ranks must exit, and one line must name the lost ranks, and no others. Measured: time
           from the fault to the last exit.

Exits with 1 if a condition fails, with 77 if this machine does not permit the test.
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bad_cable import BadCable
from faulted import RANKS, SHAPE, SKIPPED, campaign_parser, describe, failures, own_text, require, undisturbed

STEPS = 6
TROUBLES = {
    "frames lost": {"lost": 0.05},
    "delay": {"delay": 0.05},
    "10 Mbit/s": {"rate": 1e7},
    "frames repeated and reordered": {"repeated": 0.2, "reordered": 0.1},
    "frames spoilt": {"flipped": 0.02, "cut_off": 0.02},
    "nothing for 2 s": {"closed": [0, 1]},
    "connections reset": {"resets": 2},
}
SILENT = "silent for 2.5 s: it is down, stopped or cut off"
LONGEST_END = 8  # Seconds until all ranks have exited


class Job:
    """The ranks of a run, rank 0 first."""

    def __init__(self, options, cable, folder, steps):
        self.folder, self.metrics = folder, Path(folder, "metrics.jsonl")
        words = [options.program, "train", "--data", options.data, *SHAPE, "--steps", str(steps), "--metrics", self.metrics]
        self.ranks = [self.start(cable, words, rank) for rank in range(RANKS)]

    def start(self, cable, words, rank):
        place = {"CHIMERA_RANK": rank, "CHIMERA_WORLD_SIZE": RANKS, "CHIMERA_LOCAL_RANK": rank % 2, "CHIMERA_LOCAL_WORLD_SIZE": 2,
                 "MASTER_ADDR": cable.address(0), "MASTER_PORT": 29600, "CHIMERA_SECRET": "a word"}
        with open(self.said_by(rank), "w") as said:
            return subprocess.Popen([*cable.enter(rank // 2), *words], stdout=subprocess.DEVNULL, stderr=said,
                                    env=os.environ | {name: str(value) for name, value in place.items()})

    def said_by(self, rank):
        return Path(self.folder, f"said-{rank}")

    def steps(self):
        return self.metrics.read_text().count("\n") if self.metrics.exists() else 0

    def await_steps(self, count):
        end = time.monotonic() + 60
        while self.steps() < count and time.monotonic() < end and self.ranks[0].poll() is None:
            time.sleep(0.005)

    def codes(self, ranks, seconds):
        """Returns exit codes. Ranks that run longer are killed and have None."""
        end = time.monotonic() + seconds
        codes = []
        for rank in ranks:
            try:
                codes.append(self.ranks[rank].wait(max(0, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                codes.append(None)
        return codes

    def complaints(self, ranks):
        return [line for rank in ranks for line in self.said_by(rank).read_text().splitlines() if line.startswith("chimera:")]

    def is_undisturbed(self, clean, whole):
        found = {line["step"]: line["parameters_hash"] for line in map(json.loads, self.metrics.read_text().splitlines())}
        return found == clean if whole else all(clean[step] == value for step, value in found.items())

    def kill(self):
        for rank in self.ranks:
            rank.kill()
            rank.wait()


def disturbed(options, cable, chance, clean, name):
    """Returns None, or a description of the error."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(options, cable, folder, STEPS)
        try:
            job.await_steps(chance.randrange(1, STEPS - 1))
            cable.disturb(**TROUBLES[name])
            if name == "nothing for 2 s":
                time.sleep(2)
                cable.disturb()
            codes = job.codes(range(RANKS), 120)
            said = job.complaints(range(RANKS))
            if name == "connections reset":
                lost = all(code not in (0, None) for code in codes) and any("connection" in line.lower() for line in said)
                return None if lost and job.is_undisturbed(clean, whole=False) else f"exit codes {codes}: {said}"
            return None if codes == [0] * RANKS and job.is_undisturbed(clean, whole=True) else f"exit codes {codes}: {said}"
        finally:
            job.kill()
            cable.disturb()


def disturbed_campaign(options, cable, chance):
    with tempfile.TemporaryDirectory() as folder:
        clean = undisturbed(options, folder, STEPS)
    right = dict.fromkeys(TROUBLES, 0)
    for number in range(options.disturbed):
        name = list(TROUBLES)[number % len(TROUBLES)]
        wrong = disturbed(options, cable, chance, clean, name)
        require(wrong is None, f"{name}: {wrong}")
        right[name] += wrong is None
    print(f"disturbed: {sum(right.values())} of {options.disturbed} as they must be: " +
          ", ".join(f"{count} x {name}" for name, count in right.items()), flush=True)


def far_host(said, host):
    """Returns whether exactly one line reports the lost host, with its name and ranks."""
    name = f"host h{host} " + ("(ranks 2, 3)" if host == 1 else "(rank 0)")
    return [line for line in said if "silent" in line] == [f"chimera: {name} {SILENT}"]


def fault(options, cable, chance, kind):
    """Returns the seconds until the end, and None or a description of the error."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(options, cable, folder, 1_000_000)
        try:
            job.await_steps(2)
            time.sleep(chance.uniform(0, 1))
            start, near, far = time.monotonic(), [0, 1], [2, 3]
            if kind == "dead process":
                dead = chance.randrange(RANKS)
                job.ranks[dead].kill()
                left = [rank for rank in range(RANKS) if rank != dead]
                codes = job.codes(left, LONGEST_END)
                gone = f"chimera: rank {dead} on host h{dead // 2} is gone: killed, or ended without an error report"
                right = job.complaints(left) == [gone]
            elif kind in ("dead host", "stopped host"):
                if kind == "dead host":
                    cable.disturb(closed=[1])  # None of its packets arrive from now on
                for rank in far:
                    job.ranks[rank].send_signal(signal.SIGKILL if kind == "dead host" else signal.SIGSTOP)
                codes = job.codes(near, LONGEST_END)
                right = far_host(job.complaints(near), 1)
            else:
                closed = [0, 1] if kind == "cut cable" else [chance.randrange(2)]
                cable.disturb(closed=closed)
                codes = job.codes(range(RANKS), LONGEST_END)
                right = all(far_host(job.complaints(own), 1 - host) for host, own in enumerate((near, far)) if 1 - host in closed)
            seconds = time.monotonic() - start
            if None in codes or 0 in codes or not right:
                return seconds, f"exit codes {codes}: {job.complaints(range(RANKS))}"
            return seconds, None
        finally:
            job.kill()
            cable.disturb()


def fault_campaign(options, cable, chance):
    for kind in ("dead process", "dead host", "cut cable", "link of one way", "stopped host"):
        seconds, right = [], 0
        for _ in range(options.faults):
            took, wrong = fault(options, cable, chance, kind)
            require(wrong is None, f"{kind}: {wrong}")
            seconds.append(took)
            right += wrong is None
        describe(f"{kind}: {right} of {options.faults} named right, all ended", seconds)


def main():
    parser = campaign_parser(__doc__)
    parser.add_argument("--disturbed", type=int, default=100)
    parser.add_argument("--faults", type=int, default=20)
    options = parser.parse_args()
    if os.geteuid() != 0 or not os.access("/dev/net/tun", os.W_OK) or shutil.which("ip") is None:
        print("skipped: needs what root may do, /dev/net/tun and iproute2", file=sys.stderr)
        return SKIPPED
    with own_text(options), BadCable() as cable:
        if options.disturbed > 0:
            disturbed_campaign(options, cable, random.Random(f"{options.seed} disturbed"))
        if options.faults > 0:
            fault_campaign(options, cable, random.Random(f"{options.seed} faults"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
