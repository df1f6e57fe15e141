"""Training under a real SLURM of two nodes.

Ranks give the results of the local run. Jobs of `chimera plan --sbatch` save and are requeued. Failures are reported
and end the job on all nodes.

Usage: slurm_test.py CHIMERA [CLASS.TEST...]
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

from cluster import CHIMERA, LOOPBACK, PATIENCE, TrainingTest, free_port, has, namespaces_work, needs
from slurm import Slurm

HAS_SLURM = has("slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "munged")
MACHINE = pathlib.Path(__file__).parents[2] / "machines" / "p100-aries.json"


class SlurmTest(TrainingTest):
    def start_slurm(self, own_hosts=False):
        self.slurm = Slurm(self.folder, own_hosts)
        self.addCleanup(self.slurm.stop)
        self.slurm.start_all()

    def plan(self):
        """Writes a job for two nodes of two ranks. Returns the script."""
        machine = self.folder / "machine.json"
        machine.write_text(json.dumps(json.loads(MACHINE.read_text()) | {"cores": 8}))  # A plan for CPUs
        return self.job("--model", "gpt2-tiny", "--workers", "4", "--mini-batch", "8", "--memory", "2", "--machine",
                        str(machine), "--sequence", "32", "--stages", "4", "--schedules", "chimera", "--ranks-per-node", "2")

    def job(self, *flags):
        """Writes the job of a plan. Returns the script."""
        script = self.folder / "job.sh"
        self.run_words([CHIMERA, "plan", *flags, "--sbatch", str(script)])
        return script

    def lines(self):
        """Returns the metrics of each step from complete lines, without times."""
        return [{name: step[name] for name in ("step", "loss", "grad_norm", "parameters_hash")} for step in self.steps()]

    def own_files(self):
        """Returns the file of each rank for errors, as srun takes it: srun loses lines while it cancels a step."""
        return f"{self.folder}/rank-%t"

    def complaints(self):
        return "".join(file.read_text() for file in sorted(self.folder.glob("rank-*")))

    def await_steps(self, count=3):
        self.slurm.wait_for(f"{count} steps", lambda: len(self.lines()) >= count)


@needs("SLURM", HAS_SLURM)
class SrunTest(SlurmTest):
    def test_trains_as_the_local_run(self):
        self.start_slurm()
        variables = {"SLURM_CONF": self.slurm.configuration}
        self.assert_trains_as_the_local_run(["srun", "-n", "2", *self.training()], **variables)
        variables |= {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port()),  # The nodes' names have no addresses
                      "CHIMERA_SECRET": "a word"}
        for self.shares_layers in (False, True):
            words = ["srun", "-N", "2", "-n", "4", "--ntasks-per-node=2", "--distribution=block", *self.training(stages=4)]
            self.assert_trains_as_the_local_run(words, stages=4, **variables)
        in_turns = [*words[:6], "--distribution=cyclic", "--kill-on-bad-exit=1", "--error", self.own_files(), *words[7:]]
        self.assertNotEqual(self.run_words(in_turns, code=None, **variables).returncode, 0)
        self.assertIn("share layers and must be on one host, but SLURM gives rank", self.complaints())


class JobScriptTest(SlurmTest):
    """Runs the script with replacements for SLURM's commands."""

    def run_job(self, script=None, code=0, **commands):
        tools = self.folder / "bin"
        tools.mkdir()
        for name, lines in commands.items():
            (tools / name).write_text(f"#!/bin/sh\n{lines}\n")
            (tools / name).chmod(0o700)
        path = f"{tools}:{self.environment['PATH']}"
        return self.run_words(["bash", str(script or self.plan()), "--steps", "1"], code, PATH=path, HERE=str(self.folder),
                              SLURM_JOB_ID="7", CHIMERA=CHIMERA)

    REQUEUE = 'echo "$@" > "$HERE/scontrol"'

    def test_a_run_that_ends_before_the_script_looks_is_queued_again(self):
        srun = 'trap "exit 75" USR1; echo $$ > "$HERE/srun"; kill -USR1 $PPID; while :; do sleep 0.02; done'
        scancel = 'read -r srun < "$HERE/srun"; kill -USR1 "$srun"; while kill -0 "$srun" 2>/dev/null; do sleep 0.02; done'
        self.run_job(code=75, srun=srun, scancel=scancel, scontrol=self.REQUEUE)
        self.assertEqual((self.folder / "scontrol").read_text(), "requeue 7\n")

    def test_a_job_for_gpus_says_so_and_its_dry_run_works_without_them(self):
        script = self.job("--model", "llama-3-8b", "--workers", "64", "--mini-batch", "128", "--machine", "h100-80gb",
                          "--schedules", "1f1b", "--stages", "8", "--partition", "even", "--tensor-parallel", "1")
        text = script.read_text()
        self.assertIn("#SBATCH --nodes=8\n#SBATCH --ntasks=64\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n", text)
        self.assertIn("\n# not given, so by default: --sequence 8192, --dtype bfloat16\n", text)
        self.assertIn("\n# assumed: ", text)
        self.run_job(script, srun='shift; exec "$@" --dry-run --format json > "$HERE/forecast"')
        forecast = json.loads((self.folder / "forecast").read_text())
        self.assertEqual((len(forecast["ranks"]), forecast["sequence"], forecast["fits"]), (64, 8192, True))
        self.assertIn("gpu", forecast)

    def test_another_end_is_the_jobs_own(self):
        self.run_job(code=3, srun="exit 3", scancel="exit 1", scontrol=self.REQUEUE)
        self.assertFalse((self.folder / "scontrol").exists())


