"""Parameters that several stages share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from . import _training
from ._placed import local_of
from ._processes import Processes


@dataclass
class SharedParameter:

    name: str
    """Its first global name."""
    stages: list[int]
    """Stages that use it, ascending."""
    leaves: dict[tuple[int, int], nn.Parameter] = field(default_factory=dict)
    """By rank and stage, of this process. They share memory; each has its own gradient."""
    ranks: list[int] = field(default_factory=list)
    """Ranks with leaves, of all processes."""
    group: Any = None
    """Process group of `ranks`; None on other ranks, and if there is only one."""
    is_connected: bool = False
    """Whether the ranks have made the group; all make it together, once."""

    @property
    def first(self) -> nn.Parameter | None:
        """The leaf of the lowest stage in this process, which optimizers update."""
        return self.leaves[min(self.leaves, key=lambda place: (place[1], place[0]))] if self.leaves else None


class SharedParameters:
    """Keeps values and gradients of shared parameters equal on all ranks that use them."""

    def __init__(self, processes: Processes, plan: _training.Plan, shared: Sequence[SharedParameter]) -> None:
        self._processes, self._plan = processes, plan
        self.all = list(shared)
        users: dict[int, list[int]] = {}
        for rank in range(plan.num_ranks):
            for stage in plan.stages_of(rank):
                users.setdefault(stage, []).append(rank)
        for each in self.all:
            each.ranks = sorted({rank for stage in each.stages for rank in users[stage]})

    def connect(self) -> None:
        """Collective: connects the ranks of each parameter, and starts all with the values of the first stage."""
        for each in self.all:
            if self._processes.world == 1 or len(each.ranks) == 1:
                continue
            if not each.is_connected:
                each.group, each.is_connected = self._processes.group_of(each.ranks), True
            if each.first is not None:
                own = {stage: local_of(leaf.detach()) for stage, leaf in self._owned(each).items()}
                values = self._by_stage(each, own)
                with torch.no_grad():
                    local_of(each.first).copy_(values[0])

    def close(self) -> None:
        for each in self.all:
            each.group = None

    def sum_gradients(self) -> float:
        """Replaces gradients by their sums over stages. Returns the change of the squared norm on this rank: summed
        over all ranks, it counts each parameter once."""
        change = 0.0
        for each in self.all:
            if each.first is None or not each.first.requires_grad:
                continue
            owned = self._owned(each).items()
            own = {stage: local_of(leaf.grad) for stage, leaf in owned if leaf.grad is not None}
            gradients = self._by_stage(each, own)
            total = gradients[0].clone()
            for gradient in gradients[1:]:
                total += gradient
            if self._processes.world == 1 or each.ranks[0] == self._processes.rank:
                change += _square(total) - sum(map(_square, gradients))
            for leaf in each.leaves.values():
                if leaf.grad is not None:
                    local_of(leaf.grad).copy_(total)
        return change

    def _owned(self, each: SharedParameter) -> Mapping[int, nn.Parameter]:
        return {stage: leaf for (rank, stage), leaf in each.leaves.items() if rank == self._plan.owner(stage)}

    def _by_stage(self, each: SharedParameter, own: Mapping[int, Tensor]) -> list[Tensor]:
        """Returns the tensors of the stages' owners, in the order of stages."""
        if each.group is None:
            return [own[stage] for stage in each.stages]
        like = local_of(next(iter(each.leaves.values())).detach())
        rows = torch.zeros((len(each.stages), *like.shape), dtype=like.dtype)
        for row, stage in zip(rows, each.stages, strict=True):
            if stage in own:
                row.copy_(own[stage])
        self._processes.finish(each.group.allreduce([rows]))  # Adds zeros
        return list(rows.to(like.device))


def _square(tensor: Tensor) -> float:
    return float(tensor.double().square().sum())


def shared_parameters(layers: Sequence[Any], stage_layers: Sequence[tuple[int, int]]) -> Iterator[tuple[int, Any]]:
    """Yields id and SharedParameter of each parameter that given modules of several stages share."""
    names: dict[int, str] = {}
    stages: dict[int, set[int]] = {}
    for stage, (first, end) in enumerate(stage_layers):
        for index in range(first, end):
            if isinstance(layers[index], nn.Module):
                for name, parameter in layers[index].named_parameters():
                    names.setdefault(id(parameter), f"{index}.{name}")
                    stages.setdefault(id(parameter), set()).add(stage)
    for key, users in stages.items():
        if len(users) > 1:
            yield key, SharedParameter(names[key], sorted(users))
