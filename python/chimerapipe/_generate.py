"""Schedules by name, and searching for others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._engine import Progress, ScheduleError, ask
from ._costs import Costs
from ._schedule import Schedule, _of_file


@dataclass(frozen=True)
class ScheduleEntry:
    """What is known of a schedule (docs/schedules.md)."""

    name: str
    rule: str
    """How its ops are ordered."""
    constraints: str
    """On D (stages) and N (micro-batches)."""
    closed_form: str
    """Its bubbles."""
    activations: str
    """That a worker holds."""
    source: str
    """Where it was published."""
    synchronous: bool
    parameters: dict[str, Any]
    """That it takes beside D and N, with their usual values."""


def schedules() -> list[ScheduleEntry]:
    """All schedules that `schedule` makes by name."""
    names = ScheduleEntry.__dataclass_fields__
    return [ScheduleEntry(**{n: entry[n] for n in names}) for entry in ask({"do": "catalog"})["schedules"]]


def schedule(name: str, stages: int, micro_batches: int, **parameters: int | str) -> Schedule:
    """The schedule of that name for D = `stages` and N = `micro_batches`; `parameters` as `schedules` lists them.

    Raises ScheduleError for an unknown name, and for a shape that the schedule does not have. An op is `2F5`: stage,
    F, B, I or W, micro-batch.

    >>> print(schedule("1f1b", stages=2, micro_batches=2))
    worker 0 | 0F0 0F1  .  0B0  .  0B1
    worker 1 |  .  1F0 1B0 1F1 1B1  .
    """
    wanted = {"name": name, "stages": stages, "micro_batches": micro_batches, "parameters": parameters}
    return _of_file(json.loads(ask({"do": "read", "schedule": wanted})["text"]))


@dataclass(frozen=True)
class SearchResult:
    """The fastest order that a search has found. Times are in the unit of the costs."""

    schedule: Schedule
    makespan: float
    lower_bound: float
    """No order within the limits is faster; equal to the makespan where that was proven."""
    peak_in_flight: float
    """Most activations on a worker, in those of a full micro-batch on its whole share of the model."""
    origin: str
    """Where it came from: a schedule's name, `list scheduling`, `branch and bound`, or `local search from` one."""
    pareto: list[dict[str, Any]]
    """makespan, peak_in_flight and origin of finds of which none is better in both, fastest first."""


def search(
    start: Schedule | None = None,
    *,
    stages: int | None = None,
    micro_batches: int | None = None,
    placement: str = "linear",
    costs: Costs | None = None,
    forward: float = 1.0,
    backward: float = 2.0,
    latency: float = 0.0,
    max_in_flight: float | None = None,
    split_backward: bool | None = None,
    seconds: float | None = None,
    iterations: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **parameters: int | str,
) -> SearchResult:
    """Looks for a faster order of the ops on the same workers (docs/search.md).

    Either of a schedule's own ops, from `start`, or for `stages` and `micro_batches` on a `placement` by name:
    `bidirectional`, `linear`, `loop`, `v`, `wave`, with its `parameters`. `max_in_flight`: most activations of a
    worker, in those of a full micro-batch on its whole share. `seconds` (1 if nothing is said) or `iterations`, with
    which the result depends on `seed` alone. `progress` gets a dict now and then; Ctrl-C ends the search.
    """
    request: dict[str, object] = {"do": "search", "seed": seed}
    if start is None and (stages is None or micro_batches is None):
        raise ScheduleError("search: give a schedule to improve, or stages and micro_batches")
    if start is not None:
        request["schedule"] = {"text": start.to_json()}
    else:
        request.update(stages=stages, micro_batches=micro_batches, placement=placement, parameters=parameters)
    half = backward / 2
    times = {"forward": forward, "input_gradient": half, "weight_gradient": half, "latency": latency}
    request["costs"] = times if costs is None else {"file": costs.to_json()}
    limits = {"max_in_flight": max_in_flight, "split_backward": split_backward}
    budget = {"seconds": seconds, "iterations": iterations}
    request.update({name: value for name, value in {**limits, **budget}.items() if value is not None})
    found = ask(request, progress)
    return SearchResult(
        Schedule.from_json(found["schedule"]["text"]),
        found["makespan"],
        found["lower_bound"],
        found["peak_in_flight"],
        found["origin"],
        found["pareto"],
    )


def search_placements() -> Sequence[str]:
    """The names that `search` takes as `placement`."""
    return [placement["name"] for placement in ask({"do": "catalog"})["placements"]]
