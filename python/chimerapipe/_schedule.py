"""Schedules: ops of each worker, in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ._engine import ScheduleError, ask
from ._costs import Costs
from ._op import Op
from ._timeline import Timeline


@dataclass(frozen=True)
class Violation:
    """A defect, with its counterexample (docs/schedule_format.md, "Checks")."""

    kind: str
    """`missing_op`, `cycle`, `deadlock` and others (src/check/violation.h)."""
    message: str
    """One line."""
    level: str
    """`schedule`, or `program` with its message queueing."""
    places: tuple[tuple[int, int], ...]
    """(worker, position) of ops, or of instructions at level `program`. A cycle lists pairs: an op, and the op that it
    waits for."""
    counter_example: tuple[Op, ...] = ()
    """The ops at `places`; empty at level `program`."""
    excerpt: str = ""
    """Rows of the counterexample."""

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True)
class Updates:
    """Weight updates of an asynchronous schedule (docs/schedule_format.md)."""

    micro_batches: int
    """Micro-batches per update of a stage."""
    versions: int
    """Most weight versions that a stage keeps."""
    delay: int | None = None
    """Updates between newest and used weights; None: the newest at the start of the forward."""


@dataclass(frozen=True, init=False)
class Schedule:
    """The ops of each worker in order, and the workers of the stages. Comparable and picklable.

    `workers` may contain ops or texts (`2F5`, or `2F5r1` for replica 1), or one string per worker:

    >>> Schedule(["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]).check()
    []
    """

    workers: tuple[tuple[Op, ...], ...]
    """workers[w]: ops of worker w, without idle slots, which follow from the timing."""
    placement: tuple[tuple[int, ...], ...]
    """placement[r][s]: worker of stage s in replica r; by default one replica, placed by the ops."""
    name: str
    micro_batches: int
    """N, per step; by default as many as the ops name."""
    micro_batch_scale: float
    """Micro-batch size relative to a full one: 0.5 after backward halving."""
    updates: Updates | None
    """None if synchronous: one update at the end of the step."""
    late_forwards: bool
    """Whether the picture draws forwards as late as possible."""
    order: str | None
    """`slots` or `deepest`, the rule that ordered the ops, if the generator had a choice."""
    groups: int
    """Data-parallel groups among the workers; more than 1 only around lost workers."""

    def __init__(
        self, workers: Sequence[Sequence[Op | str] | str], placement: Sequence[Sequence[int]] | None = None,
        name: str = "own", micro_batches: int | None = None, micro_batch_scale: float = 1.0,
        updates: Updates | None = None, late_forwards: bool = False, order: str | None = None, groups: int = 1,
    ) -> None:
        rows = tuple(tuple(_op(op) for op in (row.split() if isinstance(row, str) else row)) for row in workers)
        places = (_where_first(rows),) if placement is None else tuple(tuple(replica) for replica in placement)
        named = 1 + max((op.micro_batch for row in rows for op in row), default=0)
        values = {"workers": rows, "placement": places, "name": name, "micro_batch_scale": micro_batch_scale}
        values |= {"micro_batches": named if micro_batches is None else micro_batches, "updates": updates}
        values |= {"late_forwards": late_forwards, "order": order, "groups": groups}
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @property
    def stages(self) -> int:
        """Number of stages."""
        return max(map(len, self.placement), default=0)

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    @staticmethod
    def from_json(text: str) -> Schedule:
        """Reads the output of `to_json` or `chimera schedule --format json`, without checking it."""
        return _read(text)

    @staticmethod
    def from_csv(text: str) -> Schedule:
        """Reads CSV of torch.distributed.pipelining, in both dialects, or of `to_csv`. Drops cells that are not ops."""
        return _read(text)

    @staticmethod
    def from_torch(schedule: Any) -> Schedule:
        """Reads a schedule of torch.distributed.pipelining, or a dict from rank to actions.

        Torch 2.11 has the private `pipeline_order` for `ScheduleGPipe` and all multi-stage schedules. For
        `Schedule1F1B` it numbers the last rank's forwards from 1, which `check` reports.
        """
        order = schedule
        if not isinstance(order, Mapping):
            order = getattr(schedule, "pipeline_order", None) or schedule._get_pipeline_order()
        rows = [order[rank] for rank in sorted(order)]
        return Schedule.from_csv("".join(",".join("" if a is None else str(a) for a in row) + "\n" for row in rows))

    @cached_property
    def _text(self) -> str:
        file: dict[str, Any] = {"format": "chimera-schedule", "version": 1, "name": self.name, "stages": self.stages}
        file["micro_batches"] = self.micro_batches
        usual = {"micro_batch_scale": 1, "groups": 1, "order": None, "late_forwards": False}
        file |= {name: getattr(self, name) for name, value in usual.items() if getattr(self, name) != value}
        if self.updates is not None:
            file |= {"synchronous": False, "micro_batches_per_update": self.updates.micro_batches}
            file["weight_versions"] = self.updates.versions
            if self.updates.delay is not None:
                file["update_delay"] = self.updates.delay
        file["replicas"] = [{"id": r, "workers": list(row)} for r, row in enumerate(self.placement)]
        file["workers"] = [[op.fields() for op in row] for row in self.workers]
        return json.dumps(file)

    def _file(self, format: str) -> str:
        text: str = ask({"do": "export", "schedule": {"text": self._text}, "format": format})["text"]
        return text

    def to_json(self) -> str:
        """Returns JSON as `chimera schedule --format json`. Raises ScheduleError if `check` finds violations."""
        return self._file("json")

    def to_csv(self, *, communication: bool = False) -> str:
        """Returns PyTorch's CSV: `compute_only`, or `compute_comms` with `communication`.

        `torch.distributed.pipelining` loads it if there is one replica. V placements fail there over Gloo.
        """
        return self._file("csv-communication" if communication else "csv")

    def check(
        self, *, max_in_flight: float | None = None, strict_order: bool = False, **fields: Any
    ) -> list[Violation]:
        """Returns all violations; empty if the schedule is valid and cannot deadlock.

        `max_in_flight`: limit of a worker's activations; 1 is a full micro-batch on its share of the model.
        `strict_order`: reports gradients accumulated out of sample order.
        `fields`: others of the request (docs/playground.md), such as `pairs` or `memory`.
        """
        request: dict[str, object] = {"do": "check", "schedule": {"text": self._text}, "strict_order": strict_order}
        answer = ask({**request, "max_in_flight": max_in_flight, **fields})
        found = zip(answer["report"]["violations"], answer["excerpts"], strict=True)
        return [self._violation(finding, excerpt) for finding, excerpt in found]

    def _violation(self, finding: Mapping[str, Any], excerpt: str) -> Violation:
        places = tuple((place["worker"], place["position"]) for place in finding["places"])
        ops = tuple(self.workers[w][i] for w, i in places) if finding["level"] == "schedule" else ()
        return Violation(finding["kind"], finding["message"], finding["level"], places, ops, excerpt)

    def simulate(
        self, costs: Costs | None = None, *, forward: float = 1.0, backward: float = 2.0,
        weight_gradient: float | None = None, latency: float = 0.0, stage_factors: Sequence[float] | None = None,
        all_reduce: float = 0.0, weights: float = 0.0, activations: float = 0.0, steps: int = 1,
        sync: str = "eager-opt", data_parallel: int = 1, blocking_sends: bool = False, **fields: Any,
    ) -> Timeline:
        """Simulates the schedule with `costs` per stage, or with times for a worker's share of the model, in any unit.

        `forward`, `backward`: F and B of a full micro-batch. `weight_gradient`: part of B that is W, half by default.
        `latency`: of a message. `all_reduce`: of one stage's gradients.
        `stage_factors`: relative time of each stage.
        `weights`, `activations`: bytes of a worker's share.
        `steps`: number of consecutive steps. `data_parallel`: W.
        `sync`: when all-reduces start: `eager`, `eager-opt` or `post`.
        `blocking_sends`: senders wait for arrival.
        `fields`: others of the request (docs/playground.md), such as `cores`, `max_in_flight`, `without` or
        `attention`.

        Raises ScheduleError if the schedule cannot run.
        """
        request: dict[str, object] = {"schedule": {"text": self._text}, "steps": steps, "sync": sync}
        request |= {"data_parallel": data_parallel, "blocking_sends": blocking_sends}
        names = {"attention", "slice_lengths", "links"} & fields.keys()
        more: dict[str, object] = {name: fields.pop(name) for name in names}
        request |= fields
        if costs is not None:
            return Timeline({**request, "costs": {"file": costs.to_json(), **more}})
        weight = backward / 2 if weight_gradient is None else weight_gradient
        shares: dict[str, object] = {"forward": forward, "input_gradient": backward - weight, "weight_gradient": weight}
        shares |= {"latency": latency, "all_reduce": all_reduce, "weights": weights, "activations": activations}
        if stage_factors is not None:
            shares["stage_factors"] = list(stage_factors)
        return Timeline({**request, "costs": {**shares, **more}})

    def svg(self) -> str:
        """Returns the paper's figure, with equal slots. Raises ScheduleError if `check` finds violations."""
        return self._file("figure")

    def _repr_svg_(self) -> str | None:
        try:
            return self.svg()
        except ScheduleError:
            return None  # Notebooks show the text instead

    def __str__(self) -> str:
        """Returns the figure as text, or the rows of an invalid schedule."""
        try:
            return self._file("figure-text").rstrip("\n")
        except ScheduleError:
            return "\n".join(f"worker {w} | {' '.join(map(str, ops))}" for w, ops in enumerate(self.workers))

    def __repr__(self) -> str:
        ops = sum(len(row) for row in self.workers)
        return f"<Schedule {self.name}: {self.stages} stages, {self.micro_batches} micro-batches, {ops} ops>"


def _op(op: Op | str) -> Op:
    return Op.parse(op) if isinstance(op, str) else Op(*op)


def _where_first(workers: Iterable[Sequence[Op]]) -> tuple[int, ...]:
    """The worker of the first op of each stage."""
    holders: dict[int, int] = {}
    for worker, ops in enumerate(workers):
        for op in ops:
            holders.setdefault(op.stage, worker)
    return tuple(holders.get(stage, 0) for stage in range(1 + max(holders, default=0)))


def _read(text: str) -> Schedule:
    return _of_file(json.loads(ask({"do": "read", "schedule": {"text": text}})["text"]))


def _of_file(file: Mapping[str, Any]) -> Schedule:
    updates = None
    if not file.get("synchronous", True):
        updates = Updates(file["micro_batches_per_update"], file["weight_versions"], file.get("update_delay"))
    return Schedule(
        workers=[[Op.of_fields(op) for op in row] for row in file["workers"]],
        placement=[replica["workers"] for replica in file["replicas"]], name=file["name"],
        micro_batches=file["micro_batches"], micro_batch_scale=file.get("micro_batch_scale", 1.0), updates=updates,
        late_forwards=file.get("late_forwards", False), order=file.get("order"), groups=file.get("groups", 1),
    )
