"""Shared helpers of cluster tests: a training run, ranks started by hand, and hosts (hosts.py).

A test's first argument is the program. Tests are skipped if a launcher or a permission is missing; with
CHIMERA_NEED_LAUNCHERS they fail (`tools/clusters` installs the launchers). Namespaces need root.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

from hosts import LOOPBACK, PATIENCE, Hosts, OwnProcesses, free_port, has, namespaces_work  # For the tests

CHIMERA = str(pathlib.Path(sys.argv[1]).resolve())


def needs(what, is_there):
    """Skips a test if `what` is missing, or fails if CHIMERA_NEED_LAUNCHERS is set."""
    return unittest.skipUnless(is_there or os.environ.get("CHIMERA_NEED_LAUNCHERS"), f"{what} is missing")


def takes_long(test):
    """Leaves out a slow test, except in `tools/clusters` and nightly tests."""
    wanted = os.environ.get("CHIMERA_NEED_LAUNCHERS") or os.environ.get("CHIMERA_LONG_TESTS")
    return test if wanted else None  # unittest collects only what can be called


def without_launchers():
    """Returns the environment without variables of launchers."""
    words = ("CHIMERA_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_")
    return {name: value for name, value in os.environ.items()
            if not name.startswith(words) and name not in ("RANK", "WORLD_SIZE")}


class TrainingTest(unittest.TestCase):
    shares_layers = False  # Two neighboring ranks share each layer, with half as many stages

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.text = self.folder / "text.txt"
        self.text.write_text("".join(f"the king went to house {n} and spoke. " for n in range(300)))
        self.environment = without_launchers() | {"TMPDIR": scratch.name}
        self.metrics = self.folder / "metrics.jsonl"

    def training(self, stages=2):
        stages = stages // 2 if self.shares_layers else stages
        return [CHIMERA, "train", "--model", "gpt2-tiny", "--data", str(self.text), "--stages", str(stages),
                "--micro-batches", "4", "--micro-batch-size", "2", "--sequence", "32", "--steps", "3", "--dtype", "float64",
                "--reduction", "canonical", "--overwrite", "--metrics", str(self.metrics),
                *["--schedule", *(["1f1b", "--tensor-parallel", "2"] if self.shares_layers else ["chimera"])]]

    def run_words(self, words, code=0, **variables):
        """Runs the command, which must end with this exit code; None: any."""
        result = subprocess.run(words, env=self.environment | variables, capture_output=True, text=True, timeout=PATIENCE)
        self.assertIn(code, (None, result.returncode), result.stderr + result.stdout)
        return result

    def losses(self):
        losses = [step["loss"] for step in self.steps()]
        self.metrics.unlink()
        return losses

    def steps(self):
        """Returns the metrics of each step, from complete lines."""
        text = self.metrics.read_text() if self.metrics.exists() else ""
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def await_steps(self, count=1):
        self.wait_until(lambda: len(self.steps()) >= count, "nothing is trained")

    def local_losses(self, stages=2):
        self.run_words(self.training(stages))
        return self.losses()

    def assert_trains_as_the_local_run(self, words, stages=2, **variables):
        expected = self.local_losses(stages)
        self.run_words(words, **variables)
        self.assertEqual(self.losses(), expected)
        self.assertEqual(list(self.folder.glob("chimera-*/*")), [], "a rendezvous file is left")

    def wait_until(self, holds, otherwise):
        end = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), end, otherwise)
            time.sleep(0.02)

    def start(self, words, rank, size, enter=(), **variables):
        """Starts one rank. `enter`: command that runs it in another namespace."""
        own = {"CHIMERA_RANK": str(rank), "CHIMERA_WORLD_SIZE": str(size)}
        process = subprocess.Popen([*enter, *words], env=self.environment | own | variables, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def assert_trained(self, ranks, expected):
        """Requires that these processes succeed without complaints, with these losses."""
        self.assertEqual(self.ended(ranks), ([""] * len(ranks), [0] * len(ranks)))
        self.assertEqual(self.losses(), expected)

    def ended(self, processes):
        """Returns exit code and standard error of each process, without progress lines."""
        said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
        complaints = ["".join(line for line in text.splitlines(True) if line.startswith("chimera:")) for text in said]
        return complaints, [process.returncode for process in processes]
