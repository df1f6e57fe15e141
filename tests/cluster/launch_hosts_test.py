"""`chimera launch --hosts` starts the ranks of a training run over ssh and stops them together.

Usage: launch_hosts_test.py CHIMERA [CLASS.TEST...]

Most tests replace ssh by a script that runs the command on this machine, without a terminal and in its own session.
"""

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import unittest

from cluster import CHIMERA, LOOPBACK, PATIENCE, Hosts, TrainingTest, has, namespaces_work, needs, takes_long

FAKE_SSH = """#!/bin/sh
host=$1
# This one is dead from the first checkpoint on: it refuses connections, or lets them hang.
if [ "$host" = "$FRAIL" ] && [ -d run/step-00000001 ]; then
  [ -z "$HANGS" ] || { : > "$0.asked"; exec sleep 1000; }
  host=gone
fi
[ "$host" != gone ] || { echo 'ssh: connect to host gone port 22: No route to host' >&2; exit 255; }
exec setsid --wait sh -c "$2"
"""


class LaunchedTest(TrainingTest):
    def setUp(self):
        super().setUp()
        self.ssh = self.folder / "ssh"
        self.ssh.write_text(FAKE_SSH)
        self.ssh.chmod(0o700)

    def launch(self, hosts="a,b", *flags, stages=2):
        return [CHIMERA, "launch", "--hosts", hosts, "--ssh", str(self.ssh), "--master", LOOPBACK, *flags, "--",
                *self.training(stages)[1:]]

    def start_job(self, words, **variables):
        process = subprocess.Popen(words, env=self.environment | variables, cwd=self.folder, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def said_by(self, words, code, **variables):
        """Returns the messages of a job, which must end with this exit code and leave no ranks."""
        return self.last_words(self.start_job(words, **variables), code)

    def last_words(self, job, code):
        _, said = job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, code, said)
        self.await_none()
        return said

    def ranks(self):
        """Returns the running rank processes of this test."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes()
                is_rank = b"CHIMERA_RANK=" in (path.parent / "environ").read_bytes()
            except OSError:
                continue  # The process has exited in the meantime
            if str(self.metrics).encode() in words and is_rank:
                found.append(int(path.parent.name))
        return found

    def children(self, process):
        return [int(child) for child in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]

    def await_none(self):
        self.wait_until(lambda: not self.ranks(), "ranks are left")


class LaunchTest(LaunchedTest):
    def test_trains_as_the_local_run(self):
        self.assert_trains_as_the_local_run(self.launch())
        self.assert_trains_as_the_local_run(self.launch("a:1,b:3", stages=4), stages=4)
        self.shares_layers = True
        self.assert_trains_as_the_local_run(self.launch("a:2,b:2", stages=4), stages=4)

    def test_one_machine_needs_no_ssh(self):
        words = [CHIMERA, "launch", "--nproc", "2", "--", *self.training()[1:]]
        self.assert_trains_as_the_local_run(words)

    def test_variables_are_passed_on(self):
        self.run_words(self.launch("a,b", "--variable", "NAME_OF_OURS=7", "--dry-run"))
        # The variable is forwarded by default
        faulty = self.run_words(self.launch(), code=1, CHIMERA_FAULT="throw@forward:1:2")
        self.assertIn("fault injected", faulty.stderr)

    def test_1024_hosts_of_4_ranks(self):
        hosts = ",".join(f"h{number}:4" for number in range(1024))
        result = self.run_words([CHIMERA, "launch", "--hosts", hosts, "--dry-run", "--", "train", "--data", "book.txt",
                                 "--stages", "4", "--data-parallel", "1024"])
        self.assertIn("# ranks 68 .. 71 on h17 of 4096: train", result.stdout.splitlines()[17])

    def test_a_dry_run_prints_what_would_be_started_and_no_secret(self):
        result = self.run_words(self.launch("a,b:3", "--dry-run", stages=4))
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        words = shlex.split(lines[0], comments=True)
        self.assertEqual(words[:2], [str(self.ssh), "a"])
        self.assertIn("launch --agent", words[2])
        self.assertIn("# ranks 1 .. 3 on b of 4: train", lines[1])
        self.assertNotIn("SECRET", result.stdout)
        self.assertEqual(self.ranks(), [])

    def test_the_first_rank_to_fail_speaks_first(self):
        said = self.said_by(self.launch("a,b", "--nproc", "2", stages=4), 1, CHIMERA_FAULT="throw@forward:3:2")
        complaints = [line for line in said.splitlines() if line.startswith("chimera:")]
        self.assertRegex(complaints[0], r"^chimera: rank 3 failed at .*: fault injected at forward, on b$")
        self.assertEqual(len(complaints), 1, said)

    def test_a_killed_rank_is_named_with_its_host(self):
        said = self.said_by(self.launch(), 1, CHIMERA_FAULT="kill@forward:1:2")
        self.assertIn("chimera: rank 1 was killed by signal 9 (Killed), on b\n", said)

    def test_a_host_that_cannot_be_reached_ends_the_job(self):
        said = self.said_by(self.launch("a,gone"), 1)
        self.assertIn("No route to host\n", said)
        self.assertIn("chimera: rank 1 failed: host gone is not reached\n", said)

    def test_wrong_usage_is_said_once_and_has_its_exit_code(self):
        said = self.said_by([*self.launch(), "--stages", "4"], 2)
        self.assertIn("has started 2 processes, but this run has 4 ranks", said)
        said = self.said_by([*self.launch(), "--stages", "4", "--recover", "reroute"], 2)
        self.assertIn("chimera: `chimera launch` has started 2 processes, but this run has 4 ranks", said)

    def test_ranks_that_share_layers_are_not_split_over_hosts(self):
        self.shares_layers = True
        said = self.said_by(self.launch("a:1,b:3", stages=4), 2)
        complaints = [line for line in said.splitlines() if line.startswith("chimera: --tensor-parallel 2: ranks")]
        self.assertRegex(complaints[0], "must be on one host, .*; start a multiple of 2 consecutive ranks on each host$")
        self.assertFalse(self.metrics.exists())

    def test_nothing_outlives_the_launcher(self):
        for signal_number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)):
            job = self.start_job([*self.launch(), "--steps", "100000"])
            self.await_steps()
            self.assertEqual(len(self.ranks()), 2)
            job.send_signal(signal_number)
            self.last_words(job, code)
            self.metrics.unlink()

    def test_no_list_of_processes_shows_the_secret(self):
        job = self.start_job([*self.launch(), "--steps", "100000"])
        self.await_steps()
        secrets = set()
        for rank in self.ranks():
            environment = pathlib.Path(f"/proc/{rank}/environ").read_text().split("\0")
            secrets |= {word for name, _, word in (each.partition("=") for each in environment) if name == "CHIMERA_SECRET"}
        self.assertEqual([len(secret) for secret in secrets], [64], "one for all ranks")
        shown = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True).stdout
        self.assertIn(str(self.metrics), shown)
        self.assertNotIn(secrets.pop(), shown)
        job.kill()
        self.await_none()

    def test_a_connection_that_breaks_ends_the_job(self):
        job = self.start_job([*self.launch(), "--steps", "100000"])
        self.await_steps()
        relay = self.children(job.pid)[1]  # For the rank on host b
        os.kill(self.children(relay)[0], signal.SIGKILL)  # Its ssh
        said = self.last_words(job, 1)
        self.assertIn("chimera: rank 1 failed: the connection to host b has ended\n", said)

    def test_a_signal_has_the_run_save(self):
        checkpoints = self.folder / "run"
        job = self.start_job([*self.launch(), "--steps", "100000", "--checkpoint", str(checkpoints)])
        self.await_steps()
        job.send_signal(signal.SIGTERM)
        said = self.last_words(job, 75)
        self.assertIn("ended by a signal", said)

    def profile(self, hosts, *flags, code=0):
        return self.run_words([CHIMERA, "profile", "--hosts", hosts, "--ssh", str(self.ssh), "--master", LOOPBACK, "--model",
                               "gpt2-tiny", "--micro-batch-sizes", "1", "--sequence", "16", "--seconds", "1", *flags], code)

    def test_profiles_hosts_and_the_links_between_them(self):
        profile = self.folder / "cluster.json"
        result = self.profile("a,b", "--output", str(profile), "--name", "ours")
        self.assertRegex(result.stdout, r"^ours: 6 layers; between nodes:\n")
        machine = json.loads(profile.read_text())
        self.assertEqual({source.split(":")[0] for source in machine["sources"]}, {"chimera profile", "chimera profile --between"})
        for kind in ("point_to_point", "all_reduce"):
            self.assertNotEqual(machine[kind]["between_nodes"], machine[kind]["within_node"])
        self.assertEqual(machine["workers_per_node"], machine["cores"])
        self.assertGreater(machine["contention"]["node_transfers"], 0)

    def test_profiles_hosts_with_the_ranks_that_they_will_have(self):
        result = self.profile("a:3,b:3", "--format", "json")
        self.assertEqual(json.loads(result.stdout)["workers_per_node"], 3)

    def test_a_host_that_does_not_measure_itself_is_named(self):
        profile = self.folder / "cluster.json"
        result = self.profile("a,gone", "--output", str(profile), code=1)
        self.assertIn("chimera: host gone does not measure itself: ssh: connect to host gone port 22: No route to host\n",
                      result.stderr)
        self.assertFalse(profile.exists())
        for words, complaint in ((["a"], "give two hosts or more"), (["a:2,b"], "give every host the same number of ranks"),
                                 (["a,b", "--between", "x"], "give one of them")):
            self.assertIn(complaint, self.profile(*words, code=2).stderr)

    def test_refuses_what_makes_no_job(self):
        for words, complaint in ((["--hosts", "a:0", "--", "train"], "has no number of ranks"),
                                 (["--hosts", "a"], "expected `--` and the command"),
                                 (["--hosts", "a", "--", "generate"], "expected `--` and the command"),
                                 (["--variable", "NO_SUCH_NAME", "--", "train"], "it is not set here")):
            self.assertIn(complaint, self.run_words([CHIMERA, "launch", *words], code=2).stderr)


class RestartsTest(LaunchedTest):
    def launch_again(self, hosts="a,b", *flags, master=LOOPBACK):
        to_first = ["--master", master] if master else []
        return [CHIMERA, "launch", "--hosts", hosts, "--ssh", str(self.ssh), *to_first, "--max-restarts", "3", *flags, "--",
                *self.training()[1:], "--checkpoint", "run", "--save-every", "1"]

    def assert_goes_on_as_the_undisturbed_run(self, words, *also, **variables):
        """Rank 0 dies in step 1, which has the first checkpoint. Returns the output."""
        self.run_words([*self.training(), *also])
        expected = self.losses()
        said = self.said_by([*words, *also], 0, CHIMERA_FAULT="kill@after-rename:0:1", **variables)
        self.assertIn("rank 0 was killed by signal 9 (Killed)", said)
        self.assertIn("chimera: restart 1 of 3: continues from step 1 (run/step-00000001)\n", said)
        self.assertEqual(self.losses(), expected)
        return said

    def test_a_killed_rank_begins_again_on_its_host(self):
        said = self.assert_goes_on_as_the_undisturbed_run(self.launch_again())
        self.assertNotIn("does not answer", said)

    def test_a_spare_takes_the_place_of_the_first_host(self):
        words = self.launch_again("127.0.0.1,b", "--spare", "gone,127.0.0.2:1", master=None)
        said = self.assert_goes_on_as_the_undisturbed_run(words, FRAIL="127.0.0.1")
        self.assertIn("chimera: host 127.0.0.1 does not answer (ssh: connect to host gone port 22: No route to host); "
                      "127.0.0.2 takes its place\n", said)

    def test_fewer_ranks_go_on_with_fewer_groups(self):
        said = self.assert_goes_on_as_the_undisturbed_run(self.launch_again("a,b", "--nproc", "2"), "--data-parallel", "2",
                                                          FRAIL="b")
        self.assertIn("chimera: 2 of 4 ranks are left: continues with --stages 2 --data-parallel 1 --micro-batches 8\n", said)

    def test_fewer_ranks_go_on_with_fewer_stages(self):
        said = self.assert_goes_on_as_the_undisturbed_run(self.launch_again("a:3,b"), "--stages=4", FRAIL="b")
        self.assertIn("chimera: 3 of 4 ranks are left: continues with --stages 2 --data-parallel 1 --micro-batches 4\n", said)

    def test_ends_where_nothing_fits(self):
        said = self.said_by(self.launch_again(), 1, CHIMERA_FAULT="kill@after-rename:0:1", FRAIL="b")
        self.assertIn("chimera: not restarted: 1 of 2 ranks are left, and no layout of these ranks has the same mini-batch "
                      "(schedule chimera: --stages must be even, not 1", said)

    def test_a_signal_ends_what_waits_for_hosts(self):
        for number, code in ((signal.SIGTERM, 75), (signal.SIGINT, 130)):
            job = self.start_job(self.launch_again(), CHIMERA_FAULT="kill@after-rename:0:1", FRAIL="b", HANGS="1")
            asked = pathlib.Path(f"{self.ssh}.asked")
            self.wait_until(lambda: asked.exists(), "nobody is asked")
            job.send_signal(number)
            said = self.last_words(job, code)
            self.assertNotIn("not restarted", said)
            asked.unlink()
            shutil.rmtree(self.folder / "run")

    def test_wrong_usage_is_not_tried_again(self):
        said = self.said_by([*self.launch_again(), "--stages", "4"], 2)
        self.assertNotIn("restart", said)

    def test_refuses_what_cannot_go_on(self):
        for words, complaint in ((["--max-restarts", "1", "--", "train"], "give `train` --checkpoint FOLDER"),
                                 (["--max-restarts", "-1", "--", "train"], "--max-restarts"),
                                 (["--max-restarts", "1", "--", "train", "--recover", "twin"], "does not restart"),
                                 (["--spare", "c", "--", "train"], "give --hosts and --max-restarts too"),
                                 (["--hosts", "a", "--spare", "b,a", "--max-restarts", "1", "--", "train", "--checkpoint=x"],
                                  "--spare a: it is in --hosts"),
                                 (["--hosts", "a", "--spare", "b:0", "--max-restarts", "1", "--", "train", "--checkpoint=x"],
                                  "--spare: 'b:0' has no number of ranks")):
            self.assertIn(complaint, self.run_words([CHIMERA, "launch", *words], code=2).stderr)


class SshdHosts(Hosts):
    """Hosts with a real sshd each. Root logs in with a generated key."""

    def __init__(self, count, folder):
        super().__init__(count)
        self.folder = folder
        self.daemons = []

    def __enter__(self):
        super().__enter__()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        pathlib.Path("/run/sshd").mkdir(exist_ok=True)
        for index in range(len(self.names)):
            words = ["/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", str(self.folder / "host"), "-o", "StrictModes=no",
                     "-o", f"AuthorizedKeysFile={self.folder / 'user.pub'}", "-o", f"ListenAddress={self.address(index)}",
                     "-o", "PidFile=none", "-o", "PermitRootLogin=yes"]
            self.daemons.append(subprocess.Popen([*self.enter(index), *words], stderr=subprocess.DEVNULL))
        return self

    def ssh(self):
        return " ".join(["ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                         "-o", "LogLevel=ERROR", "-o", "ConnectionAttempts=10", "-F", "none", "-i", str(self.folder / "user")])

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        super().__exit__()


@needs("sshd, or the right to make network namespaces", has("sshd", "ssh", "ssh-keygen") and namespaces_work())
class SshTest(TrainingTest):
    def test_trains_over_ssh_as_the_local_run(self):
        with SshdHosts(2, self.folder) as hosts:
            words = [*hosts.enter(0), CHIMERA, "launch", "--hosts", f"{hosts.address(0)},{hosts.address(1)}", "--nproc", "2",
                     "--ssh", hosts.ssh(), "--", *self.training(stages=4)[1:]]
            self.assert_trains_as_the_local_run(words, stages=4)


    @takes_long
    def test_a_spare_goes_on_for_a_host_whose_cable_is_cut(self):
        with SshdHosts(3, self.folder) as hosts:
            listed = f"{hosts.address(0)},{hosts.address(1)}"
            words = [*hosts.enter(0), CHIMERA, "launch", "--hosts", listed, "--spare", hosts.address(2), "--nproc", "2",
                     "--max-restarts", "1", "--ssh", hosts.ssh(), "--", *self.training(stages=4)[1:], "--steps", "1000000",
                     "--checkpoint", str(self.folder / "run"), "--save-every", "1"]
            job = subprocess.Popen(words, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   text=True)
            self.addCleanup(job.kill)
            self.await_steps(5)
            hosts.ip("-n", hosts.switch, "link", "set", "port1", "down")
            said = self.read_until(job, "restart 1 of 1: continues from step")
            self.assertIn(f"host {hosts.address(1)} does not answer; {hosts.address(2)} takes its place\n", said)
            self.assert_goes_on(job)

    def test_ranks_return_when_their_cable_is_plugged_in_again(self):
        with SshdHosts(2, self.folder) as hosts:
            listed = f"{hosts.address(0)},{hosts.address(1)}"
            words = [*hosts.enter(0), CHIMERA, "launch", "--hosts", listed, "--nproc", "2", "--ssh", hosts.ssh(), "--",
                     *self.training(stages=4)[1:], "--steps", "1000000", "--checkpoint", str(self.folder / "run"), "--recover",
                     "twin", "--spare-seconds", "0"]
            job = subprocess.Popen(words, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.addCleanup(job.kill)
            self.await_steps(5)
            hosts.ip("-n", hosts.switch, "link", "set", "port1", "down")
            said = self.read_until(job, "on 2 of 4 ranks")
            self.assertIn(f"host {hosts.address(1)} silent for 2 s: it is down, stopped or cut off", said)
            hosts.ip("-n", hosts.switch, "link", "set", "port1", "up")
            while "returns in step" not in said or "ranks" in said.splitlines()[-1]:
                said += self.read_until(job, "returns in step")
            self.assert_goes_on(job)

    def assert_goes_on(self, job):
        """Requires that the job goes on, saves when it is asked to, and has left out no step."""
        self.await_steps(len(self.steps()) + 5)
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=PATIENCE)
        self.assertEqual(job.returncode, 75)
        self.assertEqual([step["step"] for step in self.steps()], list(range(1, len(self.steps()) + 1)))

    def read_until(self, job, text):
        """Returns the lines of the job up to the first with the text."""
        said = ""
        while text not in said:
            line = job.stderr.readline()
            self.assertTrue(line, said)
            said += line
        return said


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
