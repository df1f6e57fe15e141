#!/usr/bin/env python3
"""Measures the cost of failures and preemptions, and compares recovered runs with the undisturbed run.

  benchmarks/recovery.py [--kills 100] [--twins 100] [--reroutes 200] [--preemptions 100] [--faults 300] [--flips 1000]
      [--nans 1000] [--seed 1] [--program build/chimera]

Seven campaigns on gpt2-tiny, four ranks, `--reduction canonical`; 0 skips a campaign.

kills        One run with --max-restarts; random ranks get SIGKILL at random moments. Measured: time from the kill to
             the end of the second new step, because the first may have been almost done. Every step, including
             repeated ones, must have the parameters of the undisturbed run.
twins        The same with --recover twin: the other ranks continue. Measured: time from the kill to the end of the
             first step after recovery, and the number of repeated steps.
reroutes     Short runs with --recover reroute, of chimera, chimera-zb and 1f1b, in one and two groups. In each run one or
             two random ranks, never all holders of a stage, get SIGKILL at random moments, together or one after the
             other. Measured: as twins. Each run must end with the parameters of the undisturbed run after every step.
preemptions  SIGTERM, SIGUSR1 or SIGHUP to the launcher or to all processes at a random moment, then the same command
             again. Measured: time from the signal to the exit, which must have code 75.
faults       Short runs with --max-restarts, each with one fault (CHIMERA_FAULT) of a random kind at a random place of
             a random rank. Each must exit with code 0 and the parameters of the undisturbed run after every step,
             and `chimera diagnose` must name the rank.
flips        Short runs with --verify-messages, --on-different-copies repair and --recover twin, with four replicas of
             each stage. In each run a bit flips in a message, a weight or an optimizer moment, before or after an
             update. Each must report it, and exit with code 0 and the parameters of the undisturbed run.
nans         NaNs, one at a time, in an output or in a returned gradient: in rank threads with --non-finite skip
             (twenty per run) or abort, and in processes with rollback. Each must be detected in its step, rank,
             stage and micro-batch. Only those steps may skip the update, and all checkpoints must be finite.

Exits with 1 if a condition fails.
"""
import array
import collections
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faulted import (MICRO_BATCHES, RANKS, Run, campaign_parser, describe, failures, own_text, require, require_undisturbed, saving,
                     undisturbed)


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
            if not run.await_step_after(newest + 1):  # The next step may have been done already
                break
            seconds.append(time.monotonic() - start)
        require(len(seconds) == options.kills, f"kills: only {len(seconds)} were survived: {run.messages()[-500:]}")
        run.process.send_signal(signal.SIGTERM)
        require(run.end() == 75, "kills: the run did not save at its end")
        describe(f"kills: {len(seconds)}, from the kill to two new steps", seconds)
        require_undisturbed(run, "kills", folder)


def await_recovery(run, number):
    """Returns the step after recovery number `number` (from 1), None if the run has ended."""
    while run.process.poll() is None:
        steps = re.findall(r"; recovery \d+ of \d+: continues with step (\d+) after", run.messages())
        if len(steps) >= number:
            return int(steps[number - 1])
        time.sleep(0.001)
    return None


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
            first = await_recovery(run, kill + 1)
            if first is None or not run.await_step_after(first - 1):
                break
            seconds.append(time.monotonic() - start)
            lost += max(0, newest + 1 - first)
        messages = run.messages()
        require(len(seconds) == options.twins, f"twins: only {len(seconds)} were survived: {messages[-500:]}")
        require(lost == 0, f"twins: {lost} steps were lost")
        require(messages.count("; recovery ") == options.twins, f"twins: not all were recovered: {messages[-500:]}")
        run.process.send_signal(signal.SIGTERM)
        require(run.end() == 75, "twins: the run did not save at its end")
        describe(f"twins: {len(seconds)} kills, {lost} steps lost, from the kill to the first new step", seconds)
        victims = collections.Counter(re.findall(r"chimera: rank (\d+) was killed", messages))
        print("twins: kills of each rank: " + ", ".join(str(victims[str(rank)]) for rank in range(RANKS)), flush=True)
        within = [float(number) for number in re.findall(r"continues with step \d+ after ([\d.]+) s", messages)]
        describe("twins: from the death to the next step's beginning", within)
        require_undisturbed(run, "twins", folder)


