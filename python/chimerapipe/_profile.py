"""Measured costs of layers."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import overload

from ._costs import Costs
from ._engine import ScheduleError
from ._schedule import Schedule
from ._tables import html_table


@dataclass(frozen=True)
class LayerCost:
    """Cost of a layer for one micro-batch."""

    forward: float
    """Time of F, in seconds or another common unit."""
    input_gradient: float
    """Time of I."""
    weight_gradient: float
    """Time of W."""
    weights: float = 0.0
    """Bytes of parameters."""
    state: float = 0.0
    """Bytes of gradients and optimizer state."""
    activations: float = 0.0
    """Bytes saved for the backward."""
    output: float = 0.0
    """Bytes of output."""
    name: str = ""


@dataclass(frozen=True)
class Profile(Sequence[LayerCost]):
    """Costs of layers at one or several micro-batch sizes. As a sequence: the costs at the largest."""

    sizes: Mapping[int, tuple[LayerCost, ...]]
    """Costs of all layers by micro-batch size in samples."""

    def __post_init__(self) -> None:
        if not self.sizes or not all(self.sizes.values()) or len({len(row) for row in self.sizes.values()}) > 1:
            raise ValueError("a profile needs at least one size, and at each size the costs of the same layers")

    @property
    def micro_batch_size(self) -> int:
        """The largest size."""
        return max(self.sizes)

    @property
    def layers(self) -> tuple[LayerCost, ...]:
        """Costs at the largest size."""
        return self.sizes[self.micro_batch_size]

    @overload
    def __getitem__(self, index: int) -> LayerCost: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LayerCost]: ...
    def __getitem__(self, index: int | slice) -> LayerCost | Sequence[LayerCost]:
        return self.layers[index]

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerCost]:
        return iter(self.layers)

    def costs(self, schedule: Schedule, partition: Sequence[int] = ()) -> Costs:
        """Returns costs of the schedule's stages. `partition`: layers of each stage; even by default.

        Raises ScheduleError if the partition does not match.
        """
        stages, layers = schedule.stages, len(self.layers)
        even, more = divmod(layers, stages)  # The first stages have one more layer
        counts = list(partition) or [even + (stage < more) for stage in range(stages)]
        if len(counts) != stages or sum(counts) != layers or min(counts) < 1:
            raise ScheduleError(f"partition {counts} must be {stages} positive numbers that add up to {layers} layers")
        ends = list(itertools.accumulate(counts))
        held = [self.layers[end - count : end] for count, end in zip(counts, ends, strict=True)]

        def total(name: str) -> list[float]:
            return [sum(getattr(layer, name) for layer in stage) for stage in held]

        return Costs(total("forward"), total("input_gradient"), total("weight_gradient"))

    def rows(self) -> list[dict[str, object]]:
        """Returns a dict per layer and micro-batch size, for `pandas.DataFrame`."""
        return [
            {"layer": index, "micro_batch_size": size, **vars(cost)}
            for size, costs in sorted(self.sizes.items())
            for index, cost in enumerate(costs)
        ]

    def __repr__(self) -> str:
        sizes = ", ".join(map(str, sorted(self.sizes)))
        return f"<Profile: {len(self)} layers, micro-batches of {sizes} samples>"

    def _repr_html_(self) -> str:
        return html_table(self.rows(), "seconds and bytes of each layer and micro-batch size")

    def __str__(self) -> str:
        lines = ["layer  samples     forward    backward  weights MiB  activations MiB  name"]
        for row in self.rows():
            cost = self.sizes[int(str(row["micro_batch_size"]))][int(str(row["layer"]))]
            backward = cost.input_gradient + cost.weight_gradient
            sizes = f"{cost.weights / 2**20:>11.2f}  {cost.activations / 2**20:>15.2f}"
            lines.append(
                f"{row['layer']:>5}  {row['micro_batch_size']:>7}  {cost.forward:>10.4g}  {backward:>10.4g}  {sizes}  "
                f"{cost.name}"
            )
        return "\n".join(lines)
