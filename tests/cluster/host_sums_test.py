"""Gradient all-reduces over two hosts of two ranks each: traffic between the hosts, and results.

Usage: host_sums_test.py CHIMERA [CLASS.TEST...]
"""

import json
import subprocess
import sys
import unittest

from cluster import CHIMERA, Hosts, OwnProcesses, TrainingTest, has, namespaces_work, needs

RANKS = 4
TCP_AND_IP = 1.05  # Largest ratio of bytes on the wire to bytes of messages


@needs("the right to make network namespaces", namespaces_work() and has("unshare"))
class HostSumsTest(TrainingTest):
    def setUp(self):
        super().setUp()
        self.hosts = Hosts(2)
        self.addCleanup(self.hosts.__exit__)
        self.hosts.__enter__()
        self.processes = [OwnProcesses(self.hosts.enter(host)) for host in range(2)]
        for own in self.processes:
            self.addCleanup(own.end)

    def words(self, steps, *flags):
        return [CHIMERA, "train", "--model", "gpt2-tiny", "--vocabulary", "8192", "--data", str(self.text), "--stages", "1",
                "--schedule", "1f1b", "--data-parallel", str(RANKS), "--micro-batches", "1", "--micro-batch-size", "1",
                "--sequence", "16", "--steps", str(steps), "--overwrite", "--metrics", str(self.metrics), *flags]

    def train(self, words):
        """Returns the bytes that each host has sent."""
        before = [self.hosts.sent_bytes(host) for host in range(2)]
        server = {"MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": "29600", "CHIMERA_SECRET": "a word"}
        ranks = [self.start(words, rank, RANKS, self.processes[rank // 2].enter, CHIMERA_LOCAL_RANK=str(rank % 2),
                            CHIMERA_LOCAL_WORLD_SIZE="2", **server) for rank in range(RANKS)]
        self.assertEqual(self.ended(ranks), ([""] * RANKS, [0] * RANKS))
        return [self.hosts.sent_bytes(host) - sent for host, sent in enumerate(before)]

    def gradient_bytes(self):
        plan = subprocess.run([*self.words(1), "--dry-run", "--format", "json"], capture_output=True, text=True, check=True)
        return 4 * json.loads(plan.stdout)["parameters"]

    @needs("tc", has("tc"))
    def test_each_element_leaves_each_host_once(self):
        self.hosts.throttle("100mbit")
        few, many = 2, 8
        start_up = self.train(self.words(few))
        self.metrics.unlink()
        sent = [(whole - start) / (many - few) for whole, start in zip(self.train(self.words(many)), start_up)]
        for each in sent:  # Half of the gradients in Gloo's reduce-scatter, the other half in its all-gather
            self.assertGreaterEqual(each, self.gradient_bytes())
            self.assertLessEqual(each, TCP_AND_IP * self.gradient_bytes())

    @needs("tc", has("tc"))
    def test_sharded_optimizers_halve_the_bytes_of_sums(self):
        self.hosts.throttle("100mbit")
        few, many = 2, 8
        start_up = self.train(self.words(few, "--shard-optimizer"))
        self.metrics.unlink()
        sent = sum((whole - start) / (many - few)
                   for whole, start in zip(self.train(self.words(many, "--shard-optimizer")), start_up))
        # Each element leaves one host for its owner. The owner then sends the parameter to both ranks of the other host.
        self.assertGreaterEqual(sent, 3 * self.gradient_bytes())
        self.assertLessEqual(sent, TCP_AND_IP * 3 * self.gradient_bytes())

    def test_a_sum_that_is_launched_holds_up_nobody(self):
        """The rank that launches first, on one host, still has to send data that the other host waits for."""
        words = [CHIMERA, "train", "--model", "gpt2-tiny", "--data", str(self.text), "--schedule", "chimera", "--stages", "2",
                 "--data-parallel", "2", "--replica-layout", "near", "--micro-batches", "1", "--micro-batch-size", "2",
                 "--sequence", "16", "--steps", "30", "--dtype", "float64", "--overwrite", "--metrics", str(self.metrics)]
        self.train(words)
        self.assertEqual(len(self.losses()), 30)

    def test_canonical_sums_are_those_of_one_host(self):
        words = self.words(3, "--reduction", "canonical", "--dtype", "float64")
        self.train(words)
        over_hosts = self.metrics.read_text()
        self.metrics.unlink()
        self.run_words(words)
        hashes = [[json.loads(line)["parameters_hash"] for line in text.splitlines()]
                  for text in (over_hosts, self.metrics.read_text())]
        self.assertEqual(*hashes)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
