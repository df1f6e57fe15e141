"""Inputs, targets and outputs of a step, cut into micro-batches."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree

from ._messages import as_inputs, flattened, mapped, part_of, tensors_of
from ._placed import whole
from ._training import ConfigError


class MicroBatches(list[Any]):
    """Inputs, or targets, of the micro-batches of a step, already cut. They may differ in shape, as long as the values
    between stages do not."""


def as_samples(value: Any) -> Any:
    """Returns inputs or targets; mappings such as a BatchEncoding become dicts."""
    return MicroBatches(map(as_inputs, value)) if isinstance(value, MicroBatches) else as_inputs(value)


def as_tree(value: Any) -> Any:
    """Returns a value that pytree can flatten."""
    return list(value) if isinstance(value, MicroBatches) else value


class StepData:
    """Inputs and targets of a step. The executor cuts a tensor. Of other values it gets the indices of their samples,
    and this object cuts them."""

    def __init__(self) -> None:
        self._inputs: Any = None
        self._targets: Any = None
        self._cuts_inputs = self._cuts_targets = False
        self._per_op = 1
        self.keeps = False
        """The caller wants outputs and losses."""
        self.results: dict[int, tuple[Any, Tensor]] = {}
        """Outputs and losses by the number of the micro-batch, of those that this process has computed."""

    def take_over(self, inputs: Any, targets: Any, samples: int, per_op: int, keeps: bool) -> tuple[Tensor, Tensor]:
        """Returns inputs and targets for the executor. `per_op`: samples of an op. `keeps`: keep outputs and losses."""
        self._inputs, self._targets, self._per_op, self.keeps = inputs, targets, per_op, keeps
        self._cuts_inputs = not isinstance(inputs, Tensor)
        self._cuts_targets = keeps or not isinstance(targets, Tensor)
        if not self._cuts_inputs and not self._cuts_targets:
            return inputs, targets
        indices = torch.arange(samples, device="cpu")
        return indices if self._cuts_inputs else inputs, indices if self._cuts_targets else targets

    def inputs_of(self, given: Tensor) -> Any:
        """Returns the inputs of a micro-batch; `given` is what the executor has cut. Copies of several tensors, which a
        layer may change."""
        return mapped(Tensor.clone, self._part(self._inputs, given)) if self._cuts_inputs else given

    def targets_of(self, given: Tensor) -> Any:
        return self._part(self._targets, given) if self._cuts_targets else given

    def note(self, given: Tensor, output: Any, loss: Tensor) -> None:
        """Keeps the output and the loss of a micro-batch."""
        kept = mapped(lambda each: whole(each).detach(), output)
        self.results[int(given[0]) // self._per_op] = kept, loss.detach()

    def _part(self, value: Any, given: Tensor) -> Any:
        first = int(given[0])
        return value[first // self._per_op] if isinstance(value, MicroBatches) else part_of(value, first, len(given))

    @property
    def is_given_cut(self) -> bool:
        return isinstance(self._inputs, MicroBatches) or isinstance(self._targets, MicroBatches)


def require_cut_alike(name: str, value: MicroBatches, micro_batches: int) -> None:
    if len(value) != micro_batches:
        raise ConfigError(f"{name}: {len(value)} micro-batches, but a step of this process takes {micro_batches}")
    if not tensors_of(list(value)):
        raise ConfigError(f"{name}: a micro-batch has no tensor")


def merged(values: Sequence[Any]) -> Any:
    """Returns values of micro-batches as one: tensors are joined in their first dimension, numbers become a tensor."""
    leaves, tree = zip(*map(flattened, values), strict=True)
    joined = []
    for parts in zip(*leaves, strict=True):
        if not isinstance(parts[0], Tensor):
            joined.append(parts[0])
        else:
            joined.append(torch.cat(parts) if parts[0].dim() else torch.stack(parts))
    return _pytree.tree_unflatten(joined, tree[0])


def in_order(parts: Sequence[Mapping[int, tuple[Any, Tensor]]], device: torch.device) -> tuple[list[Any], list[float]]:
    """Returns outputs and losses of all micro-batches, of which each part has some."""
    every = {number: result for part in parts for number, result in part.items()}
    ordered = [every[number] for number in sorted(every)]
    return [mapped(lambda each: each.to(device), output) for output, _ in ordered], [float(loss) for _, loss in ordered]