FOUR_STAGES = ["--stages", "4", "--micro-batches", "8"]
TWO_GROUPS = ["--stages", "2", "--micro-batches", "4", "--data-parallel", "2"]
# Flags of a layout, and the holders of each stage
LAYOUTS = [(["--schedule", "chimera", *FOUR_STAGES], [{0, 3}, {1, 2}]),
           (["--schedule", "chimera-zb", *FOUR_STAGES], [{0, 3}, {1, 2}]),
           (["--schedule", "chimera", *TWO_GROUPS], [{0, 1, 2, 3}]),
           (["--schedule", "1f1b", *TWO_GROUPS], [{0, 1}, {2, 3}])]


def random_victims(chance, holders):
    """Returns one or two ranks that leave each stage a holder."""
    victims = chance.sample(range(RANKS), chance.choice([1, 2]))
    return victims if not any(stage <= set(victims) for stage in holders) else victims[:1]


def reroute_campaign(options, chance):
    steps = 80
    with tempfile.TemporaryDirectory() as folder:
        clean = undisturbed(options, folder, steps)
    seconds, kills, runs, equal, lost = [], 0, 0, 0, 0
    while kills < options.reroutes:
        layout, holders = chance.choice(LAYOUTS)
        victims = random_victims(chance, holders)[:options.reroutes - kills]
        moments = sorted(chance.randint(1, steps - 20) for _ in victims)
        if chance.random() < 0.3:
            moments = moments[:1] * len(moments)  # Together
        with tempfile.TemporaryDirectory() as folder:
            run = Run(options, folder, steps, saving(folder, "--recover", "reroute"), layout=layout)
            run.start()
            run.await_step_after(0)
            ranks = run.ranks()
            recoveries, before = 0, None
            for victim, moment in zip(victims, moments):
                if moment != before:
                    if before is not None:
                        finish_kill(run, recoveries, start, newest, seconds)
                    run.await_step_after(moment - 1)
                    time.sleep(chance.uniform(0, 0.05))
                    start, newest, before = time.monotonic(), run.newest(), moment
                    recoveries += 1
                os.kill(ranks[victim], signal.SIGKILL)
                kills += 1
            lost += finish_kill(run, recoveries, start, newest, seconds)
            code = run.end()
            run.close()
            is_equal = code == 0 and run.steps == clean and not run.contradictions
            require(is_equal, f"reroutes: {' '.join(layout)}, ranks {victims} killed in steps {moments}: exit code {code}, "
                    f"{len(run.steps)} steps: {run.messages()[-500:]}")
            runs, equal = runs + 1, equal + is_equal
    describe(f"reroutes: {kills} kills in {runs} runs, from the kill to the first new step", seconds)
    print(f"reroutes: {equal} of {runs} runs ended with the parameters of the undisturbed run after every step; "
          f"{lost} steps were lost", flush=True)


def finish_kill(run, recoveries, start, newest, seconds):
    """Waits for the first step after the recovery, and adds its time since the kill. Returns the number of lost steps."""
    first = await_recovery(run, recoveries)
    if first is None or not run.await_step_after(first - 1):
        return 0
    seconds.append(time.monotonic() - start)
    return max(0, newest + 1 - first)


def preemption_campaign(options, chance):
    with tempfile.TemporaryDirectory() as folder:
        run = Run(options, folder, 1_000_000, saving(folder, "--resume", "auto"))
        seconds = []
        for number in range(options.preemptions):
            run.start()
            if chance.random() < 0.9:
                run.await_step_after(run.newest())
            else:  # During start-up
                run.await_signals()
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
    # 8 micro-batches; a rank runs one stage of two replicas for each: 8 forwards per step
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
            run.close()
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
        # From the second step on, because ranks are replaced then; each rank receives 12 messages per step
        passage = chance.randint(13, 12 * steps) if point == "message" else chance.randint(2, steps)
        fault = f"flip@{point}:{chance.randrange(RANKS)}:{passage}"
        with tempfile.TemporaryDirectory() as folder:
            run = Run(options, folder, steps, flags, fault)
            run.start()
            code = run.end()
            run.close()
            is_found = re.search("changed on the way|changed since the last|differed from the majority",
                                 run.messages()) is not None
            is_equal = code == 0 and run.steps == clean and not run.contradictions
            require(is_found and is_equal, f"flip {number}, {fault}: exit code {code}: {run.messages()[-500:]}")
            found, equal = found + is_found, equal + is_equal
    print(f"flips: {found} of {options.flips} found; {equal} runs ended with the parameters of the undisturbed run after "
          "every step", flush=True)


