"""Simulated timelines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ._engine import ask
from ._op import Op


@dataclass(frozen=True)
class Bubble:
    """Idle time of a worker, with its cause."""

    worker: int
    start: float
    end: float
    cause: str
    """`warm_up`, `dependency`, `latency`, `sync` or `imbalance` (docs/schedule_format.md, "Simulations")."""
    waits_for: Op | None
    """The op that the worker waits for, if any."""


class Timeline:
    """A simulated run, from `Schedule.simulate`. Times have the unit of the costs."""

    makespan: float
    """End of the last op, all-reduce and update."""
    bubble_ratio: float
    """Idle fraction of all workers' time, from 0 to 1."""
    lower_bound: float
    """No order of these ops on these workers is faster (src/simulate/lower_bound.h)."""
    period: float
    """Time per step in the middle of several steps; for one step, the makespan."""
    kept_makespan: float | None
    """With `slow` workers: the makespan of the schedule with its order kept; None otherwise."""
    micro_batch_of_place: list[int] | None
    """With `permute_micro_batches=True`: the micro-batch of the data that stands in each place; None otherwise."""
    idle_by_cause: dict[str, float]
    """Idle time of all workers by cause."""

    def __init__(self, request: Mapping[str, object]) -> None:
        self._request = dict(request)
        self._take(json.loads(self._file("timeline")))

    def _take(self, data: Mapping[str, Any]) -> None:
        self._data = data
        for name in Timeline.__annotations__:
            setattr(self, name, data.get(name))

    def _file(self, format: str) -> str:
        text: str = ask({**self._request, "do": "export", "format": format})["text"]
        return text

    @property
    def peak_stage_units(self) -> float:
        """Peak activations of a worker; 1 is a full micro-batch on its share of the model."""
        return max(float(worker["peak_stage_units"]) for worker in self._data["workers"])

    @cached_property
    def _ops(self) -> list[list[Op]]:
        return [[Op.of_fields(op) for op in worker["ops"]] for worker in self._data["workers"]]

    def _at(self, place: Mapping[str, int]) -> Op:
        return self._ops[place["worker"]][place["position"]]

    @property
    def critical_path(self) -> list[Op]:
        """Ops of the critical path, in order."""
        return [self._at(place) for place in self._data["critical_path"]]

    def explain(self) -> list[Bubble]:
        """Returns all bubbles by worker and time."""
        every = [(w, bubble) for w, entry in enumerate(self._data["workers"]) for bubble in entry["bubbles"]]
        ops = [self._at(bubble["waits_for"]) if "waits_for" in bubble else None for _, bubble in every]
        found = zip(every, ops, strict=True)
        return [Bubble(w, bubble["start"], bubble["end"], bubble["cause"], op) for (w, bubble), op in found]

    def rows(self) -> list[dict[str, Any]]:
        """Returns a dict per op, for `pandas.DataFrame`."""
        return [{"worker": w, **op} for w, entry in enumerate(self._data["workers"]) for op in entry["ops"]]

    def workers(self) -> list[dict[str, Any]]:
        """Returns a dict per worker: busy, idle, peak_in_flight, peak_stage_units and others."""
        plain = (int, float)
        return [
            {"worker": worker, **{name: value for name, value in entry.items() if isinstance(value, plain)}}
            for worker, entry in enumerate(self._data["workers"])
        ]

    def memory(self, worker: int) -> list[tuple[float, float]]:
        """Returns (time, amount from then on) of a worker: bytes if the costs have them, otherwise stage units."""
        return [(time, amount) for time, amount in self._data["workers"][worker]["memory"]]

    def to_json(self) -> str:
        """Returns the output of `chimera simulate --format json`."""
        return self._file("timeline")

    def svg(self) -> str:
        """Returns a picture: bubbles by cause, all-reduces, memory, critical path."""
        return self._file("svg")

    def html(self) -> str:
        """Returns an interactive page without external files."""
        return self._file("html")

    def perfetto(self) -> str:
        """Returns a trace for ui.perfetto.dev, where a unit of time is a millisecond."""
        return self._file("perfetto")

    def save(self, path: str) -> None:
        """Writes the format of the suffix: `.svg`, `.html`, `.json` (Perfetto) or `.txt`. Raises ValueError for others.
        """
        formats = {".svg": "svg", ".html": "html", ".json": "perfetto", ".txt": "text"}
        kind = formats.get(Path(path).suffix)
        if kind is None:
            raise ValueError(f"{path}: the name must end with one of {', '.join(formats)}")
        Path(path).write_text(self._file(kind), encoding="utf-8")

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        return self._file("text")

    def __repr__(self) -> str:
        return f"<Timeline: makespan {self.makespan:g}, bubble ratio {self.bubble_ratio:.4g}>"
