"""Generates and searches schedules."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ._engine import Progress, ScheduleError, ask
from ._costs import Costs
from ._schedule import Schedule, _of_file


@dataclass(frozen=True)
class ScheduleEntry:
    """Description of a schedule (docs/schedules.md)."""

    name: str
    rule: str
    """Order of the ops."""
    constraints: str
    """Allowed D (stages) and N (micro-batches)."""
    closed_form: str
    """Closed form of its bubbles."""
    activations: str
    """Activations that a worker holds."""
    source: str
    """Publication."""
    synchronous: bool
    parameters: dict[str, Any]
    """Parameters in addition to D and N, with their defaults."""


def schedules() -> list[ScheduleEntry]:
    """Returns all schedules that `schedule` generates."""
    names = ScheduleEntry.__dataclass_fields__
    return [ScheduleEntry(**{n: entry[n] for n in names}) for entry in ask({"do": "catalog"})["schedules"]]


def schedule(name: str, stages: int, micro_batches: int, **parameters: int | str) -> Schedule:
    """Generates a schedule with D = `stages` and N = `micro_batches`.

    `schedules` lists names and `parameters`. Raises ScheduleError for an unknown name or parameter, or an impossible
    shape.

    >>> print(schedule("1f1b", stages=2, micro_batches=2))
    worker 0 | 0F0 0F1  .  0B0  .  0B1
    worker 1 |  .  1F0 1B0 1F1 1B1  .
    """
    wanted = {"name": name, "stages": stages, "micro_batches": micro_batches, "parameters": parameters}
    return _of_file(json.loads(ask({"do": "read", "schedule": wanted})["text"]))


@dataclass(frozen=True)
class SearchResult:
    """The fastest order found. Times have the unit of the costs."""

    schedule: Schedule
    makespan: float
    lower_bound: float
    """No order within the limits is faster; equal to the makespan if proven optimal."""
    peak_in_flight: float
    """Peak activations of a worker; 1 is a full micro-batch on its share of the model."""
    origin: str
    """A schedule's name, `list scheduling`, `branch and bound`, or `local search from` one of these."""
    pareto: list[dict[str, Any]]
    """Best trade-offs of makespan and peak_in_flight, fastest first."""


def search(
    start: Schedule | None = None, *, stages: int | None = None, micro_batches: int | None = None,
    placement: str = "linear", costs: Costs | None = None, forward: float = 1.0, backward: float = 2.0,
    latency: float = 0.0, max_in_flight: float | None = None, split_backward: bool | None = None,
    seconds: float | None = None, iterations: int | None = None, seed: int = 0, progress: Progress | None = None,
    **fields: Any,
) -> SearchResult:
    """Searches for a faster order of the ops on the same workers (docs/search.md).

    `start`: schedule to reorder; or `stages`, `micro_batches` and a `placement` with its parameters, such as `chunks`.
    `costs`, or `forward`, `backward` and `latency`: times in one unit.
    `max_in_flight`: limit of a worker's activations; 1 is a full micro-batch on its share of the model.
    `seconds` (default 1) or `iterations`: budget. With `iterations` the result depends only on `seed`.
    `progress`: receives a dict from time to time.
    `fields`: others of the request (docs/playground.md), such as `memory` or `sync`.

    Raises ScheduleError for impossible arguments. Ctrl-C ends the search.
    """
    names = [axis["name"] for axis in ask({"do": "catalog"})["axes"]]
    parameters = {name: fields.pop(name) for name in names if name in fields}
    request: dict[str, object] = {"do": "search", "seed": seed, **fields}
    if start is None and (stages is None or micro_batches is None):
        raise ScheduleError("search: give a schedule to improve, or stages and micro_batches")
    if start is not None:
        request["schedule"] = {"text": start.to_json()}
    else:
        request.update(stages=stages, micro_batches=micro_batches, placement=placement, parameters=parameters)
    half = backward / 2
    times = {"forward": forward, "input_gradient": half, "weight_gradient": half, "latency": latency}
    request["costs"] = times if costs is None else {"file": costs.to_json()}
    request.update(max_in_flight=max_in_flight, split_backward=split_backward, seconds=seconds, iterations=iterations)
    found = ask(request, progress)
    return SearchResult(
        Schedule.from_json(found["schedule"]["text"]), found["makespan"], found["lower_bound"], found["peak_in_flight"],
        found["origin"], found["pareto"],
    )


def sweep(
    schedules: Sequence[str] = (), *, stages: int | Sequence[int], micro_batches: int | Sequence[int] | str,
    **fields: Any,
) -> list[dict[str, Any]]:
    """Ranks schedules as `chimera sweep` does: a dict per row, for `pandas.DataFrame` (docs/sweeps.md).

    `schedules`: names; by default every synchronous schedule with its best parameters.
    `stages`, `micro_batches`: one value, or a list; `"D,2D"` are multiples of the stages.
    `fields`: others of the request (docs/playground.md), such as `parameters`, `costs`, `max_in_flight` or `pareto`.
    """
    request = {"do": "sweep", "schedules": schedules, "stages": stages, "micro_batches": micro_batches, **fields}
    rows: list[dict[str, Any]] = ask(request)["rows"]
    return rows


def search_placements() -> Sequence[str]:
    """Returns the placements that `search` accepts."""
    return [placement["name"] for placement in ask({"do": "catalog"})["placements"]]
