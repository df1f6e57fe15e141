"""Rendezvous, error exchange and exit of the rank processes."""

from __future__ import annotations

import atexit
import ctypes
import functools
import io
import itertools
import json
import os
import socket
import sys
import tempfile
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from . import _training, _waiting
from ._agreement import Facts, first_difference
from ._devices import bind_near, require_own_gpus
from ._launcher import LauncherError, default_group, is_on_one_host, known_place, meeting, place, server
from ._messages import mapped
from ._training import ConfigError

# All processes of a group create rendezvous and tasks in the same order
_SEQUENCES: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
_POLL_SECONDS = 0.01
_OPEN: weakref.WeakSet[Any] = weakref.WeakSet()  # With a method close()
_TORCHRUNS_FILE = "TORCHELASTIC_ERROR_FILE"
_FAILED: list[int] = []  # The rank of this process, once for each failed call
_SECONDS_OF_THE_FIRST = 1.0  # Torchrun blames the process that ends first; other ranks wait for the failed one
_PATIENCE = timedelta(minutes=30)  # Long, because no launcher of ours detects hangs


class OtherRankError(_training.Error):
    """An error that another rank reported."""


class CollectiveTask(Protocol):
    """A task in parts; each part succeeds on all ranks or on none."""

    def all_or_none(self, call: Callable[[], Any]) -> Any:
        """Returns `call()`. If it fails on a rank, that rank raises its error, the others OtherRankError."""

    def leave(self) -> None:
        """Ends the task."""


def _outcome(rank: int, call: Callable[[], Any], exchange: Callable[[str], list[str]]) -> Any:
    """`exchange` sends this rank's error, empty on success, and returns the errors of all ranks."""
    failure: Exception | None = None
    result = None
    try:
        result = call()
    except Exception as error:
        failure = error
    words = exchange("" if failure is None else f"rank {rank}: {failure}")
    if failure is not None:
        raise failure
    for other in words:
        if other:
            raise OtherRankError(other)
    return result


