"""Hosts that die, stop or lose their network: each is reported once, and all other ranks exit.

Usage: host_faults_test.py CHIMERA [CLASS.TEST...]

Hosts are network namespaces, each with two of the four ranks.
"""

import signal
import sys
import time
import unittest

from cluster import PATIENCE, Hosts, TrainingTest, namespaces_work, needs, takes_long

SILENCE = 2.5  # Seconds of silence after which a host counts as lost


@needs("the right to make network namespaces", namespaces_work())
class HostFaultsTest(TrainingTest):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts(2)
        self.hosts.__enter__()
        self.addCleanup(self.hosts.__exit__)
        server = {"MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": "29600", "CHIMERA_SECRET": "a word"}
        words = [*self.training(stages=4), "--steps", "1000000"]
        self.ranks = [self.start(words, rank, 4, self.host(rank // 2), CHIMERA_LOCAL_RANK=str(rank % 2),
                                 CHIMERA_LOCAL_WORLD_SIZE="2", **server) for rank in range(4)]
        self.await_steps(3)

    def host(self, index):
        """Returns the command that enters a host, with its network and its own host name."""
        return [*self.hosts.enter(index), "unshare", "--uts", "sh", "-c", f'hostname h{index} && exec "$@"', "sh"]

    def cut(self, host, state):
        """Sets the host's link at the bridge `down` or `up`, like a cable that is pulled or plugged in."""
        self.hosts.ip("-n", self.hosts.switch, "link", "set", f"port{host}", state)

    def assert_ends(self, ranks):
        """Returns the output of the ranks after all of them have exited."""
        end = time.monotonic() + PATIENCE
        for rank in ranks:
            while self.ranks[rank].poll() is None:
                self.assertLess(time.monotonic(), end, f"rank {rank} does not end")
                time.sleep(0.02)
        said = "".join(self.ranks[rank].stderr.read() for rank in ranks)
        return [line for line in said.splitlines() if line.startswith("chimera:")]

    def test_a_cut_cable(self):
        self.cut(1, "down")
        on_zero = self.assert_ends([0, 1])
        self.assertEqual(on_zero, ["chimera: host h1 (ranks 2, 3) silent for 2.5 s: it is down, stopped or cut off"])
        on_one = self.assert_ends([2, 3])
        self.assertEqual(on_one, ["chimera: host h0 (rank 0) silent for 2.5 s: it is down, stopped or cut off"])

    @takes_long
    def test_a_dead_host(self):
        self.hosts.ip("-n", self.hosts.switch, "link", "del", "port1")  # None of its packets arrive from now on
        for rank in (2, 3):
            self.ranks[rank].kill()
        self.assertEqual(self.assert_ends([0, 1]),
                         ["chimera: host h1 (ranks 2, 3) silent for 2.5 s: it is down, stopped or cut off"])

    @takes_long
    def test_a_stopped_host(self):
        for rank in (2, 3):
            self.ranks[rank].send_signal(signal.SIGSTOP)
        self.assertEqual(self.assert_ends([0, 1]),
                         ["chimera: host h1 (ranks 2, 3) silent for 2.5 s: it is down, stopped or cut off"])
        for rank in (2, 3):
            self.ranks[rank].send_signal(signal.SIGCONT)
        self.assert_ends([2, 3])

    @takes_long
    def test_a_stopped_rank(self):
        self.ranks[3].send_signal(signal.SIGSTOP)
        self.assertEqual(self.assert_ends([0, 1, 2]), ["chimera: rank 3 on host h1 silent for 2.5 s: stopped"])
        self.ranks[3].send_signal(signal.SIGCONT)
        self.assert_ends([3])

    def test_a_dead_process(self):
        self.ranks[3].kill()
        self.assertEqual(self.assert_ends([0, 1, 2]),
                         ["chimera: rank 3 on host h1 is gone: killed, or ended without an error report"])

    @takes_long
    def test_a_dead_first_process(self):
        self.ranks[0].kill()
        self.assertEqual(self.assert_ends([1, 2, 3]),
                         ["chimera: rank 0 on host h0 is gone: killed, or ended without an error report"])

    @takes_long
    def test_a_short_cut_is_survived(self):
        self.cut(1, "down")
        time.sleep(1.5)  # Duration of the fault itself
        self.cut(1, "up")
        self.await_steps(len(self.steps()) + 5)

    @takes_long
    def test_a_job_that_is_stopped_and_continued_goes_on(self):
        for rank in self.ranks:
            rank.send_signal(signal.SIGSTOP)
        time.sleep(SILENCE + 1)  # Longer than a rank may be silent
        for rank in self.ranks:
            rank.send_signal(signal.SIGCONT)
        self.await_steps(len(self.steps()) + 5)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
