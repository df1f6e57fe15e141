"""Launchers of others start the ranks of a training run, which then trains as the local one does, bit for bit.

Usage: launchers_test.py CHIMERA [CLASS.TEST...]

Launchers and rights that are missing skip their tests; with CHIMERA_NEED_LAUNCHERS they fail instead
(`./dev clusters` installs them). Hosts are network namespaces, as root may make them.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

CHIMERA = str(pathlib.Path(sys.argv[1]).resolve())
PATIENCE = 60
LOOPBACK = "127.0.0.1"


def needs(what, is_there):
    """Skips a test where `what` is missing, or lets it fail where nothing may be."""
    return unittest.skipUnless(is_there or os.environ.get("CHIMERA_NEED_LAUNCHERS"), f"{what} is missing")


def has(*programs):
    return all(shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for program in programs)


def own_torchrun():
    try:
        import torch.distributed.run  # noqa: F401
    except ImportError:
        return None
    return [sys.executable, "-m", "torch.distributed.run", "--no-python"]


def namespaces_work():
    """Whether hosts can be made: containers often may not."""
    if os.geteuid() != 0 or not has("ip", "nsenter"):
        return False
    hosts = Hosts(1)
    try:
        with hosts:
            return True
    except subprocess.CalledProcessError:
        hosts.__exit__()
        return False


def without_launchers():
    """This process's environment without what a launcher may have set."""
    words = ("CHIMERA_", "OMPI_", "PMI", "SLURM_", "TORCHELASTIC_", "MASTER_", "LOCAL_")
    return {name: value for name, value in os.environ.items()
            if not name.startswith(words) and name not in ("RANK", "WORLD_SIZE")}


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


def free_port():
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


class VariablesTest(TrainingTest):
    """Ranks by hand: no launcher is needed for these."""

    def start_on_one_host(self, words, size, **variables):
        return [self.start(words, rank, size, CHIMERA_LOCAL_RANK=str(rank), CHIMERA_LOCAL_WORLD_SIZE=str(size), **variables)
                for rank in range(size)]

    def test_ranks_of_one_host_meet_in_a_file(self):
        expected = self.local_losses()
        self.assertEqual(self.ended(self.start_on_one_host(self.training(), 2)), (["", ""], [0, 0]))
        self.assertEqual(self.losses(), expected)

    def test_ranks_meet_at_an_address(self):
        expected = self.local_losses()
        server = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
        ranks = [self.start(self.training(), rank, 2, **server) for rank in (1, 0)]  # who listens comes last
        self.assertEqual(self.ended(ranks), (["", ""], [0, 0]))
        self.assertEqual(self.losses(), expected)

    def test_says_who_has_not_come(self):
        words = [*self.training(stages=4), "--meeting-seconds", "1"]
        ranks = [self.start(words, rank, 4, CHIMERA_STORE=str(self.folder / "store")) for rank in (0, 2)]
        complaints, codes = self.ended(ranks)
        self.assertEqual(codes, [1, 1])
        self.assertIn("rank 0 failed at start-up: 2 of 4 ranks have not come within 1 s: 1, 3\n", complaints[0])

    def test_says_that_nobody_listens(self):
        server = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
        complaints, codes = self.ended([self.start([*self.training(), "--meeting-seconds", "1"], 1, 2, **server)])
        self.assertEqual(codes, [1])
        self.assertIn("no answer from localhost:", complaints[0])

    def test_says_that_another_program_listens(self):
        with socket.socket() as other:
            other.bind((LOOPBACK, 0))
            other.listen()
            server = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(other.getsockname()[1])}
            complaints, codes = self.ended([self.start([*self.training(), "--meeting-seconds", "1"], 1, 2, **server)])
        self.assertEqual(codes, [1])
        self.assertIn("within 1 s; rank 0 answers there once it has started, unless another program", complaints[0])

    def test_a_start_that_failed_does_not_spoil_the_next(self):
        one, two = self.training(), [*self.training(), "--seed", "9"]
        self.ended([self.start(words, rank, 2, CHIMERA_LOCAL_RANK=str(rank), CHIMERA_LOCAL_WORLD_SIZE="2")
                    for rank, words in enumerate((one, two))])
        self.assertEqual(self.ended(self.start_on_one_host(self.training(), 2)), (["", ""], [0, 0]))

    def test_another_number_of_processes_is_refused_in_one_line(self):
        complaints, codes = self.ended(self.start_on_one_host(self.training(), 3))
        self.assertEqual(codes, [2, 2, 2])
        self.assertEqual("".join(complaints), "chimera: CHIMERA_* has started 3 processes, but this run has 2 ranks; start as "
                                              "many as D W = 2, or change --stages and --data-parallel\n")

    def test_other_commands_are_refused(self):
        complaints, codes = self.ended(self.start_on_one_host([CHIMERA, "generate", "--from", "folder"], 2))
        self.assertEqual(codes, [2, 2])
        self.assertIn("has started 2 processes, and `chimera generate` starts its own; start one\n", "".join(complaints))

    def test_two_launchers_are_refused(self):
        other = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
        complaints, codes = self.ended(self.start_on_one_host(self.training(), 2, **other))
        self.assertEqual(codes, [2, 2])
        self.assertIn("CHIMERA_* says that this process is rank 0 of 2, MPICH that it is rank 1 of 3", complaints[0])

    def test_a_rank_that_fails_is_named_and_the_others_end(self):
        complaints, codes = self.ended(self.start_on_one_host(self.training(), 2, CHIMERA_FAULT="throw@forward:1:3"))
        self.assertEqual(codes, [3, 1])
        self.assertRegex(complaints[1], r"^chimera: rank 1 failed at .*: fault injected at forward\n$")
        self.assertRegex(complaints[0], r"^chimera: rank 0 ended at .*\n$")

    def test_ranks_end_when_one_is_killed(self):
        _, codes = self.ended(self.start_on_one_host(self.training(), 2, CHIMERA_FAULT="kill@forward:1:3"))
        self.assertEqual(codes, [3, -signal.SIGKILL])