class Processes:
    """The processes of a pipeline: all of the job, or those of a mesh; a single one if ranks are threads."""

    def __init__(self, mesh: Any = None) -> None:
        """`mesh`: a DeviceMesh of one dimension, or a process group. Raises ConfigError if this process is not one of
        its ranks."""
        self.is_given = mesh is not None
        self._key = ""
        try:
            self.rank, self.world = place()
            self.ranks = list(range(self.world))  # In the job
            if mesh is not None:
                self.ranks = ranks_of(mesh, self.rank)
                self._key = "-".join(map(str, self.ranks)) + "/"
                self.rank, self.world = self.ranks.index(self.rank), len(self.ranks)
            if self.world > 1:
                _choose_interface()
        except LauncherError as error:
            raise ConfigError(str(error)) from None
        self._all: Any = None
        self._run: _training.Run | None = None
        # Numbers are equal on all ranks, one of which may also make pipelines of threads
        self._pipeline = next(_SEQUENCES[f"pipelines {self._key}"]) if self.world > 1 else 0
        if self.world > 1:
            close_at_exit(self)
            _close_default_group_at_exit()
            _report_uncaught(self.rank)

    def close(self) -> None:
        """Closes connections. Waits for the other processes, unless an exception ends this one."""
        if self._run is not None:
            self._run.close(has_failed=getattr(sys, "last_value", None) is not None)
        self._all = self._run = None

    def all_or_none(self, call: Callable[[], Any]) -> Any:
        """Returns `call()`. If it fails on a rank, that rank raises its error, the others OtherRankError."""
        return _outcome(self.rank, call, self.told)

    def leave(self) -> None:
        """Does nothing: every part is collective."""

    def exchanged(self, words: str) -> list[str]:
        return [words] if self.world == 1 else self._words().exchange(words)

    def require_equal(self, facts: Facts) -> None:
        """Raises ConfigError on all ranks if their facts differ."""
        told = self.exchanged(json.dumps(facts))
        if difference := first_difference([json.loads(text) for text in told]):
            raise ConfigError(difference)

    def rows(self, row: Sequence[float], dtype: torch.dtype = torch.int64, call: str = "") -> Tensor:
        """Returns the rows of numbers of all ranks, [rank, ...]. Raises PeerLostError if a rank has failed, and
        ConfigError if it waits in another call than `call`."""
        own = torch.tensor(row, dtype=dtype, device="cpu")
        if self.world == 1:
            return own[None]
        rows = [torch.empty_like(own) for _ in range(self.world)]
        if call and self._all is None:  # To make the group waits for long
            self._words(self._wait(call), "call").exchange("")
        work = self._everyone().allgather([rows], [own])
        if call:
            self._await(work, call)
        self.finish(work)
        return torch.stack(rows)

    def _await(self, work: Any, call: str) -> None:
        """Raises ConfigError if other ranks are in other calls."""
        if _ends_within(work, _waiting.SECONDS):
            return
        wait = self._wait(call)
        while not _ends_within(work, _waiting.SECONDS):
            try:
                wait.look()
            except ConfigError:
                for each in (work, self._all):  # The end of its group would wait for it
                    ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
                raise

    def _wait(self, call: str) -> _waiting.Wait:
        return _waiting.Wait(common_store, f"chimerapipe/{self._key}", self.rank, self.world, call, self._pipeline)

    def told(self, value: Any, group: Any = None) -> list[Any]:
        """Returns the values of all ranks of a group of group_of(), by default of all ranks."""
        if self.world == 1:
            return [value]
        if group is None:
            group = self._everyone()
        file = io.BytesIO()
        torch.save(mapped(Tensor.cpu, value), file)
        own = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(group.size())]
        self.finish(group.allgather([sizes], [torch.tensor([len(own)])]))
        parts = [torch.empty(max(map(int, sizes)), dtype=torch.uint8) for _ in sizes]
        padded = torch.zeros_like(parts[0])
        padded[: len(own)] = own
        self.finish(group.allgather([parts], [padded]))
        read = [io.BytesIO(part.numpy()[: int(size)].tobytes()) for part, size in zip(parts, sizes, strict=True)]
        return [torch.load(each, weights_only=False) for each in read]

    def _everyone(self) -> Any:
        if self._all is None:
            self._all = self.group_of(range(self.world))
        return self._all

    def group_of(self, ranks: Sequence[int]) -> Any:
        """Returns a connected Gloo group, None on other ranks. All ranks create all groups in the same order."""
        store = self._new_store("group")
        if self.rank not in ranks:
            return None
        return torch.distributed.ProcessGroupGloo(store, list(ranks).index(self.rank), len(ranks), _PATIENCE)

    def store(self) -> Any:
        """Returns a new key-value store of all processes, None for a single one. All ranks call it together."""
        return None if self.world == 1 else self._new_store("store")

    def _new_store(self, kind: str) -> Any:
        return torch.distributed.PrefixStore(self._new_name(kind), common_store())

    def _new_name(self, kind: str) -> str:
        return f"chimerapipe/{self._key}{kind} {next(_SEQUENCES[self._key])}"

    def claim(self, path: str) -> None:
        """Raises ConfigError if a pipeline of other ranks of the job has claimed the path."""
        if self.is_given:
            key = f"chimerapipe/claimed {os.path.abspath(path)}"
            owner = common_store().compare_set(key, "", str(self.ranks)).decode()
            if owner != str(self.ranks):
                raise ConfigError(
                    f"save_checkpoint: {path} is written by the pipeline of ranks {owner}; give each pipeline a folder "
                    "of its own, or save on one of them if their layers are equal"
                )

    def send_from(self, owner: int, tensor: Tensor) -> None:
        """Copies the owner's tensor on the CPU into those of all other ranks."""
        options = torch.distributed.BroadcastOptions()
        options.rootRank = owner
        self.finish(self._everyone().broadcast([tensor], options))

    def finish(self, work: Any) -> None:
        """Waits for a collective of a group."""
        try:
            work.wait()
        except RuntimeError as error:
            raise _training.PeerLostError(f"rank {self.rank}: {str(error).splitlines()[0]}") from None

    def task(self, call: str = "") -> CollectiveTask:
        """Returns a task for another thread, or one that finds ranks in other calls than `call`."""
        return self if self.world == 1 else self._words(self._wait(call) if call else None)

    def _words(self, wait: _waiting.Wait | None = None, kind: str = "task") -> _StoreTask:
        return _StoreTask(common_store(), self._new_name(kind), self.rank, self.world, wait)

    def join(self, run: _training.Run) -> None:
        self._run = run
        store, key = common_store(), self._new_name("rendezvous")
        hosts = self._words(kind="hosts").exchange(socket.gethostname())
        together = is_on_one_host()
        if together or (together is None and len(set(hosts)) == 1):
            if self.rank == 0:
                handle, path = tempfile.mkstemp(prefix="chimerapipe-")
                os.close(handle)
                store.set(key, path)
            path = store.get(key).decode()
            try:
                run.join_in_file(path, self.world)
            finally:
                if self.rank == 0:
                    os.unlink(path)
            return
        if self.rank == 0:
            store.set(key, f"{_own_address() or hosts[0]} {_free_port()}")
        host, port = store.get(key).decode().split()
        run.join_at_server(host, int(port), self.world)

    def join_gpus(self, run: _training.Run, plan: _training.Plan, device: torch.device) -> None:
        """Connects the run over NCCL. All ranks create all communicators in the same order."""
        self._run = run
        bind_near(device)
        require_own_gpus(self.exchanged(gpu_identity(device)))
        store = self._new_store("groups")

        def made(name: str, members: list[int], blocks: int) -> Any:
            if self.rank not in members or len(members) == 1:
                return None
            own = torch.distributed.PrefixStore(name, store)
            return new_backend(own, members.index(self.rank), len(members), device, blocks)

        of_everyone, of_group, of_pair = plan.block_limits(min(self.told(multiprocessors(device))))
        everyone = made("everyone", list(range(self.world)), of_everyone)
        groups = [made(f"group {number}", members, of_group) for number, members in enumerate(plan.rank_groups())]
        pairs = {}
        for low, high in plan.talking_pairs():
            up = made(f"pair {low} {high}", [low, high], of_pair)  # From the lower to the higher rank
            down = made(f"pair {high} {low}", [low, high], of_pair)
            if self.rank == low:
                pairs[high] = (up, down)
            if self.rank == high:
                pairs[low] = (down, up)
        run.join_groups(everyone, groups, pairs, 2 * len(pairs) * of_pair)

    def guarded(self, call: Callable[[], Any]) -> Any:
        """Returns `call()`. After a failure the other ranks lose their connections to this one; if nobody catches the
        exception, the process exits: with one line if another rank failed first."""
        try:
            return call()
        except BaseException:
            if self.world > 1:
                self._all = None
                _FAILED.append(self.rank)
            raise


