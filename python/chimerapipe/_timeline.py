"""When everything of a schedule runs, and why workers wait."""

from __future__ import annotations

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
    """A time in which a worker computes nothing, for one cause."""

    worker: int
    start: float
    end: float
    cause: str
    """`warm_up`, `dependency`, `latency`, `sync` or `imbalance` (docs/schedule_format.md, "Simulations")."""
    waits_for: Op | None
    """The op whose result it waits for, where there is one."""


class Timeline:
    """A simulated step, in the unit of its costs. `Schedule.simulate` makes it."""

    def __init__(self, request: Mapping[str, object]) -> None:
        self._request = dict(request)
        self._data: dict[str, Any] = json.loads(self._file("timeline"))

    def _file(self, format: str) -> str:
        text: str = ask({**self._request, "do": "export", "format": format})["text"]
        return text

    @property
    def makespan(self) -> float:
        """Until the last op, all-reduce and update has ended."""
        return float(self._data["makespan"])

    @property
    def bubble_ratio(self) -> float:
        """Idle time of all workers over workers times makespan, from 0 to 1."""
        return float(self._data["bubble_ratio"])

    @property
    def lower_bound(self) -> float:
        """No order of these ops on these workers has a shorter makespan (src/simulate/lower_bound.h)."""
        return float(self._data["lower_bound"])

    @property
    def period(self) -> float:
        """Time from step to step in the middle of a run of several; the makespan of one."""
        return float(self._data["period"])

    @property
    def peak_stage_units(self) -> float:
        """Most activations on a worker, in those of a full micro-batch on its whole share of the model."""
        return max(float(worker["peak_stage_units"]) for worker in self._data["workers"])

    @property
    def idle_by_cause(self) -> dict[str, float]:
        """Idle time of all workers together, by cause."""
        return dict(self._data["idle_by_cause"])

    @cached_property
    def _ops(self) -> list[list[Op]]:
        return [[Op.of_fields(op) for op in worker["ops"]] for worker in self._data["workers"]]

    def _at(self, place: Mapping[str, int]) -> Op:
        return self._ops[place["worker"]][place["position"]]

    @property
    def critical_path(self) -> list[Op]:
        """The ops that make the makespan, first to last."""
        return [self._at(place) for place in self._data["critical_path"]]

    def explain(self) -> list[Bubble]:
        """Why workers wait: all bubbles, worker by worker, in order of time. Together they are the idle time."""
        return [
            Bubble(
                worker,
                bubble["start"],
                bubble["end"],
                bubble["cause"],
                self._at(bubble["waits_for"]) if "waits_for" in bubble else None,
            )
            for worker, entry in enumerate(self._data["workers"])
            for bubble in entry["bubbles"]
        ]

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each op, for `pandas.DataFrame`: worker, op, stage, replica, micro_batch, start, end."""
        return [
            {"worker": worker, **op}
            for worker, entry in enumerate(self._data["workers"])
            for op in entry["ops"]
        ]

    def workers(self) -> list[dict[str, Any]]:
        """A dict for each worker: busy, idle, peak_in_flight, peak_stage_units and others, without lists."""
        plain = (int, float)
        return [
            {"worker": worker, **{name: value for name, value in entry.items() if isinstance(value, plain)}}
            for worker, entry in enumerate(self._data["workers"])
        ]

    def memory(self, worker: int) -> list[tuple[float, float]]:
        """(time, amount from then on) of a worker: bytes where the costs say them, else stage units."""
        return [(time, amount) for time, amount in self._data["workers"][worker]["memory"]]

    def to_json(self) -> str:
        """As `chimera simulate --format json` prints it."""
        return self._file("timeline")

    def svg(self) -> str:
        """The picture: bubbles by cause, sums, memory, the critical path."""
        return self._file("svg")

    def html(self) -> str:
        """A page that zooms and answers questions. It loads nothing."""
        return self._file("html")

    def perfetto(self) -> str:
        """A trace for ui.perfetto.dev; a unit of time counts as a millisecond."""
        return self._file("perfetto")

    def save(self, path: str) -> None:
        """Writes the picture that the name's end asks for: `.svg`, `.html`, `.json` (for Perfetto) or `.txt`."""
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
