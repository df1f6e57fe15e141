"""Cutting a list of layers into stages, by what they cost."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from . import _scheduling
from ._costs import Costs
from ._engine import ScheduleError
from ._schedule import Schedule


@dataclass(frozen=True)
class LayerCost:
    """What one layer adds to its stage, for one micro-batch. `measure` finds it."""

    forward: float
    """Seconds of F, or any one unit for all layers."""
    input_gradient: float
    """Seconds of I."""
    weight_gradient: float
    """Seconds of W."""
    weights: float = 0.0
    """Bytes of its parameters."""
    state: float = 0.0
    """Bytes of gradients and optimizer state."""
    activations: float = 0.0
    """Bytes that it saves for its backward."""
    output: float = 0.0
    """Bytes of what it gives."""
    name: str = ""


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

    def rows(self) -> list[dict[str, object]]:
        """A dict for each stage, for `pandas.DataFrame`: first and last layer, times, bytes."""
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
                }
            )
            first += count
        return rows

    def __str__(self) -> str:
        lines = ["stage  layers     forward    backward  weights MiB  activations MiB"]
        for row in self.rows():
            layers = f"{row['first_layer']}-{row['last_layer']}"
            times = f"{row['forward']:>10.4g}  {row['backward']:>10.4g}"
            sizes = [float(str(row[name])) / 2**20 for name in ("weight_bytes", "activation_bytes")]
            lines.append(f"{row['stage']:>5}  {layers:>6}  {times}  {sizes[0]:>11.2f}  {sizes[1]:>15.2f}")
        return "\n".join(lines)


def stage_costs(layers: Sequence[LayerCost], stages: int, partition: Sequence[int] = ()) -> Costs:
    """Times of the stages of a cut; left out: the even one, whose first stages have a layer more."""
    even, more = divmod(len(layers), stages)
    counts = list(partition) or [even + (stage < more) for stage in range(stages)]
    if len(counts) != stages or sum(counts) != len(layers) or min(counts) < 1:
        raise ScheduleError(f"partition {counts} must be {stages} positive numbers that add up to {len(layers)} layers")
    ends = list(itertools.accumulate(counts))
    held = [layers[end - count : end] for count, end in zip(counts, ends, strict=True)]

    def total(name: str) -> list[float]:
        return [sum(getattr(layer, name) for layer in stage) for stage in held]

    return Costs(total("forward"), total("input_gradient"), total("weight_gradient"))


def partition(
    layers: Sequence[LayerCost], schedule: Schedule, *, memory: float = 0.0, recompute: bool = False
) -> Partition:
    """The layers of each stage that balance the schedule's workers: all stages that a worker holds together.

    `memory`: bytes of a worker, 0 for any number; counted are weights, gradients, optimizer state, and the activations
    in flight. `recompute`: stages keep their inputs alone and run forward again. Raises ScheduleError where nothing
    fits, or there are fewer layers than stages. src/plan/balance.h says how the cut is found.
    """
    loads = [
        [c.forward, c.input_gradient, c.weight_gradient, c.weights, c.state, c.activations, c.activations]
        for c in layers
    ]
    boundary = max((c.output for c in layers[:-1]), default=0.0)
    try:
        found = json.loads(_scheduling.balance(schedule.to_json(), loads, boundary, memory, recompute))
    except RuntimeError as refusal:
        raise ScheduleError(str(refusal)) from None
    if not found:
        raise ScheduleError(f"no cut into {schedule.stages} stages fits in {memory:g} bytes; recompute, or use more")
    costs = Costs.from_json(found["costs"])
    return Partition(tuple(found["layers"]), found["slowest"], found["least"], costs, tuple(layers))
