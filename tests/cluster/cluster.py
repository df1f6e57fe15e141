"""What the tests of clusters share: a training run, ranks by hand, hosts (hosts.py), and SLURM.

A test's first argument is the program. Launchers and rights that are missing skip their tests; with CHIMERA_NEED_LAUNCHERS
they fail instead (`./dev clusters` installs them). Namespaces are what root may make.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from hosts import PATIENCE, Hosts, OwnProcesses, has, namespaces_work  # the tests take them from here

CHIMERA = str(pathlib.Path(sys.argv[1]).resolve())
LOOPBACK = "127.0.0.1"


def needs(what, is_there):
    """Skips a test where `what` is missing, or lets it fail where nothing may be."""
    return unittest.skipUnless(is_there or os.environ.get("CHIMERA_NEED_LAUNCHERS"), f"{what} is missing")


def takes_long(test):
    """Leaves out a test that waits for many seconds, but for `./dev clusters` and the tests of the night."""
    wanted = os.environ.get("CHIMERA_NEED_LAUNCHERS") or os.environ.get("CHIMERA_LONG_TESTS")
    return unittest.skipUnless(wanted, "takes long: CHIMERA_LONG_TESTS=1 runs it")(test)


def without_launchers():
    """This process's environment without what a launcher may have set."""
    words = ("CHIMERA_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_")
    return {name: value for name, value in os.environ.items()
            if not name.startswith(words) and name not in ("RANK", "WORLD_SIZE")}


def free_port():
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


class TrainingTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.text = self.folder / "text.txt"
        self.text.write_text("".join(f"the king went to house {n} and spoke. " for n in range(300)))
        self.environment = without_launchers() | {"TMPDIR": scratch.name}
        self.metrics = self.folder / "metrics.jsonl"

    def training(self, stages=2):
        return [CHIMERA, "train", "--model", "gpt2-tiny", "--data", str(self.text), "--stages", str(stages),
                "--micro-batches", "4", "--micro-batch-size", "2", "--sequence", "32", "--steps", "3", "--dtype", "float64",
                "--reduction", "canonical", "--metrics", str(self.metrics)]

    def run_words(self, words, **variables):
        return subprocess.run(words, env=self.environment | variables, capture_output=True, text=True, timeout=PATIENCE)

    def losses(self):
        steps = [json.loads(line)["loss"] for line in self.metrics.read_text().splitlines()]
        self.metrics.unlink()
        return steps

    def local_losses(self, stages=2):
        result = self.run_words(self.training(stages))
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.losses()

    def assert_trains_as_the_local_run(self, words, stages=2, **variables):
        expected = self.local_losses(stages)
        result = self.run_words(words, **variables)
        self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
        self.assertEqual(self.losses(), expected)
        self.assertEqual(list(self.folder.glob("chimera-*/*")), [], "a meeting's file is left")

    def start(self, words, rank, size, enter=(), **variables):
        """One rank by hand; `enter`: what runs it in another namespace."""
        own = {"CHIMERA_RANK": str(rank), "CHIMERA_WORLD_SIZE": str(size)}
        process = subprocess.Popen([*enter, *words], env=self.environment | own | variables, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        return process

    def ended(self, processes):
        """What each says on standard error but for progress, and its exit code."""
        said = [process.communicate(timeout=PATIENCE)[1] for process in processes]
        complaints = ["".join(line for line in text.splitlines(True) if line.startswith("chimera:")) for text in said]
        return complaints, [process.returncode for process in processes]


class Slurm:
    """A cluster of two nodes, both this host, as this user."""

    NODES = ("n0", "n1")

    def __init__(self, folder):
        self.folder = folder
        self.configuration = str(folder / "slurm.conf")
        self.daemons = []

    def start_all(self):
        folder, host = self.folder, socket.gethostname()
        control, *nodes = (free_port() for _ in range(1 + len(self.NODES)))
        user = os.environ.get("USER", "root")
        settings = f"""ClusterName=test
SlurmctldHost={host}({LOOPBACK})
SlurmctldPort={control}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/ctld.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/spool.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SlurmctldParameters=node_reg_mem_percent=1
ReturnToService=2
"""
        for name, port in zip(self.NODES, nodes):
            settings += f"NodeName={name} NodeHostname={host} NodeAddr={LOOPBACK} Port={port} CPUs=8 RealMemory=1000\n"
        settings += "PartitionName=main Nodes=ALL Default=YES State=UP\n"
        pathlib.Path(self.configuration).write_text(settings)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "munge").mkdir(mode=0o755)
        (folder / "state").mkdir()
        key = folder / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        folder.chmod(0o755)
        munge = folder / "munge"
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
                   f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        self.await_file(munge / "socket")
        self.start("slurmctld", "-D", "-f", self.configuration, "-c")
        for name in self.NODES:
            self.start("slurmd", "-D", "-f", self.configuration, "-N", name)
        self.await_nodes(len(nodes))

    def start(self, program, *arguments):
        path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")
        environment = without_launchers() | {"SLURM_CONF": self.configuration}
        self.daemons.append(subprocess.Popen([path, *arguments], env=environment, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL))

    def await_file(self, path):
        end = time.monotonic() + PATIENCE
        while not path.exists():
            if time.monotonic() > end:
                raise TimeoutError(f"{path} does not appear")
            time.sleep(0.02)

    def await_nodes(self, count):
        end = time.monotonic() + PATIENCE
        environment = os.environ | {"SLURM_CONF": self.configuration}
        while True:
            states = subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], env=environment, capture_output=True, text=True)
            if states.stdout.split() == ["idle"] * count:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"nodes are not idle: {states.stdout}{states.stderr}")
            time.sleep(0.1)

    def stop(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
