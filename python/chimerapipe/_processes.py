"""The processes of a pipeline's ranks: how they meet, tell each other, and end together."""

from __future__ import annotations

import functools
import itertools
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import torch

from . import _training

_MEETINGS = itertools.count()  # of this process's pipelines, which all processes make in one order
_POLL_SECONDS = 0.01


class OtherRankError(_training.Error):
    """What another rank said of its failure."""


class Understanding(Protocol):
    """How ranks tell each other whether a part of a common task has succeeded on all of them."""

    def all_or_none(self, call: Callable[[], Any]) -> Any:
        """What it returns. Where it fails on one process all raise: that one its own error, others what it says."""

    def leave(self) -> None:
        """To be called after the last part."""


def _outcome(rank: int, call: Callable[[], Any], exchange: Callable[[str], list[str]]) -> Any:
    """One part: `exchange` gives the words of this rank to all, empty where it succeeded, and returns those of all."""
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
    """Those that a launcher has started, of which this is one; or this one alone, whose threads are the ranks."""

    def __init__(self) -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0")) if self.world > 1 else 0
        self._group: Any = None

    def gathered(self, value: Any) -> list[Any]:
        """Of all processes, by rank."""
        if self.world == 1:
            return [value]
        values: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(values, value, group=self.group())
        return values

    def all_or_none(self, call: Callable[[], Any]) -> Any:
        """What it returns. Where it fails on one process all raise: that one its own error, others what it says."""
        return _outcome(self.rank, call, self.gathered)

    def leave(self) -> None:
        """Nobody waits: parts are collective."""

    def understanding(self) -> Understanding:
        """One that any thread may use meanwhile. All processes make theirs in one order."""
        if self.world == 1:
            return self
        return _InStore(_common_store(), f"chimerapipe/understanding {next(_MEETINGS)}", self.rank, self.world)

    def group(self) -> Any:
        """The caller's default group, or one of our own in its place: beside one that has NCCL alone, a Gloo one."""
        if not torch.distributed.is_initialized():
            store = _launchers_store()
            torch.distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world)
        if self._group is None:
            has_cpu = "cpu" in torch.distributed.get_backend_config()
            self._group = torch.distributed.group.WORLD if has_cpu else torch.distributed.new_group(backend="gloo")
        return self._group

    def join(self, run: _training.Run) -> None:
        """Connects the run's transports; all processes make their pipelines in one order."""
        store = _common_store()
        key = f"chimerapipe/meeting {next(_MEETINGS)}"
        if os.environ.get("LOCAL_WORLD_SIZE", str(self.world)) == str(self.world):
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
        host = os.environ["MASTER_ADDR"]
        if self.rank == 0:
            store.set(key, str(_free_port()))
        run.join_at_server(host, int(store.get(key)), self.world)

    def join_gpus(self, run: _training.Run, plan: _training.Plan, device: torch.device) -> None:
        """Connects them over NCCL; every communicator is made at once, in one order on all ranks."""
        store = torch.distributed.PrefixStore(f"chimerapipe/groups {next(_MEETINGS)}", _common_store())

        def made(name: str, members: list[int], blocks: int) -> Any:
            if self.rank not in members or len(members) == 1:
                return None
            own = torch.distributed.PrefixStore(name, store)
            return new_backend(own, members.index(self.rank), len(members), device, blocks)

        of_everyone, of_group, of_pair = plan.block_limits(min(self.gathered(multiprocessors(device))))
        everyone = made("everyone", list(range(self.world)), of_everyone)
        groups = [made(f"group {number}", members, of_group) for number, members in enumerate(plan.rank_groups())]
        pairs = {}
        for low, high in plan.talking_pairs():
            up = made(f"pair {low} {high}", [low, high], of_pair)  # from the lower rank to the higher
            down = made(f"pair {high} {low}", [low, high], of_pair)
            if self.rank == low:
                pairs[high] = (up, down)
            if self.rank == high:
                pairs[low] = (down, up)
        run.join_groups(everyone, groups, pairs)

    def guarded(self, call: Callable[[], Any]) -> Any:
        """Ends this process quietly where another rank has the reason; else what failed is raised as it is."""
        try:
            return call()
        except _training.PeerLostError as error:
            if self.world == 1:
                raise
            print(f"rank {self.rank}: ended, as another rank failed ({error})", file=sys.stderr, flush=True)
            _end_process(3)
        except BaseException:
            if self.world > 1:
                self._fail_visibly()
            raise

    def _fail_visibly(self) -> None:
        """The others notice when this process ends, after its traceback."""
        hook = sys.excepthook

        def print_and_end(kind: Any, error: Any, trace: Any) -> None:
            hook(kind, error, trace)
            _end_process(1)

        sys.excepthook = print_and_end


def multiprocessors(device: torch.device) -> int:
    """Of a GPU."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


def new_backend(store: Any, rank: int, size: int, device: torch.device, blocks: int) -> Any:
    """A connected process group of GPUs, whose kernels take so many thread blocks at most."""
    options = torch.distributed.ProcessGroupNCCL.Options()
    options.config.max_ctas = blocks
    group = torch.distributed.ProcessGroupNCCL(store, rank, size, options)
    group.eager_connect_single_device(device)
    return group


class _InStore:
    """By keys in the launcher's store, which need no collective."""

    def __init__(self, store: Any, name: str, rank: int, world: int) -> None:
        self._store, self._name, self._rank, self._world = store, name, rank, world
        self._parts = itertools.count()

    def all_or_none(self, call: Callable[[], Any]) -> Any:
        return _outcome(self._rank, call, self._exchange)

    def leave(self) -> None:
        """Rank 0 goes last, as the store may be in its process."""
        self._store.set(f"{self._name}/left/{self._rank}", "")
        if self._rank == 0:
            self._await([f"{self._name}/left/{rank}" for rank in range(self._world)])

    def _exchange(self, words: str) -> list[str]:
        part = next(self._parts)
        keys = [f"{self._name}/{part}/{rank}" for rank in range(self._world)]
        self._store.set(keys[self._rank], words)
        self._await(keys)
        return [self._store.get(key).decode() for key in keys]

    def _await(self, keys: list[str]) -> None:
        """Looks now and then: a call that waits would keep the store from others."""
        while not self._store.check(keys):
            time.sleep(_POLL_SECONDS)


def _common_store() -> Any:
    """The caller's, or the launcher's."""
    if torch.distributed.is_initialized():
        return torch.distributed.distributed_c10d._get_default_store()
    return _launchers_store()


@functools.cache
def _launchers_store() -> Any:
    """Where the launcher's processes find each other. One connection serves all pipelines of a process."""
    store, _, _ = next(torch.distributed.rendezvous("env://"))
    return torch.distributed.PrefixStore("chimerapipe", store)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def _end_process(code: int) -> NoReturn:
    """At once: what the C++ side has under way must not hold it up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