@needs("SLURM", HAS_SLURM)
class JobTest(SlurmTest):
    STEPS = 100
    ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL")

    def submit(self, script, *flags, **variables):
        log = self.folder / "log"
        # The nodes' names have no addresses.
        server = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port()), "CHIMERA": CHIMERA,
                  "SLURM_CONF": self.slurm.configuration, "SLURM_STDERRMODE": self.own_files(), "SLURM_OPEN_MODE": "append"}
        result = self.run_words(["sbatch", "--parsable", f"--output={log}", str(script), *flags], **server, **variables)
        self.log = log
        return result.stdout.strip()

    def state(self, job):
        shown = self.slurm.ask("scontrol", "show", "job", job, "--oneliner")
        return {name: re.search(rf"\b{name}=(\S+)", shown)[1] for name in ("JobState", "Restarts", "ExitCode")}

    def await_end(self, job):
        self.slurm.wait_for("the end of the job", lambda: self.state(job)["JobState"] in self.ENDS)
        return self.state(job)

    def local_lines(self, script, *flags):
        """Returns the metrics of the same run on this machine."""
        line = next(line for line in script.read_text().splitlines() if line.startswith("srun "))
        words = shlex.split(line.partition(" train ")[2].rstrip("\\"))
        self.run_words([CHIMERA, "train", *words, *flags])
        lines = self.lines()
        self.metrics.unlink()
        return lines

    def test_saves_when_its_time_is_over_and_goes_on_when_queued_again(self):
        script = self.plan()
        flags = ["--data", str(self.text), "--steps", str(self.STEPS), "--reduction", "canonical", "--metrics",
                 str(self.metrics)]
        expected = self.local_lines(script, *flags)
        self.assertEqual(len(expected), self.STEPS)
        self.start_slurm()
        job = self.submit(script, *flags, "--checkpoint", str(self.folder / "run"), "--resume", "auto",
                          CHIMERA_FAULT="slow@step")  # Long enough to receive the signal before its end
        self.await_steps()
        self.slurm.ask("scancel", "--batch", "--signal=USR1", job)  # As SLURM does shortly before the time limit
        end = self.await_end(job)
        said = self.log.read_text() + self.complaints()
        self.assertEqual(end, {"JobState": "COMPLETED", "Restarts": "1", "ExitCode": "0:0"}, said)
        saved = re.search(r"chimera: ended by a signal; step (\d+) is saved", said)
        self.assertTrue(saved, said)
        self.assertLess(int(saved[1]), self.STEPS)
        self.assertIn(f"continues from {self.folder}/run/step-{int(saved[1]):08}\n", said)
        self.assertNotIn("without a secret", said)
        self.assertEqual(self.lines(), expected)


@needs("SLURM, or the right to make network namespaces", HAS_SLURM and namespaces_work())
class FaultsTest(SlurmTest):
    """Four ranks on two hosts, configured only by `srun`."""

    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_job)  # After SLURM has ended, because srun ends with its hosts
        self.job = None
        self.start_slurm(own_hosts=True)
        words = self.slurm.words("srun", "-N", "2", "-n", "4", "--ntasks-per-node=2", "--kill-on-bad-exit=1",
                                 "--error", self.own_files(), *self.training(stages=4), "--steps", "1000000")
        environment = self.slurm.environment | {"CHIMERA_SECRET": "a word"}
        self.log = self.folder / "log"
        with self.log.open("w") as log:
            self.job = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        self.await_steps()

    def end_job(self):
        if self.job:
            self.job.wait(PATIENCE)

    def process_of(self, rank):
        ranks = self.slurm.processes(rank // 2, "chimera")
        return [process for process, variables in ranks.items() if f"SLURM_PROCID={rank}" in variables]

    def left(self, *names):
        return [process for node in range(2) for process in self.slurm.processes(node, *names)]

    def await_ranks(self):
        self.slurm.wait_for("the end of all ranks", lambda: not self.left("chimera"))

    def cancel(self):
        self.slurm.ask("scancel", self.slurm.ask("squeue", "-h", "-o", "%A").strip())

    def assert_ends(self):
        """Requires that all ranks exit soon, then srun with its exit code, then the step's daemons. Returns the output.
        """
        self.await_ranks()
        self.assertNotEqual(self.job.wait(PATIENCE), 0)
        self.slurm.wait_for("the end of the step", lambda: not self.left("chimera", "slurmstepd"))
        return self.log.read_text()

    def test_a_killed_rank(self):
        self.slurm.kill(1, "KILL", self.process_of(3))
        self.assertIn("srun: error: n1: task 3: Killed\n", self.assert_ends())

    def test_a_stopped_rank(self):
        self.slurm.kill(0, "STOP", self.process_of(1))
        self.assert_ends()
        self.assertEqual([line for line in self.complaints().splitlines() if line.startswith("chimera:")],
                         ["chimera: rank 1 on host n0 silent for 2.5 s: stopped"])

    def test_a_canceled_job(self):
        self.cancel()
        self.assert_ends()
        self.assertIn("CANCELLED", self.complaints())

    def test_a_killed_daemon_of_a_step(self):
        """srun continues to wait for the daemon until the job is canceled."""
        self.slurm.kill(1, "KILL", self.slurm.processes(1, "slurmstepd"))
        self.await_ranks()
        self.cancel()
        self.assert_ends()
        self.assertIn("chimera: ranks 2, 3 on host n1 are gone: killed, or ended without an error report\n", self.complaints())


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
