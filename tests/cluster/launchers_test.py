"""External launchers start the ranks of a training run, which gives the same bits as the local run.

Usage: launchers_test.py CHIMERA [CLASS.TEST...]
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from cluster import CHIMERA, LOOPBACK, PATIENCE, Hosts, TrainingTest, free_port, has, namespaces_work, needs


def own_torchrun():
    try:
        import torch.distributed.run  # noqa: F401
    except ImportError:
        return None
    return [sys.executable, "-m", "torch.distributed.run", "--no-python"]


class Strangers:
    """Repeated connections to a rendezvous without the secret: silent, half-closed, noise, a TCPStore client's
    messages, huge lengths, and single bytes."""

    WORDS = ([], [b"\0"], [b"\x00\x01\x02\x03" * 25_000], [b"\x00\x07\x00\x00\x00" * 20],
             [b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"], [b"\xff"] * 64)

    def __init__(self, place):
        self.place = place
        self.is_over = threading.Event()
        self.welcomed = [threading.Event() for _ in self.WORDS]
        self.threads = [threading.Thread(target=self.visit, args=(index,), daemon=True) for index in range(len(self.WORDS))]
        for thread in self.threads:
            thread.start()

    def visit(self, index):
        open_ones = []  # Stay open
        while not self.is_over.wait(0.01):
            try:
                stranger = socket.create_connection(self.place, timeout=1)
                stranger.settimeout(0.2)
                for piece in self.WORDS[index]:
                    stranger.sendall(piece)
                    self.is_over.wait(0.01)
                if index % 2:
                    stranger.shutdown(socket.SHUT_WR)
                open_ones.append(stranger)
                self.welcomed[index].set()
            except OSError:
                continue  # The rendezvous has not started, has ended, or refuses more strangers
            del open_ones[:-8]

    def await_one_of_each(self, rank):
        for welcomed in self.welcomed:
            while not welcomed.wait(0.1):
                if rank.poll() is not None:
                    raise RuntimeError("the rank that listens has ended")

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


class VariablesTest(TrainingTest):
    """Ranks started by hand, without a launcher."""

    def start_on_one_host(self, words, size, **variables):
        return [self.start(words, rank, size, CHIMERA_LOCAL_RANK=str(rank), CHIMERA_LOCAL_WORLD_SIZE=str(size), **variables)
                for rank in range(size)]

    def test_ranks_of_one_host_meet_in_a_file(self):
        expected = self.local_losses()
        self.assert_trained(self.start_on_one_host(self.training(), 2), expected)

    def test_ranks_meet_at_an_address(self):
        expected = self.local_losses()
        server = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "CHIMERA_SECRET": "a word"}
        ranks = [self.start(self.training(), rank, 2, **server) for rank in (1, 0)]  # The listening rank starts last
        self.assert_trained(ranks, expected)

    def test_says_that_anyone_may_come_where_there_is_no_secret(self):
        server = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
        complaints, codes = self.ended([self.start(self.training(), rank, 2, **server) for rank in range(2)])
        self.assertEqual(codes, [0, 0])
        self.assertRegex(complaints[0], r"^chimera: the rendezvous server at localhost:\d+ has no secret: "
                         r".*CHIMERA_SECRET_FILE\n$")
        self.assertEqual(complaints[1], "")

    def test_a_rank_with_another_secret_is_not_let_in(self):
        server = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
        ranks = [self.start(self.training(), rank, 2, CHIMERA_SECRET=f"word {rank}", **server) for rank in range(2)]
        complaints, codes = self.ended(ranks[1:])
        self.assertIsNone(ranks[0].poll(), "rank 0 still waits for a rank with its secret")
        self.assertEqual(codes, [2])
        self.assertIn("rank 0 and this rank have different secrets", complaints[0])

    def test_a_secret_that_others_may_read_is_refused(self):
        secret = self.folder / "secret"
        secret.write_text("a word\n")
        secret.chmod(0o644)
        server = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "CHIMERA_SECRET_FILE": str(secret)}
        complaints, codes = self.ended([self.start(self.training(), 0, 2, **server)])
        self.assertEqual(codes, [2])
        self.assertIn("chmod 600", complaints[0])

    def test_strangers_at_the_rendezvous_change_nothing(self):
        expected = self.local_losses()
        place = (LOOPBACK, free_port())
        server = {"MASTER_ADDR": place[0], "MASTER_PORT": str(place[1]), "CHIMERA_SECRET": "a word"}
        first = self.start(self.training(), 0, 2, **server)
        strangers = Strangers(place)
        self.addCleanup(strangers.end)
        strangers.await_one_of_each(first)
        ranks = [first, self.start(self.training(), 1, 2, **server)]
        self.assert_trained(ranks, expected)

    def test_says_which_interfaces_there_are(self):
        server = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(free_port()), "CHIMERA_SECRET": "a word"}
        words = [*self.training(), "--interface", "wire7", "--rendezvous-seconds", "2"]
        complaints, codes = self.ended([self.start(words, rank, 2, **server) for rank in range(2)])
        self.assertIn(2, codes)
        self.assertIn("--interface wire7: this host has no interface of this name; it has", "".join(complaints))

    def test_says_who_has_not_come(self):
        """Rank 2 waits in the store before the time limit of rank 0 begins."""
        store = self.folder / "store"
        self.start(self.training(stages=4), 2, 4, CHIMERA_STORE=str(store))
        self.await_text(store, b"rank 2")
        words = [*self.training(stages=4), "--rendezvous-seconds", "1"]
        complaints, codes = self.ended([self.start(words, 0, 4, CHIMERA_STORE=str(store))])
        self.assertEqual(codes, [1])
        origin = (f"CHIMERA_RANK=0, CHIMERA_WORLD_SIZE=4 are set; the ranks meet at {store}, the file in CHIMERA_STORE; for a "
                  "job of its own, unset CHIMERA_RANK (env -u)\n")
        self.assertEqual(complaints[0].splitlines(True), [
            f"chimera: rank 0 has waited 0.25 s for 2 of 4 ranks: 1, 3; {origin}",
            f"chimera: rank 0 failed at start-up: 2 of 4 ranks have not joined within 1 s: 1, 3; {origin}"])

    def test_says_which_variables_tell_of_a_rank_that_never_comes(self):
        """One process in the environment of a task of SLURM, as in a shell that srun has started."""
        place = {"SLURM_NODEID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
                 "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
        result = self.run_words([*self.training(), "--rendezvous-seconds", "1"], code=1, **place)
        self.assertRegex(result.stderr, r"rank 1 has waited 0.25 s for 1 of 2 ranks: 0; by SLURM, .*SLURM_PROCID=1, "
                                        r"SLURM_STEP_NUM_TASKS=2, .* meet at .*/rendezvous-.*, named after process \d+ \(.*\), ")

    def test_ranks_of_an_mpi_shell_meet(self):
        """Each rank has a shell of its own, which MPI has started and which sets the variables."""
        script = "export CHIMERA_RANK=$0 CHIMERA_WORLD_SIZE=2 CHIMERA_LOCAL_RANK=$0 CHIMERA_LOCAL_WORLD_SIZE=2; \"$@\"; exit $?"
        ranks = [subprocess.Popen(["sh", "-c", script, rank, "timeout", "60", *self.training()], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE, text=True, env=self.environment | {
                                      "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": "2",
                                      "OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
                 for rank in ("0", "1")]
        self.assertEqual(self.ended(ranks), (["", ""], [0, 0]))

    def test_a_place_that_a_launcher_does_not_tell_is_refused(self):
        for place, said in ({"PMIX_RANK": "0"}, "PMIX_RANK is '0'"), ({"PMI_RANK": "1", "PMI_SIZE": "2"}, "PMI_RANK is '1'"):
            trained = self.run_words(self.training(), code=2, **place)
            shown = self.run_words([CHIMERA, "env"], code=2, **place)
            self.assertIn(said + ": a launcher has started this process among others", trained.stderr)
            self.assertEqual(shown.stderr, trained.stderr)
            self.assertEqual(shown.stdout, "seen:\n" + "".join(f"  {name}={value}\n" for name, value in place.items()))
        self.assertFalse(self.metrics.exists())

    def test_a_model_larger_than_this_host_is_refused_only_where_all_of_it_is_here(self):
        meminfo = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
        memory = 1024 * sum(int(meminfo[kind].split()[0]) for kind in ("MemTotal", "SwapTotal"))
        layer = 12 * 1024**2 * 4 * 8  # Bytes of its weights, gradients and moments in float64
        size = ["--hidden", "1024", "--layers", str(16 * (1 + memory // (16 * layer))), "--rendezvous-seconds", "1"]
        for ranks_here, said in [("1", "15 of 16 ranks have not joined"), ("16", "ranks on this machine need")]:
            store = {"CHIMERA_STORE": str(self.folder / ranks_here), "CHIMERA_LOCAL_WORLD_SIZE": ranks_here}
            complaints, _ = self.ended([self.start([*self.training(stages=16), *size], 0, 16, **store)])
            self.assertIn(said, complaints[0])

    def test_says_that_nobody_listens(self):
        server = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
        complaints, codes = self.ended([self.start([*self.training(), "--rendezvous-seconds", "1"], 1, 2, **server)])
        self.assertEqual(codes, [1])
        self.assertIn("no answer from the rendezvous server at localhost:", complaints[0])

    def test_says_that_another_program_listens(self):
        with socket.socket() as other:
            other.bind((LOOPBACK, 0))
            other.listen()
            server = {"MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(other.getsockname()[1])}
            complaints, codes = self.ended([self.start([*self.training(), "--rendezvous-seconds", "1"], 1, 2, **server)])
        self.assertEqual(codes, [1])
        self.assertIn("within 1 s; rank 0 has not started it, or another program", complaints[0])

    def test_a_start_that_failed_does_not_spoil_the_next(self):
        one, two = self.training(), [*self.training(), "--seed", "9"]
        self.ended([self.start(words, rank, 2, CHIMERA_LOCAL_RANK=str(rank), CHIMERA_LOCAL_WORLD_SIZE="2")
                    for rank, words in enumerate((one, two))])
        self.assertEqual(self.ended(self.start_on_one_host(self.training(), 2)), (["", ""], [0, 0]))

    def test_another_number_of_processes_is_refused_in_one_line(self):
        start = time.monotonic()
        complaints, codes = self.ended(self.start_on_one_host(self.training(), 3))
        self.assertGreater(time.monotonic() - start, 1, "a launcher might kill rank 0 before it prints")
        self.assertEqual(codes, [2, 2, 2])
        self.assertEqual("".join(complaints), "chimera: CHIMERA_* has started 3 processes, but this run has 2 ranks; start as "
                                              "many as D W T = 2, or change --stages, --data-parallel and "
                                              "--tensor-parallel\n")

    def test_other_commands_are_refused(self):
        complaints, codes = self.ended(self.start_on_one_host([CHIMERA, "generate", "--from", "folder"], 2))
        self.assertEqual(codes, [2, 2])
        self.assertIn("has started 2 processes, and `chimera generate` starts its own; start one\n", "".join(complaints))

    def test_two_launchers_are_refused(self):
        other = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1"}
        complaints, codes = self.ended(self.start_on_one_host(self.training(), 2, **other))
        self.assertEqual(codes, [2, 2])
        self.assertIn("CHIMERA_* gives this process rank 0 of 2, but MPICH gives it rank 1 of 3", complaints[0])

    def test_a_rank_that_fails_is_named_and_the_others_end(self):
        complaints, codes = self.ended(self.start_on_one_host(self.training(), 2, CHIMERA_FAULT="throw@forward:1:3"))
        self.assertEqual(codes, [3, 1])
        self.assertRegex(complaints[1], r"^chimera: rank 1 failed at .*: fault injected at forward\n$")
        self.assertRegex(complaints[0], r"^chimera: rank 0 ended at .*\n$")

    def test_ranks_end_when_one_is_killed(self):
        _, codes = self.ended(self.start_on_one_host(self.training(), 2, CHIMERA_FAULT="kill@forward:1:3"))
        self.assertEqual(codes, [3, -signal.SIGKILL])

    def test_a_rank_ends_with_the_process_by_which_a_launcher_started_it(self):
        words = ["sh", "-c", '"$@"; exit $?', "sh", *self.training(), "--steps", "1000000"]
        place = {"SLURM_NODEID": "0", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2",
                 "CHIMERA_STORE": str(self.folder / "store")}
        ranks = []
        for rank in ("0", "1"):
            own = {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
            ranks.append(subprocess.Popen(words, env=self.environment | place | own, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.PIPE, text=True, start_new_session=True))
            self.addCleanup(self.end_group, ranks[-1].pid)
        self.await_steps()
        ranks[1].kill()  # Only the shell
        complaints, codes = self.ended(ranks)
        self.assertEqual(codes, [3, -signal.SIGKILL])
        self.assertEqual(complaints[1], "chimera: rank 1 ends: the process that started it has ended\n")

    def test_a_launchers_signal_behind_the_save_changes_no_exit_code(self):
        """Launchers stop the other ranks when one exits with a code other than 0, such as 75."""
        words = [*self.training(), "--steps", "1000000", "--checkpoint", str(self.folder / "run")]
        place = {"CHIMERA_WORLD_SIZE": "2", "CHIMERA_LOCAL_WORLD_SIZE": "2"}
        reader, writer = os.pipe()  # Never read: rank 0 tries for two seconds to print its last lines
        self.addCleanup(os.close, reader)
        ranks = [subprocess.Popen(words, env=self.environment | place | {"CHIMERA_RANK": rank, "CHIMERA_LOCAL_RANK": rank},
                                  stdout=out, stderr=subprocess.DEVNULL) for rank, out in (("0", writer), ("1", None))]
        os.close(writer)
        for rank in ranks:
            self.addCleanup(rank.kill)
        self.await_steps()
        filler = os.open(f"/proc/self/fd/{reader}", os.O_WRONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, filler)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(filler, b"." * 512)
        for rank in ranks:
            rank.send_signal(signal.SIGUSR1)
        asked = time.monotonic()
        self.assertEqual(ranks[1].wait(PATIENCE), 75)
        last = asked
        while ranks[0].poll() is None:
            ranks[0].terminate()
            last = time.monotonic()
            time.sleep(0.01)
        self.assertGreater(last - asked, 0.5, "until then two signals count as one")
        self.assertEqual(ranks[0].returncode, 75)

    @staticmethod
    def end_group(group):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass  # The whole job has ended

    def await_text(self, path, text):
        self.wait_until(lambda: path.exists() and text in path.read_bytes(), f"{path} does not get {text}")


class LaunchersTest(TrainingTest):
    def mpirun(self, name, *flags):
        return [f"mpirun.{name}", *flags, "-n", "2", *self.training()]

    @needs("Open MPI", has("mpirun.openmpi"))
    def test_open_mpi(self):
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        for self.shares_layers in (False, True):
            self.assert_trains_as_the_local_run(self.mpirun("openmpi", "--oversubscribe"), **root)

    @needs("MPICH", has("mpirun.mpich"))
    def test_mpich(self):
        for self.shares_layers in (False, True):
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
        for self.shares_layers in (False, True):
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
        result = self.run_words([*self.torchrun(), *self.training()], code=None, CHIMERA_FAULT="throw@forward:1:3")
        self.assertNotEqual(result.returncode, 0)
        cause = result.stderr[result.stderr.index("Root Cause"):]
        self.assertRegex(cause, r"rank      : 1 \(local_rank: 1\)")
        self.assertRegex(cause, r"traceback : rank 1 failed at .*: fault injected at forward")


@needs("the right to make network namespaces", namespaces_work())
class HostsTest(TrainingTest):
    def ranks_on(self, hosts, words):
        server = {"MASTER_ADDR": hosts.address(0), "MASTER_PORT": "29600", "CHIMERA_SECRET": "a word"}
        return [self.start(words, rank, 4, hosts.enter(rank // 2), CHIMERA_LOCAL_RANK=str(rank % 2),
                           CHIMERA_LOCAL_WORLD_SIZE="2", **server) for rank in range(4)]

    def test_ranks_that_share_layers_are_on_one_host(self):
        self.shares_layers = True
        expected = self.local_losses(stages=4)
        with Hosts(2) as hosts:
            self.assert_trained(self.ranks_on(hosts, self.training(stages=4)), expected)

    def test_two_hosts_train_as_one(self):
        expected = self.local_losses(stages=4)
        with Hosts(2) as hosts:
            ranks = self.ranks_on(hosts, self.training(stages=4))
            heard = set()
            while any(rank.poll() is None for rank in ranks):
                for host in range(2):
                    heard |= hosts.listeners(host)
                time.sleep(0.01)
            self.assert_trained(ranks, expected)
        self.assertEqual(heard, {"01004D0A", "02004D0A"}, "they listen at their own addresses alone")

    def test_loopback_that_is_down_is_named(self):
        with Hosts(1) as hosts:
            hosts.ip("-n", hosts.names[0], "link", "set", "lo", "down")
            result = self.run_words([*hosts.enter(0), *self.training()], code=1)
        self.assertIn("the loopback interface is down or has no address; bring it up: ip link set lo up\n", result.stderr)

    @needs("IPv6", pathlib.Path("/proc/net/if_inet6").exists())
    def test_a_link_local_address_of_the_route_is_refused(self):
        """Of two hosts on one link, the second has no other address of version 6."""
        server = {"MASTER_ADDR": "2001:db8::5", "MASTER_PORT": "29600", "CHIMERA_SECRET": "a word"}
        with Hosts(2) as hosts:
            for name, address in zip(hosts.names, ("2001:db8::5/64", "fe80::7/64")):
                hosts.ip("-n", name, "-6", "addr", "add", address, "dev", "eth0", "nodad")
            hosts.ip("-n", hosts.names[1], "-6", "route", "add", "2001:db8::/64", "dev", "eth0")
            words = [*self.training(), "--rendezvous-seconds", "5"]
            complaints, codes = self.ended([self.start(words, rank, 2, hosts.enter(rank), **server) for rank in range(2)])
        self.assertEqual(codes[1], 2, complaints)
        self.assertIn("the interface on the route to 2001:db8::5:29600 has only the IPv6 link-local address fe80::7", complaints[1])

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


unittest.main(argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
