"""Partitions of layers into stages, by cost."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _scheduling
from ._costs import Costs
from ._engine import ScheduleError
from ._generate import schedule as make_schedule
from ._job import rank_0s
from ._profile import LayerCost
from ._schedule import Schedule
from ._tables import html_table
from ._timeline import Timeline


@dataclass(frozen=True)
class Partition:
    """The number of layers of each stage, with costs."""

    layers: tuple[int, ...]
    """By stage; `Pipeline` accepts it as `partition`."""
    slowest: float
    """Time of the slowest worker's ops."""
    least: float
    """Smallest `slowest` of all partitions within the memory limit."""
    costs: Costs
    """Costs of the stages, for `Schedule.simulate`."""
    layer_costs: tuple[LayerCost, ...]
    schedule: Schedule
    """The balanced schedule."""

    def rows(self) -> list[dict[str, object]]:
        """Returns a dict per stage, for `pandas.DataFrame`."""
        rows: list[dict[str, object]] = []
        first = 0
        for stage, count in enumerate(self.layers):
            held = self.layer_costs[first : first + count]
            rows.append(
                {
                    "stage": stage, "first_layer": first, "last_layer": first + count - 1,
                    "forward": sum(layer.forward for layer in held),
                    "backward": sum(layer.input_gradient + layer.weight_gradient for layer in held),
                    "weight_bytes": sum(layer.weights for layer in held),
                    "state_bytes": sum(layer.state for layer in held),
                    "activation_bytes": sum(layer.activations for layer in held),
                    "workers": ", ".join(str(replica[stage]) for replica in self.schedule.placement),
                }
            )
            first += count
        return rows

    def timeline(self) -> Timeline:
        """Simulates a step."""
        return self.schedule.simulate(self.costs)

    def __repr__(self) -> str:
        return f"<Partition {list(self.layers)}: slowest worker {self.slowest:.4g}, least possible {self.least:.4g}>"

    def _repr_html_(self) -> str:
        return html_table(self.rows(), "layers, seconds and bytes of each stage") + self.timeline().svg()

    def __str__(self) -> str:
        lines = ["stage  layers     forward    backward  weights MiB  activations MiB"]
        for row in self.rows():
            layers = f"{row['first_layer']}-{row['last_layer']}"
            times = f"{row['forward']:>10.4g}  {row['backward']:>10.4g}"
            sizes = [float(str(row[name])) / 2**20 for name in ("weight_bytes", "activation_bytes")]
            lines.append(f"{row['stage']:>5}  {layers:>6}  {times}  {sizes[0]:>11.2f}  {sizes[1]:>15.2f}")
        return "\n".join(lines)


def partition(
    layers: Sequence[LayerCost] | Any, schedule: Schedule | int, example: Any = None, *, memory: float = 0.0,
    recompute: bool = False, mesh: Any = None,
) -> Partition:
    """Partitions layers so that the schedule's workers, each with all its stages, are balanced (src/plan/balance.h).

    `layers`: a profile or list of LayerCost; or a model to measure with `example`, a micro-batch of inputs.
    `schedule`: a schedule, or a number of stages for `chimera` (even) or `1f1b` (odd).
    `memory`: bytes of a worker for weights, gradients, optimizer state and activations in flight; 0 is unlimited.
    `recompute`: whether all stages use activation checkpointing.

    In a job, all ranks get rank 0's; with `mesh`, as of Pipeline, its ranks get that of its first rank. Raises
    ScheduleError if nothing fits, or if layers are fewer than stages.
    """
    if isinstance(schedule, int):
        schedule = make_schedule("1f1b" if schedule % 2 else "chimera", schedule, schedule)
    arguments = [str(schedule.name), schedule.stages, schedule.micro_batches, memory, recompute]
    balanced = lambda: _balanced(_costs_of(layers, example), schedule, memory, recompute)
    return rank_0s("partition", arguments, balanced, mesh)


def _balanced(costs: tuple[LayerCost, ...], schedule: Schedule, memory: float, recompute: bool) -> Partition:
    loads = [
        [c.forward, c.input_gradient, c.weight_gradient, c.weights, c.state, c.activations, c.activations]
        for c in costs
    ]
    boundary = max((c.output for c in costs[:-1]), default=0.0)
    try:
        found = json.loads(_scheduling.balance(schedule.to_json(), loads, boundary, memory, recompute))
    except RuntimeError as refusal:
        raise ScheduleError(str(refusal)) from None
    if not found:
        stages = schedule.stages
        raise ScheduleError(f"no partition into {stages} stages fits in {memory:g} bytes; recompute, or allow more")
    return Partition(
        tuple(found["layers"]), found["slowest"], found["least"], Costs.from_json(found["costs"]), costs, schedule
    )


def _costs_of(layers: Sequence[LayerCost] | Any, example: Any) -> tuple[LayerCost, ...]:
    if example is not None:
        from ._measure import profile  # Imports torch
        from ._messages import as_inputs, samples_of

        return profile(layers, example, sizes=[samples_of(as_inputs(example))]).layers
    costs = tuple(layers) if isinstance(layers, Iterable) else ()
    if not costs or not all(isinstance(cost, LayerCost) for cost in costs):
        raise ScheduleError(
            "partition: needs a profile of layers, or a model with an example, which is a micro-batch of inputs"
        )
    return costs
