"""Cutting a list of layers into stages, by what they cost."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _scheduling
from ._costs import Costs
from ._engine import ScheduleError
from ._generate import schedule as make_schedule
from ._profile import LayerCost
from ._schedule import Schedule
from ._tables import html_table
from ._timeline import Timeline


@dataclass(frozen=True)
class Partition:
    """Layers of each stage, and what that is worth."""

    layers: tuple[int, ...]
    """[stage]: how many; `Pipeline` takes them as `partition`."""
    slowest: float
    """Time of all ops of the worker that has most to do."""
    least: float
    """No cut in the memory has a smaller `slowest`."""
    costs: Costs
    """Of the stages, for `Schedule.simulate`."""
    layer_costs: tuple[LayerCost, ...]
    schedule: Schedule
    """Whose workers it balances."""

    def rows(self) -> list[dict[str, object]]:
        """A dict for each stage, for `pandas.DataFrame`: layers, times, bytes, its worker in each replica."""
        rows: list[dict[str, object]] = []
        first = 0
        for stage, count in enumerate(self.layers):
            held = self.layer_costs[first : first + count]
            rows.append(
                {
                    "stage": stage,
                    "first_layer": first,
                    "last_layer": first + count - 1,
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
        """The step to expect of the schedule with these stages."""
        return self.schedule.simulate(self.costs)

    def __repr__(self) -> str:
        return f"<Partition {list(self.layers)}: slowest worker {self.slowest:.4g}, least possible {self.least:.4g}>"

    def _repr_html_(self) -> str:
        """The stages as a table, and the picture of the step to expect."""
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
    layers: Sequence[LayerCost] | Any,
    schedule: Schedule | int,
    example: Any = None,
    *,
    memory: float = 0.0,
    recompute: bool = False,
) -> Partition:
    """The layers of each stage that balance the schedule's workers: all stages that a worker holds together.

    `layers`: what each costs, as `profile` measures it; or the model itself, an nn.Sequential, a list of modules or a
    model that `layers_of` knows, which is then measured with `example`, a micro-batch of inputs. `schedule`: or a
    number of stages alone: those of Chimera where it is even, of 1F1B where it is odd. `memory`: bytes of a worker, 0
    for any number; counted are weights, gradients, optimizer state, and the activations in flight. `recompute`: stages
    keep their inputs alone and run forward again. Raises ScheduleError where nothing fits, or there are fewer layers
    than stages. src/plan/balance.h says how the cut is found.
    """
    costs = _costs_of(layers, example)
    if isinstance(schedule, int):
        schedule = make_schedule("1f1b" if schedule % 2 else "chimera", schedule, schedule)
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
        raise ScheduleError(f"no cut into {schedule.stages} stages fits in {memory:g} bytes; recompute, or use more")
    return Partition(
        tuple(found["layers"]), found["slowest"], found["least"], Costs.from_json(found["costs"]), costs, schedule
    )


def _costs_of(layers: Sequence[LayerCost] | Any, example: Any) -> tuple[LayerCost, ...]:
    if example is not None:
        from ._measure import profile  # imports torch

        return profile(layers, example, sizes=[len(example)]).layers
    costs = tuple(layers) if isinstance(layers, Iterable) else ()
    if not costs or not all(isinstance(cost, LayerCost) for cost in costs):
        raise ScheduleError(
            "partition: needs a profile of layers; of a model give an example too, a micro-batch of inputs"
        )
    return costs