def ops_of_ranks(options):
    """Returns [rank]["forward" or "backward"]: (stage, micro-batch) of the rank's ops in a step, in order."""
    flags = ["schedule", "chimera", "--stages", str(RANKS), "--micro-batches", str(MICRO_BATCHES), "--format", "json"]
    schedule = json.loads(subprocess.run([options.program, *flags], check=True, stdout=subprocess.PIPE).stdout)
    return [{point: [(op["stage"], op["micro_batch"]) for op in ops if op["op"] == point[0].upper()]
             for point in ("forward", "backward")} for ops in schedule["workers"]]


def random_nan(chance, ops, step):
    """Returns a NaN for CHIMERA_FAULT in the step, and the expected report."""
    rank, point = chance.randrange(RANKS), chance.choice(["forward", "backward"])
    places = ops[rank][point]
    index = chance.choice([index for index, (stage, _) in enumerate(places) if point == "forward" or stage > 0])
    stage, micro_batch = places[index]
    if point == "backward":
        where = f"the gradient that stage {stage} passes back for micro-batch {micro_batch}"
    elif stage == RANKS - 1:
        where = f"the loss of micro-batch {micro_batch} (stage {stage})"
    else:
        where = f"the output of stage {stage} for micro-batch {micro_batch}"
    return f"nan@{point}:{rank}:{(step - 1) * len(places) + index + 1}", f"{where} is not finite in step {step};", rank


def values_are_finite(file):
    with open(file, "rb") as opened:
        opened.seek(8 + int.from_bytes(opened.read(8), "little"))
        return math.isfinite(sum(array.array("f", opened.read())))


def nan_run(options, clean, faults, steps, folder, policy):
    """Trains with these NaNs. Returns None, or a description of the error."""
    layout = ["--max-restarts", "1"] if policy == "rollback" else ["--transport", "threads"]
    run = Run(options, folder, steps, saving(folder, "--non-finite", policy, *layout),
              ",".join(words for words, _, _ in faults))
    run.start()
    code = run.end()
    run.close()
    said = run.messages()
    if code != (1 if policy == "abort" else 0):
        return f"exit code {code}: {said[-300:]}"
    for _, what, rank in faults:
        speaker = f"rank {rank}: {what}" if policy == "skip" else f"{what} try"
        if said.count(what) != 1 or speaker not in said or (policy != "skip" and f"rank {rank} failed at" not in said):
            return f"not said once: {speaker}: {said[-300:]}"
    if policy == "rollback" and run.steps != clean:
        return "parameters differ from those of the undisturbed run"
    if policy == "skip":
        hashes = [run.steps[step] for step in range(1, steps + 1)]
        without = {step for step, (one, next_) in enumerate(zip(hashes, hashes[1:]), 2) if one == next_}
        if without != {int(what.rsplit(" ", 1)[1].rstrip(";")) for _, what, _ in faults}:
            return f"steps {sorted(without)} made no update"
    spoiled = [file for file in Path(folder, "run").glob("step-*/*.safetensors") if not values_are_finite(file)]
    return f"{spoiled[0]} has values that are not finite" if spoiled else None


def nan_campaign(options, chance):
    ops, steps, many = ops_of_ranks(options), 60, 20
    with tempfile.TemporaryDirectory() as folder:
        clean = undisturbed(options, folder, steps)
    found, left = dict.fromkeys(["skip", "abort", "rollback"], 0), options.nans
    while left > 0:
        policy = chance.choice(["skip", "abort", "rollback"])
        count = min(left, many) if policy == "skip" else 1
        places = sorted(chance.sample(range(2, steps), count))
        faults = [random_nan(chance, ops, step) for step in places]
        with tempfile.TemporaryDirectory() as folder:
            wrong = nan_run(options, clean, faults, steps, folder, policy)
        require(wrong is None, f"nans, --non-finite {policy}, {faults[0][0]}: {wrong}")
        found[policy] += count * (wrong is None)
        left -= count
    print(f"nans: {sum(found.values())} of {options.nans} found in their step, where they were made: " +
          ", ".join(f"{count} with {policy}" for policy, count in found.items()), flush=True)


def main():
    parser = campaign_parser(__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--twins", type=int, default=100)
    parser.add_argument("--reroutes", type=int, default=200)
    parser.add_argument("--preemptions", type=int, default=100)
    parser.add_argument("--faults", type=int, default=300)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--nans", type=int, default=1000)
    options = parser.parse_args()
    campaigns = {kill_campaign: options.kills, twin_campaign: options.twins, reroute_campaign: options.reroutes,
                 preemption_campaign: options.preemptions, fault_campaign: options.faults, flip_campaign: options.flips,
                 nan_campaign: options.nans}
    with own_text(options):
        for campaign, count in campaigns.items():
            if count > 0:
                campaign(options, random.Random(f"{options.seed} {campaign.__name__}"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
