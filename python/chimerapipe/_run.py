"""The run of a pipeline: the executor with its connections."""

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import _training
from ._calls import Call
from ._devices import require_margin, uses_nccl
from ._distributed import OnLocals, square_norm
from ._held_layer import Boundaries
from ._layers import Layers, clip_factor
from ._loss import CheckedLoss, Count
from ._modules import unchanged
from ._processes import Processes
from ._random import saved_states_in_turn, untouched_generators
from ._shape import Shape
from ._step_data import StepData, in_order, merged

_CHECK_COPIES_EVERY = 128  # Steps
Gradients = Sequence[tuple[nn.Parameter, Tensor]]


class Run:
    """Steps and validations on the executor. A failure ends it."""

    def __init__(self, processes: Processes, shape: Shape, layers: Layers, loss: CheckedLoss, count: Count) -> None:
        self._processes, self._shape, self._layers = processes, shape, layers
        self._loss, self._count = loss, count
        self.is_started = False
        """Shapes are known, and replicas have equal values."""
        self.has_failed = False
        self.is_busy = False
        """During a call."""
        self._is_used = self._is_validated = False
        self._engine = self._new_engine()

    @property
    def steps(self) -> int:
        """Completed steps, including those before a loaded checkpoint."""
        return int(self._engine.steps)

    @steps.setter
    def steps(self, steps: int) -> None:
        self._engine.steps = steps

    def require_usable(self) -> None:
        if self.has_failed:
            raise _training.Error("this pipeline has failed before, or is closed; create a new one")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Scope of a call. Raises Error during another one of this process."""
        if self.is_busy:
            raise _training.Error("this pipeline is busy with a call on another thread; call it from one thread")
        self.is_busy = True
        try:
            yield
        finally:
            self.is_busy = False

    def connect(self) -> None:
        self._processes.guarded(self._connect)

    def close(self) -> None:
        self.has_failed = True
        self._layers.shared.close()
        self._processes.close()

    def step(self, call: Call, inputs: Tensor, targets: Tensor, before: Gradients) -> tuple[float, float, bool]:
        """Returns loss and norm of the gradients, and whether the update was skipped. `before`: earlier gradients to
        add."""
        clip, scaler, layers = float(call.clip or 0), call.scaler, self._layers
        shares, scales = bool(layers.shared.all), scaler is not None and scaler.is_enabled()
        adds = not call.zero_gradients or layers.is_distributed
        clips_here = shares or scales or adds
        may_skip = scales or callable(call.scale_loss)
        for parts in layers.parts.values():
            parts.begin()
        for sharded in layers.sharded.values():
            sharded.attach()
        with saved_states_in_turn():
            own_clip, skips = 0.0 if clips_here else clip, may_skip or layers.is_distributed
            given = (inputs, targets, own_clip, skips, call.work)
            loss, norm, is_skipped = self.guarded(lambda: self._engine.step(*given))
        if shares:
            norm = self.guarded(lambda: self._sum_shared(norm))
        if adds:
            norm = self.guarded(lambda: self._add_gradients(before, is_skipped))
            is_skipped = is_skipped or not math.isfinite(norm)
            if is_skipped and not may_skip:
                self.has_failed = True
                raise _training.Error(f"step {self.steps}: the loss or a gradient is not finite")
        if clips_here and not scales:
            layers.clip(clip, norm)
        loss = loss / self._loss.scale
        if scaler is not None and scales:
            norm = norm / self._loss.scale
            self.guarded(lambda: self._update_scaled(call.optimizer, scaler, clip, norm, is_skipped))
        elif is_skipped:
            self._spoil_a_gradient()
        elif call.optimizer is not None:
            self.guarded(call.optimizer.step)
        if self.steps % _CHECK_COPIES_EVERY == 0:
            self.guarded(self._require_equal_copies)
        return loss, norm, is_skipped

    def validate(self, inputs: Tensor, targets: Tensor, prepare: Callable[[], None]) -> float:
        """Returns the mean loss of forwards alone. `prepare`: called before them."""
        if not self._is_validated:
            self._is_validated = True
            self._warm_up(inputs, targets, validates=True)
        prepare()
        return float(self.guarded(lambda: self._engine.validate(inputs, targets)))

    def guarded(self, call: Callable[[], Any]) -> Any:
        """Returns `call()`. A failure ends the pipeline, unless the ranks refused the data together."""
        try:
            return self._processes.guarded(call)
        except _training.RefusedData:
            raise
        except BaseException:
            self.has_failed = True
            self._layers.shared.close()
            raise

    def start(self, inputs: Tensor, targets: Tensor, keeps_gradients: bool) -> None:
        """Finds shapes and shares first values. After a failure here, the next call starts again."""
        gradients = [(parameter, parameter.grad) for parameter in self._layers.parameters if keeps_gradients]
        if self._is_used:
            steps, self._engine = self._engine.steps, self._new_engine()
            self._engine.steps = steps
            self._processes.guarded(self._connect)
        self._is_used = True
        with self._layers.freshness.sharing():
            self._first_forwards(inputs, targets)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        self._warm_up(inputs, targets, validates=False)
        self.is_started = True

    def _first_forwards(self, inputs: Tensor, targets: Tensor) -> None:
        with torch.inference_mode(False), untouched_generators(self._layers.device), contextlib.ExitStack() as probes:
            probes.enter_context(self._loss.unchanged())
            boundaries = Boundaries(self._processes.store())
            for layer in self._layers.every:
                layer.boundaries = boundaries
                probes.enter_context(layer.probing())
            self._processes.guarded(lambda: self._engine.start(inputs, targets))
        self._layers.release()
        for each in (self._share_draws, self._layers.shared.connect, self._require_equal_copies):
            self._processes.guarded(each)

    def _new_engine(self) -> _training.Run:
        for sharded in self._layers.sharded.values():
            sharded.follow()
        layers, shape = [self._layers.as_given(held) for held in self._layers.held], self._shape
        run = _training.Run(shape.plan, layers, shape.rank, self._loss, self._count, self._layers.device)
        if self._layers.parts:
            run.complete_gradients(self._complete_gradients)
        return run

    def _complete_gradients(self, stage: int) -> None:
        if stage in self._layers.parts:
            self._layers.parts[stage].complete()

    def _connect(self) -> None:
        if uses_nccl(self._layers.device, self._shape.world):
            processes = weakref.proxy(self._processes)  # The engine holds the function, and they hold the engine
            self._engine.sum_targets(lambda count: float(processes.rows([count], torch.float64).sum()))
            self._processes.join_gpus(self._engine, self._shape.plan, self._layers.device)
        elif self._shape.world > 1:
            self._processes.join(self._engine)

    def _warm_up(self, inputs: Tensor, targets: Tensor, validates: bool) -> None:
        """Runs all ops of a step or a validation once before its first message, without effects.

        The first use of an op may wait for the whole GPU, which would deadlock with a receive on it.
        """
        if self._layers.device.type == "cpu":
            return
        with untouched_generators(self._layers.device), contextlib.ExitStack() as kept:
            for layer in self._layers.every:
                kept.enter_context(unchanged(layer.module))
            self._processes.guarded(lambda: self._engine.warm_up(inputs, targets, validates))
        if self._shape.world > 1:
            self._processes.guarded(lambda: require_margin(self._layers.device))

    def _share_draws(self) -> None:
        """Tells replicas, which run no first forward, which generators their layers and the loss draw from."""
        own = {layer.index: layer.draws for layer in self._layers.every if layer.own}
        for layers, of_loss in self._processes.told((own, self._loss.draws)):
            for layer in self._layers.every:
                layer.draws = layer.draws | layers.get(layer.index, set())
            self._loss.take_over(of_loss)

    def _sum_shared(self, norm: float) -> float:
        """Sums gradients of shared parameters over stages. Returns the norm of all gradients."""
        change = self._layers.shared.sum_gradients()
        change = float(self._processes.rows([change], torch.float64).sum())
        return float(max(norm * norm + change, 0.0) ** 0.5)

    def _add_gradients(self, before: Gradients, is_skipped: bool) -> float:
        """Adds earlier gradients to those of this step. Returns the norm of the sums as whole tensors, NaN on all ranks
        after a loss that is not finite."""
        for parameter, gradient in before:
            if parameter.grad is not None:
                parameter.grad.add_(gradient)
        square = square_norm(self._layers.counted_parameters())
        return float(self._processes.rows([math.nan if is_skipped else square], torch.float64).sum().sqrt())

    def _spoil_a_gradient(self) -> None:
        """A GradScaler looks only at gradients of its rank."""
        for _, parameter in self._layers.updated:
            if parameter.grad is not None:
                parameter.grad.fill_(torch.inf)
                return

    def _update_scaled(
        self, optimizer: Any, scaler: torch.amp.GradScaler, clip: float, norm: float, is_skipped: bool
    ) -> None:
        """All ranks skip the update together, and their scales stay equal."""
        if self._layers.sharded:
            optimizer = OnLocals(optimizer, self._layers.sharded)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if is_skipped and gradients:
            gradients[0].fill_(torch.inf)  # The scaler looks only at gradients of this rank
        scaler.unscale_(optimizer)
        if not is_skipped and (factor := clip_factor(clip, norm)) < 1:
            for gradient in gradients:
                gradient.mul_(factor)
        scaler.step(optimizer)
        scaler.update()

    def _require_equal_copies(self) -> None:
        """Raises Error on all ranks if replicas of a stage differ in a bit."""
        stages = range(self._shape.stages)
        if self._shape.world == 1 or not any(map(self._shape.plan.is_copied, stages)):
            return
        rows = self._processes.rows([self._layers.bits(stage) for stage in stages])
        for stage in stages:
            holders = rows[:, stage].nonzero().flatten().tolist()
            for rank in holders:
                if rows[rank, stage] != rows[holders[0], stage]:
                    raise _training.Error(
                        f"stage {stage}: the replicas on ranks {holders[0]} and {rank} hold different values; all "
                        "ranks must update them alike"
                    )


class Results:
    """Collects outputs and losses of micro-batches from the ranks of the last stage."""

    def __init__(self, processes: Processes, shape: Shape, run: Run, data: StepData, device: torch.device) -> None:
        self._processes, self._shape, self._run, self._data, self._device = processes, shape, run, data, device
        self._of_last_stage: list[Any] | None = None  # The group of its ranks in this group; made at first use

    def close(self) -> None:
        self._of_last_stage = None

    def of(self, call: Call) -> tuple[Any, list[float]]:
        """Returns outputs and losses of all micro-batches of this process's group, if they are wanted here."""
        if not call.return_outputs:
            return None, []
        own = self._data.results
        if self._shape.world == 1:
            parts = [own]
        elif call.gather:
            told = self._run.guarded(lambda: self._processes.told(own))
            parts = [told[rank] for rank in range(self._shape.world) if self._group_of(rank) == self._shape.group]
        else:
            parts = self._run.guarded(lambda: self._told_in_last_stage(own))
        if not any(parts):
            return None, []
        outputs, losses = in_order(parts, self._device)
        return (outputs if self._data.is_given_cut else merged(outputs)), losses

    def _group_of(self, rank: int) -> int:
        return int(self._shape.plan.group(rank))

    def _told_in_last_stage(self, own: Any) -> list[Any]:
        """Returns the results of the ranks that hold the last stage in this group, on these ranks; else nothing."""
        if self._of_last_stage is None:
            last = self._shape.stages - 1
            holders = [rank for rank in range(self._shape.world) if last in self._shape.plan.stages_of(rank)]
            groups = [[r for r in holders if self._group_of(r) == group] for group in range(self._shape.groups)]
            made = [self._processes.group_of(ranks) if len(ranks) > 1 else None for ranks in groups]
            self._of_last_stage = [made[self._shape.group]]
        (group,) = self._of_last_stage
        return [own] if group is None else self._processes.told(own, group)
