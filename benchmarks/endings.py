#!/usr/bin/env python3
"""Measures how soon a job ends after a rank dies or stops, and checks that the rank is named.

  benchmarks/endings.py [--kills 300] [--stops 100] [--seed 1] [--program build/chimera]

Each case is a job: gpt2-tiny on four ranks, a save every two steps, no restarts.

kills   A random rank gets SIGKILL: in at least a third of the jobs during start-up, before the first step; in a third
        during steps and saves; in a third when the ranks exit after the last step. Measured: time until all
        processes of the job have exited.
stops   A random rank gets SIGSTOP during the steps. Measured: time until the launcher reports a hang, with the
        default --hang-seconds.

Each job must exit with code 1, or 0 if it was almost done, leave no process, and name the rank in the first line on
standard error. Exits with 1 if a job does not.
"""
import os
import random
import re
import signal
import sys
import tempfile
import time

from faulted import RANKS, Run, campaign_parser, describe, failures, own_text, percentile, require

STEPS = 8
START = 0.3  # Seconds until most ranks train on an idle machine
STEADY = 1.5  # Largest number of seconds of training before a kill


def await_ranks(run):
    """Returns the processes of all ranks, rank 0 first."""
    while run.process.poll() is None:
        ranks = run.ranks()
        if len(ranks) == RANKS:
            return ranks
        time.sleep(0.001)
    return []


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Job(Run):
    def __init__(self, options, folder, steps):
        super().__init__(options, folder, steps, ["--checkpoint", f"{folder}/run", "--save-every", "2"])
        self.start()
        self.processes = await_ranks(self)

    def strike(self, rank, number):
        """Sends the signal; returns its time, None if the rank had exited."""
        try:
            os.kill(self.processes[rank], number)
            return time.monotonic()
        except ProcessLookupError:
            return None

    def await_word(self, word):
        while word not in self.messages() and self.process.poll() is None:
            time.sleep(0.002)
        return time.monotonic()

    def require_end(self, rank, name, codes=(1,)):
        """Returns whether the rank was named, and when the last process exited."""
        code = self.end()
        while any(map(is_alive, self.processes)):
            time.sleep(0.001)
        gone = time.monotonic()
        self.close()
        said = [line for line in self.messages().splitlines() if line.startswith("chimera: rank")]
        require(code in codes, f"{name}: exit code {code}: {self.messages()[-300:]}")
        return code == 0 or (bool(said) and re.match(f"chimera: rank {rank} (was killed|has made no progress)", said[0]) is not None), gone


def kill(options, chance, phase):
    """Kills a rank in the phase. Returns the phase of its death, the seconds until the end, and whether it was named.
    """
    with tempfile.TemporaryDirectory() as folder:
        job = Job(options, folder, 1_000_000 if phase != "end" else STEPS)
        if phase == "start":
            time.sleep(chance.uniform(0, START))
        elif phase == "midst":
            job.await_step_after(0)
            time.sleep(chance.uniform(0, STEADY))
        else:
            job.await_step_after(STEPS - 1)
            time.sleep(chance.uniform(0, 0.02))
        rank = chance.randrange(RANKS)
        start = job.strike(rank, signal.SIGKILL)
        before_steps = job.newest() == 0
        named, gone = job.require_end(rank, f"killed in phase {phase}", (1,) if phase != "end" else (0, 1))
        if start is None:
            return None
        require(named, f"killed in phase {phase}: rank {rank} is not named first: {job.messages()[-300:]}")
        return "start" if before_steps else phase if phase == "end" else "midst", gone - start, named


def kill_campaign(options, chance):
    seconds, named = {"start": [], "midst": [], "end": []}, 0
    while min(map(len, seconds.values())) < options.kills // len(seconds):
        found = kill(options, chance, min(seconds, key=lambda phase: len(seconds[phase])))
        if found:
            seconds[found[0]].append(found[1])
            named += found[2]
    everything = sum(seconds.values(), [])
    for phase, values in seconds.items():
        describe(f"kills: {len(values)} in the {phase}, from the kill to the last process's end", values)
    print(f"kills: {named} of {len(everything)} named; p99 {percentile(everything, 0.99):.2f} s", flush=True)


def stop_campaign(options, chance):
    seconds, named = [], 0
    for _ in range(options.stops):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(options, folder, 1_000_000)
            job.await_step_after(1)
            time.sleep(chance.uniform(0, STEADY))
            rank = chance.randrange(RANKS)
            start = job.strike(rank, signal.SIGSTOP)
            seconds.append(job.await_word("has made no progress") - start)
            is_named, _ = job.require_end(rank, "stopped")
            require(is_named, f"stopped: rank {rank} is not named first: {job.messages()[-300:]}")
            named += is_named
    describe(f"stops: {len(seconds)}, {named} named, from the stop to the launcher's word", seconds)


def main():
    parser = campaign_parser(__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--stops", type=int, default=100)
    options = parser.parse_args()
    with own_text(options):
        if options.kills > 0:
            kill_campaign(options, random.Random(f"{options.seed} kills"))
        if options.stops > 0:
            stop_campaign(options, random.Random(f"{options.seed} stops"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
