"""Waits of ranks for each other, in which ranks that made different calls find each other.

A rank that waits for long says in the launcher's key-value store for what, and reads what others say.
"""

import itertools
import json
import time
from collections.abc import Callable
from typing import Any

from . import _training

SECONDS = 1.0  # Between two looks at what other ranks wait for
_TOKENS = itertools.count()


class Wait:
    """A wait of this rank for all others in a call."""

    def __init__(self, store: Callable[[], Any], key: str, rank: int, world: int, call: str, pipeline: int) -> None:
        """`key`: of the ranks. `pipeline`: number of the pipeline whose call it is."""
        self._store, self._keys = store, [f"{key}waits/{each}" for each in range(world)]
        self._rank, self._call, self._pipeline = rank, call, pipeline
        self._token, self._looks = next(_TOKENS), 0
        self._seen: dict[int, Any] = {}  # What others said at the last look

    def look(self) -> None:
        """Raises ConfigError if another rank waits in another call. Called again and again while the wait lasts."""
        store = self._store()
        self._looks += 1
        self._say({})
        told = {}
        for rank, key in enumerate(self._keys):
            if rank != self._rank and store.check([key]):
                found = json.loads(store.get(key))
                if (found["call"], found["pipeline"]) != (self._call, self._pipeline):
                    told[rank] = found
        against = {str(rank): each["token"] for rank, each in told.items()}
        for rank, each in told.items():
            before = self._seen.get(rank, {})
            goes_on = before.get("token") == each["token"] and before["looks"] < each["looks"]
            if goes_on or each["against"].get(str(self._rank)) == self._token:
                self._say(against)
                time.sleep(2 * SECONDS)  # So that the others read it before this process may end
                raise _training.ConfigError(self._words(rank, each))
        self._seen = told

    def _say(self, against: dict[str, int]) -> None:
        said = {"call": self._call, "pipeline": self._pipeline, "token": self._token}
        self._store().set(self._keys[self._rank], json.dumps({**said, "looks": self._looks, "against": against}))

    def _words(self, rank: int, other: Any) -> str:
        which = self._call == other["call"]
        calls = {self._rank: (self._call, self._pipeline), rank: (other["call"], other["pipeline"])}
        words = [f"{call}{f' of pipeline {n}' if which else ''} on rank {r}" for r, (call, n) in sorted(calls.items())]
        return f"call: {', but '.join(words)}; all ranks must give the same"
