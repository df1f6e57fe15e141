"""Equal answers on the processes of a job."""

from __future__ import annotations

import importlib
import itertools
import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

from ._engine import ScheduleError
from ._launcher import LauncherError, place

Answer = TypeVar("Answer")

_CALLS: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
_ANSWERING: list[bool] = []


def rank_0s(function: str, arguments: object, compute: Callable[[], Answer], mesh: Any = None) -> Answer:
    """Returns rank 0's result of `compute`, or raises its error, on every rank that asks. Rank 0 does not wait.

    `mesh`: as of Pipeline; its first rank answers in place of the job's. Outside of a job, and in nested calls,
    computes here. Raises ScheduleError if the ranks' `arguments` differ.
    """
    try:
        rank, world = place()
    except LauncherError:
        rank, world = 0, 1  # Pipeline refuses it; an answer needs no other process
    among = ""
    if mesh is not None and not _ANSWERING:
        ranks = importlib.import_module("._processes", __package__).ranks_of(mesh, rank)
        rank, world, among = ranks.index(rank), len(ranks), "-".join(map(str, ranks)) + "/"
    if world == 1 or _ANSWERING:
        return compute()
    store = importlib.import_module("._processes", __package__).common_store()
    key = f"chimerapipe/{among}{function} {next(_CALLS[among + function])}"
    if rank == 0:
        store.set(key, pickle.dumps((repr(arguments), *_outcome(compute))))
    asked, error, answer = pickle.loads(store.get(key))
    if asked != repr(arguments):
        own = repr(arguments)
        raise ScheduleError(f"{function}: rank 0 has the arguments {asked}, rank {rank} {own}; all ranks give the same")
    if error is not None:
        raise error
    found: Answer = answer
    return found


def _outcome(compute: Callable[[], Answer]) -> tuple[Exception | None, Answer | None]:
    _ANSWERING.append(True)
    try:
        return None, compute()
    except Exception as error:
        return error, None
    finally:
        _ANSWERING.pop()