class LaunchersTest(TrainingTest):
    def mpirun(self, name, *flags):
        return [f"mpirun.{name}", *flags, "-n", "2", *self.training()]

    @needs("Open MPI", has("mpirun.openmpi"))
    def test_open_mpi(self):
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        self.assert_trains_as_the_local_run(self.mpirun("openmpi", "--oversubscribe"), **root)

    @needs("MPICH", has("mpirun.mpich"))
    def test_mpich(self):
        self.assert_trains_as_the_local_run(self.mpirun("mpich"))

    @needs("MPICH", has("mpirun.mpich"))
    def test_a_script_may_stand_between(self):
        script = self.folder / "rank.sh"
        script.write_text('#!/bin/sh\n"$@"\nexit $?\n')
        script.chmod(0o700)
        words = self.mpirun("mpich")
        self.assert_trains_as_the_local_run([*words[:3], str(script), *words[3:]])

    def torchrun(self, *flags):
        return [*own_torchrun(), *flags, "--nproc-per-node", "2"]

    @needs("torchrun", own_torchrun())
    def test_torchrun(self):
        self.assert_trains_as_the_local_run([*self.torchrun(), *self.training()])

    @needs("torchrun", own_torchrun())
    def test_torchrun_starts_anew(self):
        script = self.folder / "rank.sh"
        script.write_text('#!/bin/sh\n[ "$TORCHELASTIC_RESTART_COUNT" != 0 ] || export CHIMERA_FAULT=throw@forward:1:3\n'
                          'exec "$@"\n')
        script.chmod(0o700)
        self.assert_trains_as_the_local_run([*self.torchrun("--max-restarts", "1"), str(script), *self.training()])

    @needs("torchrun", own_torchrun())
    def test_torchrun_names_the_cause(self):
        result = self.run_words([*self.torchrun(), *self.training()], CHIMERA_FAULT="throw@forward:1:3")
        self.assertNotEqual(result.returncode, 0)
        cause = result.stderr[result.stderr.index("Root Cause"):]
        self.assertRegex(cause, r"rank      : 1 \(local_rank: 1\)")
        self.assertRegex(cause, r"traceback : rank 1 failed at .*: fault injected at forward")

    @needs("SLURM", has("slurmctld", "slurmd", "srun", "munged"))
    def test_srun(self):
        slurm = Slurm(self.folder)
        self.addCleanup(slurm.stop)
        slurm.start_all()
        self.assert_trains_as_the_local_run(["srun", "-n", "2", *self.training()], SLURM_CONF=slurm.configuration)
        server = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port())}  # no address has the nodes' names
        self.assert_trains_as_the_local_run(["srun", "-N", "2", "-n", "4", *self.training(stages=4)], stages=4,
                                            SLURM_CONF=slurm.configuration, **server)


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


