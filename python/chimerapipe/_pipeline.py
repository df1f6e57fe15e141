"""Training with a synchronous schedule on the C++ executor."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from ._partition import Partition
from ._schedule import Schedule
from ._torch_version import require_same_torch

require_same_torch()
from . import _training  # noqa: E402
from ._checkpoint import (  # noqa: E402
    CheckpointError,
    LoadedCheckpoint,
    Parts,
    Saver,
    Saving,
    as_json,
    optimizer_part,
    read_into,
    restore_optimizer,
)
from ._devices import own_device, require_on, untouched_generators, uses_nccl  # noqa: E402
from ._held_layer import (  # noqa: E402
    Autocast,
    HeldLayer,
    LayerOrFactory,
    Recompute,
    counted,
    in_words,
    made_layer,
    recomputed_stages,
    refuse_shared_parameters,
)
from ._measure import listed  # noqa: E402
from ._processes import Processes  # noqa: E402

ConfigError = _training.ConfigError


@dataclass(frozen=True)
class Step:
    """Result of a step, equal on every rank."""

    loss: float
    """Mean over all ranks."""
    gradient_norm: float
    """Global norm of the gradients before clipping."""


class Pipeline:
    """A model that trains by a pipeline schedule.

    Under torchrun, or another launcher that sets RANK and WORLD_SIZE, each process is a rank; otherwise all ranks are
    threads. docs/python.md lists the requirements on layers.
    """

    def __init__(
        self,
        layers: nn.Module | Sequence[LayerOrFactory],
        loss: Callable[[Tensor, Tensor], Tensor],
        schedule: Schedule,
        *,
        micro_batch_size: int = 1,
        partition: Sequence[int] | Partition = (),
        data_parallel: int = 1,
        recompute: Recompute = False,
        device: torch.device | str = "cpu",
        reduction: str = "natural",
        count: Callable[[Tensor], int] = Tensor.numel,
    ) -> None:
        """All ranks pass the same arguments.

        `layers`: an nn.Sequential, a list of modules or of functions that make them, or a model for `layers_of`.
        `loss`: function from output and target to the *sum* of losses.
        `micro_batch_size`: in samples.
        `partition`: layers of each stage, or a Partition; even by default.
        `data_parallel`: W, the number of groups that each run the schedule.
        `recompute`: stages with activation checkpointing: True (all), numbers, or a function from number to bool.
        `device`: `cpu`, or `cuda`, which moves this rank's layers to its GPU.
        `reduction`: `canonical` adds gradients in a fixed order, so that all schedules, depths and widths with equal
        micro-batches give equal bits; `natural` adds them as they arrive.
        `count`: function from a target to its number of losses, for the mean.

        Raises ConfigError for impossible arguments.
        """
        if not isinstance(schedule, Schedule):
            raise ConfigError(f"schedule: got a {type(schedule).__name__}; use cp.schedule or cp.Schedule")
        if not callable(loss):
            raise ConfigError(f"loss: got a {type(loss).__name__}; give a function of output and target")
        self._layers = listed(layers)
        self._processes = Processes()
        self._device = own_device(device, self._processes.world, deterministic=reduction == "canonical")
        over_nccl = uses_nccl(self._device, self._processes.world)
        self._recomputed = recomputed_stages(recompute, schedule.stages)
        self._plan = _training.Plan(
            schedule.to_json(),
            len(self._layers),
            list(partition.layers if isinstance(partition, Partition) else partition),
            data_parallel,
            micro_batch_size,
            self._recomputed,
            reduction,
            over_nccl,
        )
        self._world, self._rank = self._processes.world, self._processes.rank
        if self._world not in (1, self._plan.num_ranks):
            raise ConfigError(
                f"{data_parallel} groups of {len(schedule.workers)} workers need {self._plan.num_ranks} processes, "
                f"but {self._world} were started"
            )
        self._width = data_parallel
        self._last: Step | None = None
        self._layout = {
            "schedule": schedule.name,
            "stages": schedule.stages,
            "workers": len(schedule.workers),
            "micro_batches": schedule.micro_batches,
            "micro_batch_size": micro_batch_size,
            "data_parallel": data_parallel,
            "partition": [end - first for first, end in self._plan.stage_layers],
            "recompute": self._recomputed,
            "reduction": reduction,
            "device": self._device.type,
        }
        self._started = False
        self._validated = False
        self._autocast = Autocast(self._device)
        self._saver = Saver(self._processes)
        ranks = [self._rank] if self._world > 1 else range(self._plan.num_ranks)
        self._held = [self._layers_of(rank) for rank in ranks]
        refuse_shared_parameters(self._held)
        self._run = _training.Run(
            self._plan,
            [self._as_given(held) for held in self._held],
            self._rank,
            self._checked(loss),
            counted(count),
            self._device,
        )
        if over_nccl:
            self._processes.guarded(lambda: self._processes.join_gpus(self._run, self._plan, self._device))
        elif self._world > 1:
            self._processes.guarded(lambda: self._processes.join(self._run))

    @property
    def rank(self) -> int:
        """Rank of this process; 0 for rank threads."""
        return self._rank

    @property
    def device(self) -> torch.device:
        """Device of layers, inputs and targets."""
        return self._device

    @property
    def recomputed(self) -> list[int]:
        """Stages with activation checkpointing."""
        return list(self._recomputed)

    @property
    def width(self) -> int:
        """Number of shares of a mini-batch: W under a launcher, 1 for rank threads."""
        return self._width if self._world > 1 else 1

    @property
    def group(self) -> int:
        """Share that this process loads, below `width`."""
        return int(self._plan.group(self._rank)) if self._world > 1 else 0

    @property
    def batch_size(self) -> int:
        """Samples of a step on this process."""
        return int(self._plan.mini_batch) // self.width

    def step(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        clip: float = 0.0,
    ) -> Step:
        """Trains on a mini-batch.

        `inputs`, `targets`: `batch_size` samples in the first dimension, equal on all ranks of a group. The first stage
        reads the inputs, the last stage the targets.
        `optimizer`: over `parameters()`; without it the caller updates them.
        `clip`: largest global gradient norm; 0 disables clipping.

        Gradients of the mean loss stay in `.grad`. Raises ConfigError for wrong inputs, and exceptions of modules
        unchanged.
        """
        self._start(inputs, targets)
        loss, norm = self._processes.guarded(lambda: self._run.step(inputs, targets, clip))
        if optimizer is not None:
            optimizer.step()
        self._last = Step(loss, norm)
        return self._last

    def validate(self, inputs: Tensor, targets: Tensor) -> float:
        """Returns the mean loss of a mini-batch in eval mode, equal on every rank."""
        self._start(inputs, targets)
        training = [(module, module.training) for layer in self._all() for module in layer.module.modules()]
        try:
            for layer in self._all():
                layer.module.eval()
            if not self._validated:
                self._validated = True
                self._warm_up(inputs, targets, validates=True)
            return float(self._processes.guarded(lambda: self._run.validate(inputs, targets)))
        finally:
            for module, mode in training:
                module.training = mode

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields this process's parameters for an optimizer. Rank threads include replicas."""
        for _, parameter in self._named_copies():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields each parameter of this process once, with its global name, such as `3.weight`."""
        yield from dict(self._named_copies()).items()

    def state_dict(self) -> dict[str, Tensor]:
        """Returns this process's parameters and buffers by global name.

        torch.distributed.checkpoint merges the dicts of several processes.
        """
        state: dict[str, Tensor] = {}
        for layer in self._all():
            for name, value in layer.module.state_dict().items():
                state.setdefault(f"{layer.index}.{name}", value)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copies values into this process's layers. `state` may contain others."""
        for layer in self._all():
            prefix = f"{layer.index}."
            own = {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
            try:
                layer.module.load_state_dict(own)
            except RuntimeError as error:
                raise RuntimeError(f"{in_words(layer.index, layer.module)}: {error}") from None

    def gather(self) -> None:
        """Copies values trained by other processes into this process's given layers; collective."""
        if self._world == 1:
            return
        group = self._processes.group()
        for stage, (first, end) in enumerate(self._plan.stage_layers):
            for layer in self._layers[first:end]:
                if isinstance(layer, nn.Module):
                    for value in [*layer.parameters(), *layer.buffers()]:
                        moved = value.detach().cpu()  # Shares memory if it is on the CPU
                        torch.distributed.broadcast(moved, self._plan.owner(stage), group=group)
                        value.detach().copy_(moved)

    @overload
    def save_checkpoint(
        self,
        folder: str | os.PathLike[str],
        *,
        optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None,
        keep: int = 0,
        wait: Literal[True] = True,
    ) -> str: ...
    @overload
    def save_checkpoint(
        self,
        folder: str | os.PathLike[str],
        *,
        optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None,
        keep: int = 0,
        wait: Literal[False],
    ) -> Saving: ...
    def save_checkpoint(
        self,
        folder: str | os.PathLike[str],
        *,
        optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None,
        keep: int = 0,
        wait: bool = True,
    ) -> str | Saving:
        """Writes `folder/step-N` and returns its path; collective.

        It contains weights, buffers, optimizer state and the number of steps. Any layout loads it, and `chimera
        checkpoint` reads it. A failed write raises and leaves older checkpoints intact.

        `extra`: further JSON values, such as a learning-rate scheduler's state.
        `keep`: number of newest checkpoints to keep; 0 keeps all.
        `wait`: False returns a `Saving` after copying the tensors; a thread writes them, and prints a failure.
        """
        path, step, together = os.fspath(folder), int(self._run.steps), self._processes
        self._saver.await_last()
        own = [layer for layer in self._all() if layer.own]
        weights = [(f"{n.index}.{name}", value) for n in own for name, value in n.module.state_dict().items()]
        trained = [(f"{n.index}.{name}", value) for n in own for name, value in n.module.named_parameters()]
        state = together.all_or_none(lambda: optimizer_part(optimizer, trained))
        numbers = [each for part in together.gathered(state.numbers) for each in part.items()]
        record = {**self._record(step), "optimizer": {**state.record, "numbers": dict(numbers)}, "extra": extra or {}}
        run = together.all_or_none(lambda: as_json(record, "save_checkpoint"))
        parts = Parts(path, step, self._rank, self._world, run, weights, state.tensors, keep)
        saved_as = os.path.join(path, f"step-{step:08}")
        if wait:
            parts.write(together)
            return saved_as
        return self._saver.start(saved_as, step, parts.copied().write)

    def load_checkpoint(
        self, path: str | os.PathLike[str], *, optimizer: torch.optim.Optimizer | None = None
    ) -> LoadedCheckpoint:
        """Loads a checkpoint of the same layers, saved in any layout; collective.

        `path`: a checkpoint, or a folder, whose newest checkpoint with correct hashes is loaded.
        `optimizer`: receives saved state and hyperparameters.

        Raises CheckpointError if there is no good checkpoint, ConfigError if the model differs.
        """
        def find() -> tuple[str, list[str]] | None:
            if self._rank > 0:
                return None
            reader = _training.OpenCheckpoint(os.fspath(path), True)
            return reader.path, reader.refused

        good, refused = self._processes.gathered(self._processes.all_or_none(find))[0]
        reader = _training.OpenCheckpoint(good, False)
        run = json.loads(reader.run)
        self._processes.all_or_none(lambda: self._restore(reader, run, optimizer))
        self._run.steps = reader.step
        return LoadedCheckpoint(reader.path, reader.step, run.get("extra", {}), list(refused))

    def _restore(
        self, reader: _training.OpenCheckpoint, run: Mapping[str, Any], optimizer: torch.optim.Optimizer | None
    ) -> None:
        layers = run.get("model", {}).get("layers")
        if layers != len(self._layers):
            raise ConfigError(f"{reader.path} has {layers} layers, this pipeline {len(self._layers)}")
        for layer in self._all():
            for name, value in layer.module.state_dict().items():
                read_into(reader, f"{layer.index}.{name}", value)
        if optimizer is not None:
            restore_optimizer(optimizer, run["optimizer"], reader, self._named_copies())

    def _record(self, step: int) -> dict[str, Any]:
        last = {} if self._last is None else {"loss": self._last.loss, "grad_norm": self._last.gradient_norm}
        return {
            "model": {"layers": len(self._layers)},
            "layout": {**self._layout, "transport": "threads" if self._world == 1 else "processes"},
            "versions": {"torch": str(torch.__version__)},
            "progress": {"step": step, "samples": step * int(self._plan.mini_batch), **last},
        }

    def _all(self) -> list[HeldLayer]:
        return [layer for held in self._held for layer in held]

    def _named_copies(self) -> Iterator[tuple[str, nn.Parameter]]:
        for layer in reversed(self._all()):  # Owners win in a dict
            for name, parameter in layer.module.named_parameters():
                if parameter.requires_grad:
                    yield f"{layer.index}.{name}", parameter

    def _layers_of(self, rank: int) -> list[HeldLayer]:
        held = []
        for stage in self._plan.stages_of(rank):
            first, end = self._plan.stage_layers[stage]
            repeats = self._plan.is_copied(stage) or stage in self._recomputed
            for index in range(first, end):
                own = self._world > 1 or self._plan.owner(stage) == rank
                made = made_layer(self._layers[index], index, own, self._device)
                is_owner = self._plan.owner(stage) == rank
                held.append(HeldLayer(index, made, repeats, is_owner, self._autocast, self._device))
        return held

    @staticmethod
    def _as_given(held: list[HeldLayer]) -> dict[int, Any]:
        return {
            layer.index: _training.Layer(type(layer.module).__name__, layer, list(layer.module.named_parameters()))
            for layer in held
        }

    def _checked(self, loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        def checked(output: Tensor, target: Tensor) -> Tensor:
            value = self._autocast.call(loss, output, target)
            if not isinstance(value, Tensor):
                raise TypeError(f"the loss returns a {type(value).__name__}; it must return the sum as a tensor")
            return value

        return checked

    def _start(self, inputs: Tensor, targets: Tensor) -> None:
        for name, tensor in (("inputs", inputs), ("targets", targets)):
            require_on(self._device, name, tensor)
            if len(tensor) != self.batch_size:
                wanted = self.batch_size
                raise ConfigError(f"{name}: {len(tensor)} samples, but a step of this process takes {wanted}")
        self._autocast.take_over()
        if self._started:
            return
        self._started = True
        with untouched_generators(self._device), contextlib.ExitStack() as probes:
            for layer in self._all():
                probes.enter_context(layer.probing())
            self._processes.guarded(lambda: self._run.start(inputs, targets))
        self._warm_up(inputs, targets, validates=False)

    def _warm_up(self, inputs: Tensor, targets: Tensor, validates: bool) -> None:
        """Runs all ops of a step or a validation once before its first message, without effects.

        The first use of an op may wait for the whole GPU, which would deadlock with a receive on it.
        """
        if self._device.type == "cpu":
            return
        with untouched_generators(self._device), contextlib.ExitStack() as kept:
            for layer in self._all():
                kept.enter_context(layer.untouched_buffers())
            self._processes.guarded(lambda: self._run.warm_up(inputs, targets, validates))