@functools.cache
def _report_uncaught(rank: int) -> None:
    """Prints an exception that nobody catches, also one between two calls, and records it for torchrun. After a failed
    call, ends the process, so that other ranks detect the failure."""
    hook = sys.excepthook

    def print_and_end(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, _training.PeerLostError):
            print(f"rank {rank}: exits because another rank failed or ended ({error})", file=sys.stderr, flush=True)
            if _TORCHRUNS_FILE in os.environ:
                time.sleep(_SECONDS_OF_THE_FIRST)
            _end_process(3)
        hook(kind, error, trace)
        _record_for_torchrun(error)
        if _FAILED:
            _end_process(1)

    sys.excepthook = print_and_end


def _record_for_torchrun(error: BaseException) -> None:
    """Writes the error file of torchrun, whose report then names this rank and its error."""
    if _TORCHRUNS_FILE in os.environ:
        from torch.distributed.elastic.multiprocessing.errors import get_error_handler

        try:
            raise error  # The handler describes the exception in flight
        except BaseException:
            get_error_handler().record_exception(error)


def ranks_of(mesh: Any, rank: int) -> list[int]:
    """Returns the ranks of a mesh or a process group in the default group. Raises ConfigError if `rank` is not one."""
    if default_group() is None:
        raise ConfigError("mesh: there is no process group; call torch.distributed.init_process_group first")
    if isinstance(mesh, torch.distributed.device_mesh.DeviceMesh):
        if mesh.ndim != 1:
            names = mesh.mesh_dim_names
            hint = f"as mesh[{names[0]!r}] of {', '.join(names)}" if names else "with init_device_mesh(mesh_dim_names=)"
            raise ConfigError(f"mesh: has {mesh.ndim} dimensions; give the pipeline's alone, {hint}")
        ranks = list(map(int, mesh.mesh.flatten()))
    elif isinstance(mesh, torch.distributed.ProcessGroup):
        ranks = list(torch.distributed.get_process_group_ranks(mesh))
    elif mesh is torch.distributed.GroupMember.NON_GROUP_MEMBER:
        raise ConfigError(f"mesh: rank {rank} is not in this process group; only its ranks make the pipeline")
    else:
        raise ConfigError(f"mesh: got a {type(mesh).__name__}; give a DeviceMesh of one dimension, or a process group")
    if rank not in ranks:
        raise ConfigError(f"mesh: rank {rank} is not in it; only its ranks {ranks} make the pipeline")
    return ranks


