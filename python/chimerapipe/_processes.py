"""The processes of a pipeline's ranks: how they meet, tell each other, and end together."""

from __future__ import annotations

import functools
import itertools
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from . import _training

_MEETINGS = itertools.count()  # of this process's pipelines, which all processes make in one order


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
        failure: Exception | None = None
        result = None
        try:
            result = call()
        except Exception as error:
            failure = error
        words = self.gathered(None if failure is None else f"rank {self.rank}: {failure}")
        if failure is not None:
            raise failure
        for other in words:
            if other is not None:
                raise _training.Error(other)
        return result

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
        if torch.distributed.is_initialized():
            store = torch.distributed.distributed_c10d._get_default_store()
        else:
            store = _launchers_store()
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
