"""Ranks, groups and micro-batches of a pipeline."""

from . import _training
from ._processes import Processes
from ._schedule import Schedule


class Shape:
    """What a plan makes of the processes of a job."""

    def __init__(self, plan: _training.Plan, schedule: Schedule, groups: int, processes: Processes) -> None:
        """`groups`: W, that each run the schedule."""
        self.plan, self.world, self.rank, self.groups = plan, processes.world, processes.rank, groups
        self.stages, self.schedule = schedule.stages, schedule.name
        self.ranks = [self.rank] if self.world > 1 else list(range(plan.num_ranks))  # Of this process
        self.width = groups if self.world > 1 else 1  # Shares of a mini-batch
        self.group = int(plan.group(self.rank)) if self.world > 1 else 0
        self.batch_size = int(plan.mini_batch) // self.width  # Samples of a step on this process
        self.per_op = int(plan.mini_batch) // (schedule.micro_batches * groups)  # Samples
        self.micro_batches = self.batch_size // self.per_op
        self.splits = any(op.kind in "IW" for row in schedule.workers for op in row)  # Backwards

    def holds(self, stage: int) -> bool:
        return any(stage in self.plan.stages_of(rank) for rank in self.ranks)

    def holders(self, stage: int) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.world) if self.world == 1 or stage in self.plan.stages_of(rank))

    def copied_holders(self) -> list[tuple[int, ...]]:
        """Returns the groups of several processes that hold the same stages, equal on all processes."""
        holders = [self.holders(stage) for stage in range(self.stages)]
        return [ranks for ranks in dict.fromkeys(holders) if len(ranks) > 1]
