"""Traces of torch.distributed.pipelining, read and explained (docs/why_slow.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from . import _scheduling
from ._costs import Costs
from ._engine import ScheduleError
from ._schedule import Schedule
from ._timeline import Bubble, Timeline

_ALL_STEPS = 10**8


@dataclass(frozen=True)
class FasterSchedule:
    """A schedule that is predicted to be faster than the traced one, for the same micro-batches and ranks."""

    schedule: Schedule
    seconds: float
    """Predicted time of a step."""
    within_memory: bool
    """Whether it holds no more activations and weights than the traced schedule."""
    runs_in_torch: bool
    """Whether torch's table runtime can load `schedule.to_csv()`."""
    assumptions: tuple[str, ...]
    """Costs that are not measured: `even_stages`, `weight_share`."""


class TracedTimeline(Timeline):
    """The measured step of median time."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._take(trace._data["timeline"])

    def _file(self, format: str) -> str:
        return json.dumps(self._data) if format == "timeline" else self._trace._ask(format)


class Trace:
    """A traced pipeline, from `read_traces`. Times are in seconds."""

    step_seconds: float
    """Median time of a step."""
    steps: list[float]
    """Times of all steps."""
    simulated_seconds: float
    """Time of a simulated step with `costs`."""
    findings: list[str]
    """Slow ranks and links, uneven stages, and other outliers."""

    def __init__(self, paths: list[str], first: int, last: int) -> None:
        self._arguments = (paths, first, last)
        self._data: dict[str, Any] = json.loads(self._ask("diagnosis"))
        for name in Trace.__annotations__:
            setattr(self, name, self._data[name])

    def _ask(self, format: str, search_seconds: float = 0) -> str:
        try:
            return _scheduling.diagnose(*self._arguments, search_seconds, format)
        except RuntimeError as error:
            raise ScheduleError(str(error)) from None

    @property
    def schedule(self) -> Schedule:
        """The schedule that ran; named by its generator, or `own order`."""
        return Schedule.from_json(self._data["schedule"])

    @property
    def costs(self) -> Costs:
        """Mean costs of an op in steps of usual time."""
        return Costs.from_json(json.dumps(self._data["costs"]))

    def parts(self) -> list[dict[str, Any]]:
        """Returns a dict per rank: where the seconds of a mean step went."""
        return list(self._data["parts"])

    def rows(self) -> list[dict[str, Any]]:
        """Returns a dict per op of the median step, for `pandas.DataFrame`."""
        return self.timeline().rows()

    def explain(self) -> list[Bubble]:
        """Returns all idle times of the median step, with their causes."""
        return self.timeline().explain()

    def better(self, search_seconds: float = 2) -> list[FasterSchedule]:
        """Returns faster schedules, best first; those that need more memory are last. Also searches for an order."""
        entries = json.loads(self._ask("diagnosis", search_seconds))["better"]
        return [
            FasterSchedule(
                schedule=Schedule.from_json(entry["schedule"]), seconds=entry["seconds"],
                within_memory=entry["within_memory"], runs_in_torch=entry["runs_in_torch"],
                assumptions=tuple(name[8:] for name in entry if name.startswith("assumes_") and entry[name]),
            )
            for entry in entries
        ]

    def timeline(self) -> TracedTimeline:
        """Returns the measured step of median time, for pictures."""
        return TracedTimeline(self)

    def _repr_svg_(self) -> str:
        return self._ask("svg")

    def __str__(self) -> str:
        """Returns the text of `chimera diagnose`."""
        return self._ask("text")

    def __repr__(self) -> str:
        return f"<Trace of {self._data['name']}: {len(self.steps)} steps, median {self.step_seconds:.4g} s>"


def read_traces(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], steps: tuple[int, int] | None = None
) -> Trace:
    """Reads the traces of torch.profiler of all ranks of a pipeline: files, or folders with them.

    `steps` are the first and the last step to read, from 1. Raises ScheduleError if the files are no whole pipeline.
    """
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    return Trace([os.fspath(path) for path in several], *(steps or (1, _ALL_STEPS)))