class Hosts:
    """Network namespaces on one bridge: 10.77.0.1, 10.77.0.2, ..."""

    def __init__(self, count):
        prefix = f"ch{os.getpid()}"
        self.switch = f"{prefix}sw"
        self.names = [f"{prefix}h{index}" for index in range(count)]

    def __enter__(self):
        self.ip("netns", "add", self.switch)
        self.ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        self.ip("-n", self.switch, "link", "set", "br0", "up")
        for index, name in enumerate(self.names):
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
            self.ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{index}", "netns", self.switch)
            self.ip("-n", self.switch, "link", "set", f"port{index}", "master", "br0", "up")
            self.ip("-n", name, "addr", "add", f"{self.address(index)}/24", "dev", "eth0")
            self.ip("-n", name, "link", "set", "eth0", "up")
        return self

    @staticmethod
    def address(index):
        return f"10.77.0.{index + 1}"

    def enter(self, index):
        return ["nsenter", f"--net=/run/netns/{self.names[index]}"]

    def listeners(self, index):
        """Addresses that somebody listens at."""
        table = subprocess.run([*self.enter(index), "cat", "/proc/net/tcp", "/proc/net/tcp6"], capture_output=True, text=True)
        rows = [line.split() for line in table.stdout.splitlines()]
        return {row[1].split(":")[0] for row in rows if len(row) > 3 and row[3] == "0A"}

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@needs("the right to make network namespaces", namespaces_work())
class HostsTest(TrainingTest):
    def ranks_on(self, hosts, words):
        server = {"MASTER_ADDR": hosts.address(0), "MASTER_PORT": "29600"}
        return [self.start(words, rank, 4, hosts.enter(rank // 2), CHIMERA_LOCAL_RANK=str(rank % 2),
                           CHIMERA_LOCAL_WORLD_SIZE="2", **server) for rank in range(4)]

    def test_two_hosts_train_as_one(self):
        expected = self.local_losses(stages=4)
        with Hosts(2) as hosts:
            ranks = self.ranks_on(hosts, self.training(stages=4))
            heard = set()
            while any(rank.poll() is None for rank in ranks):
                for host in range(2):
                    heard |= hosts.listeners(host)
                time.sleep(0.01)
            self.assertEqual(self.ended(ranks), ([""] * 4, [0] * 4))
        self.assertEqual(self.losses(), expected)
        self.assertEqual(heard, {"01004D0A", "02004D0A"}, "they listen at their own addresses alone")

    @needs("torchrun", own_torchrun())
    def test_torchrun_over_two_hosts(self):
        expected = self.local_losses(stages=4)
        with Hosts(2) as hosts:
            agents = []
            for host in range(2):
                flags = ["--nnodes", "2", "--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
                         f"{hosts.address(0)}:29700", "--rdzv-conf", f"is_host={int(host == 0)}", "--local-addr",
                         hosts.address(host)]
                words = [*hosts.enter(host), *own_torchrun(), *flags, *self.training(stages=4)]
                agents.append(subprocess.Popen(words, env=self.environment, stdout=subprocess.DEVNULL,
                                               stderr=subprocess.PIPE, text=True))
                self.addCleanup(agents[-1].kill)
            complaints, codes = self.ended(agents)
            self.assertEqual(codes, [0, 0], complaints)
        self.assertEqual(self.losses(), expected)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
