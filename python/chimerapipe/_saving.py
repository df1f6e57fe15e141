"""Checkpoints that are written while training goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from ._processes import OtherRankError, Processes, Understanding


class Saving:
    """A checkpoint under way, as `Pipeline.save_checkpoint(wait=False)` returns it. The process ends after it."""

    def __init__(self, path: str, step: int, written: Future[None]) -> None:
        self.path = path
        """That it will have."""
        self.step = step
        self._written = written

    def done(self) -> bool:
        """Whether it is on the disk, or has failed."""
        return self._written.done()

    def wait(self) -> str:
        """Its path, once all ranks have written it. Raises what has failed."""
        self._written.result()
        return self.path

    def __repr__(self) -> str:
        return f"<Saving {self.path}: {'done' if self.done() else 'under way'}>"


class Saver:
    """Writes the checkpoints of one process, one after the other, on a thread of its own."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._thread: ThreadPoolExecutor | None = None
        self._last: Saving | None = None

    def await_last(self) -> None:
        """Until none is under way. One that has failed has said so."""
        if self._last is not None:
            self._last._written.exception()
            self._last = None

    def start(self, path: str, step: int, write: Callable[[Understanding], None]) -> Saving:
        """Has `write` called on the thread; all processes start theirs in one order."""
        understanding = self._processes.understanding()
        rank = self._processes.rank

        def save() -> None:
            try:
                write(understanding)
            except OtherRankError:
                raise
            except Exception as error:
                what = f"the checkpoint of step {step} is not saved: {error}; training goes on"
                print(f"chimerapipe: rank {rank}: {what}", file=sys.stderr, flush=True)
                raise
            finally:
                understanding.leave()

        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._last = Saving(path, step, self._thread.submit(save))
        return self._last
