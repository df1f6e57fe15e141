"""`chimera launch --hosts` with --recover: lost ranks and hosts, and hosts that return.

Usage: host_recovery_test.py CHIMERA [CLASS.TEST...]

Each host is a network namespace with processes of its own and two of the four ranks. A script that enters the host
replaces ssh.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from cluster import CHIMERA, PATIENCE, Hosts, OwnProcesses, TrainingTest, has, namespaces_work, needs

RANKS = 4
FAKE_SSH = """#!/bin/sh
[ -e "$0-$1" ] || { echo "ssh: connect to host $1 port 22: No route to host" >&2; exit 255; }
exec $(cat "$0-$1") env -i PATH="$PATH" CHIMERA_FAULT="$CHIMERA_FAULT" sh -c "$2"
"""


@needs("the right to make network namespaces", namespaces_work() and has("unshare"))
class HostRecoveryTest(TrainingTest):
    def setUp(self):
        super().setUp()
        # The launcher is in the switch's namespace, as on a machine of its own
        self.hosts = Hosts(2)
        self.addCleanup(self.hosts.__exit__)
        self.hosts.__enter__()
        self.output = self.folder / "output"
        self.processes = [None, None]
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(FAKE_SSH)
        self.ssh.chmod(0o700)
        for host in range(2):
            self.boot(host)

    def boot(self, host):
        self.processes[host] = OwnProcesses(self.hosts.enter(host))
        self.addCleanup(self.processes[host].end)
        words = self.folder / "words"
        words.write_text(" ".join(self.processes[host].enter))
        words.rename(f"{self.ssh}-{self.hosts.address(host)}")

    def crash(self, host):
        """Stops all processes of the host and cuts its cable, so that no connection is closed."""
        os.unlink(f"{self.ssh}-{self.hosts.address(host)}")
        self.cut(host, "down")
        subprocess.run([*self.processes[host].enter, "sh", "-c", "kill -s STOP -- -1"], check=True)

    def cut(self, host, state):
        self.hosts.ip("-n", self.hosts.switch, "link", "set", f"port{host}", state)

    def launch(self, *flags, faults="", steps=40):
        hosts = ",".join(f"{self.hosts.address(host)}:2" for host in range(2))
        words = [CHIMERA, "launch", "--hosts", hosts, "--ssh", str(self.ssh), "--", *self.words(steps), *flags]
        with self.output.open("w") as output:
            job = subprocess.Popen(words, env=self.environment | {"CHIMERA_FAULT": faults}, cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=output)
        self.addCleanup(job.kill)
        return job

    def words(self, steps):
        return [*self.training(stages=4)[1:], "--steps", str(steps), "--schedule", "chimera", "--log-every", "1000",
                "--learning-rate-shape", "constant", "--warmup", "0"]

    def await_workers(self, workers, job):
        end = time.monotonic() + PATIENCE
        while not self.steps() or self.steps()[-1].get("workers", RANKS) != workers:
            self.assertLess(time.monotonic(), end, "the number of workers does not change")
            self.assertIsNone(job.poll(), f"the job has ended: {self.output.read_text()}")
            time.sleep(0.02)

    def await_end(self, job, code):
        """Returns the output of the job. A file takes it, because processes that outlive the job may hold a pipe."""
        try:
            job.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            self.fail(f"the job does not end: {self.output.read_text()}")
        said = self.output.read_text()
        self.assertEqual(job.returncode, code, said)
        return said

    def assert_ends_as_the_undisturbed_run(self, job, code=0):
        """Returns the output of the job."""
        said = self.await_end(job, code)
        numbers = [(step["step"], step["loss"], step["parameters_hash"]) for step in self.steps()]
        self.metrics.unlink()
        self.run_words([CHIMERA, *self.words(len(numbers)), "--transport", "threads"])
        self.assertEqual(numbers, [(step["step"], step["loss"], step["parameters_hash"]) for step in self.steps()])
        return said

    def test_a_lost_rank_is_replaced_on_its_host(self):
        said = self.assert_ends_as_the_undisturbed_run(self.launch("--recover", "twin", faults="kill@backward:3:30"))
        self.assertRegex(said, r"chimera: rank 3 was killed by signal 9 \(Killed\) in step \d+; recovery 1 of 100: ")

    def test_the_other_ranks_do_the_work_of_the_rendezvous_rank(self):
        said = self.assert_ends_as_the_undisturbed_run(self.launch("--recover", "reroute", faults="kill@backward:0:30"))
        self.assertRegex(said, r"chimera: rank 0 was killed .* on 3 of 4 ranks")

    def test_a_host_that_dies_and_returns(self):
        job = self.launch("--recover", "twin", "--spare-seconds", "0.5", "--checkpoint", "run", steps=1_000_000)
        self.await_workers(RANKS, job)
        self.crash(1)
        self.await_workers(2, job)
        self.processes[1].end()
        self.cut(1, "up")
        self.boot(1)
        self.await_workers(RANKS, job)
        job.send_signal(signal.SIGTERM)
        said = self.assert_ends_as_the_undisturbed_run(job, code=75)
        self.assertRegex(said, r"host 10.77.0.2 silent for 2 s.* on 2 of 4 ranks")
        self.assertRegex(said, r"chimera: rank 2, 3 returns in step|chimera: rank [23] returns in step")

    def test_a_rank_without_a_copy_ends_the_job(self):
        job = self.launch("--recover", "reroute", "--checkpoint", "run", "--save-every", "1", faults="kill@step:1:5,kill@step:2:6")
        said = self.await_end(job, 1)
        self.assertIn("chimera: not recovered: no rank is left that holds stage 1", said)
        self.assertRegex(said, r"newest checkpoint: run/step-0000000\d\n  continue: chimera launch --hosts ")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