@functools.cache
def _choose_interface() -> None:
    """Makes Gloo's groups of a job on several hosts listen at the interface towards rank 0: by default Gloo takes the
    address of the host's name, which often is 127.0.1.1."""
    together, at = is_on_one_host(), server()
    if together or at is None or "GLOO_SOCKET_IFNAME" in os.environ:
        return
    try:
        interface = _training.gpu_variables(*at)["NCCL_SOCKET_IFNAME"]
    except _training.Error:
        if together is None:  # Perhaps one host without a network
            return
        raise
    os.environ["GLOO_SOCKET_IFNAME"] = interface.removeprefix("=")


def _own_address() -> str:
    """Returns the address of this host on the route to rank 0; the server's name on rank 0's host; empty if unknown."""
    at = server()
    if at is None:
        return ""
    try:
        family, _, _, _, address = socket.getaddrinfo(*at, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as route:
            route.connect(address)  # Sends nothing
            own = str(route.getsockname()[0])
    except OSError:
        return at[0]
    return at[0] if own.startswith("127.") or own == "::1" or own == address[0] else own


def _ends_within(work: Any, seconds: float) -> bool:
    """Waits so long for a collective, which may also have failed."""
    try:
        work.wait(timedelta(seconds=seconds))
    except RuntimeError:
        return bool(work.is_completed())
    return True


def multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def gpu_identity(device: torch.device) -> str:
    return str(torch.cuda.get_device_properties(device).uuid)


def new_backend(store: Any, rank: int, size: int, device: torch.device, blocks: int) -> Any:
    """Returns a connected group with a high-priority stream, whose kernels use at most `blocks` thread blocks.
    Run.join_groups() sets its timeout, 10 minutes so far, and raises it above the longest step."""
    options = torch.distributed.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.max_ctas = blocks
    group = torch.distributed.ProcessGroupNCCL(store, rank, size, options)
    group.eager_connect_single_device(device)
    return group


class _StoreTask:
    """Exchanges errors through the launcher's key-value store, without collectives."""

    def __init__(self, store: Any, name: str, rank: int, world: int, wait: _waiting.Wait | None = None) -> None:
        self._store, self._name, self._rank, self._world, self._wait = store, name, rank, world, wait
        self._parts = itertools.count()

    def all_or_none(self, call: Callable[[], Any]) -> Any:
        return _outcome(self._rank, call, self.exchange)

    def leave(self) -> None:
        """Rank 0 leaves last, because its process may run the store."""
        self._store.set(f"{self._name}/left/{self._rank}", "")
        if self._rank == 0:
            self._await([f"{self._name}/left/{rank}" for rank in range(self._world)])

    def exchange(self, words: str) -> list[str]:
        part = next(self._parts)
        keys = [f"{self._name}/{part}/{rank}" for rank in range(self._world)]
        self._store.set(keys[self._rank], words)
        self._await(keys)
        return [self._store.get(key).decode() for key in keys]

    def _await(self, keys: list[str]) -> None:
        """Polls, because a blocking call would lock the store for other threads."""
        next_look = time.monotonic() + _waiting.SECONDS
        while not self._store.check(keys):
            time.sleep(_POLL_SECONDS)
            if self._wait is not None and time.monotonic() > next_look:
                self._wait.look()
                next_look = time.monotonic() + _waiting.SECONDS


def common_store() -> Any:
    """Returns the key-value store of torch.distributed, or else of the launcher."""
    if torch.distributed.is_initialized():
        return torch.distributed.distributed_c10d._get_default_store()
    return _launchers_store()


@functools.cache
def _launchers_store() -> Any:
    """Returns the launcher's key-value store. Pipelines share one connection."""
    known = known_place()
    store, _, _ = next(torch.distributed.rendezvous("env://" if known is None else meeting(known)))
    return torch.distributed.PrefixStore("chimerapipe", store)


def close_at_exit(owner: Any) -> None:
    """Calls `owner.close()` before the interpreter ends: threads of connections free tensors, which aborts later."""
    _OPEN.add(owner)


@atexit.register
def _close_all() -> None:
    for owner in list(_OPEN):
        owner.close()


@functools.cache
def _close_default_group_at_exit() -> None:

    def close() -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    atexit.register(close)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def _end_process(code: int) -> NoReturn:
    """Exits without waiting for work in C++."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
