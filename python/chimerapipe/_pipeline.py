"""Training with a synchronous schedule on the C++ executor."""

from __future__ import annotations

import contextlib
import inspect
import math
import operator
import os
import warnings
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
from ._agreement import (  # noqa: E402
    bits_of,
    digest,
    facts_of_layers,
    facts_of_tensors,
    first_difference,
    in_short,
    in_words as tensor_in_words,
    versions,
)
from ._checkpoint import (  # noqa: E402
    CheckpointError,
    LoadedCheckpoint,
    Parts,
    Reader,
    Saver,
    Saving,
    as_bytes,
    as_json,
    as_stored,
    from_portable,
    modules_with_extra_state,
    optimizer_part,
    portable,
    restore_optimizer,
)
from ._distributed import (  # noqa: E402
    OnLocals,
    ShardedParameter,
    StageParts,
    group_in,
    has_parts,
    is_sharded,
    is_wrapped,
    ranks_of_parts,
    square_norm,
)
from ._devices import bring_to, own_device, require_on, uses_nccl  # noqa: E402
from ._freshness import Freshness  # noqa: E402
from ._given_layers import (  # noqa: E402
    LayerOrFactory,
    Recompute,
    in_words,
    made_layer,
    recomputed_stages,
    require_dense_buffers,
    require_trainable,
    require_values,
)
from ._held_layer import Autocast, Boundaries, HeldLayer, Surroundings  # noqa: E402
from ._loss import CheckedLoss, Count, require_sum  # noqa: E402
from ._measure import listed  # noqa: E402
from ._messages import flattened, mapped, named_tensors  # noqa: E402
from ._modules import (  # noqa: E402
    called_modules,
    copied,
    follow_hooks,
    hooks_of,
    share_hooks,
    share_memory,
    unchanged,
)
from ._names import Names, as_module  # noqa: E402
from ._placed import Meshes, is_distributed, local_of  # noqa: E402
from ._probe import Use  # noqa: E402
from ._processes import OtherRankError, Processes, close_at_exit  # noqa: E402
from ._random import (  # noqa: E402
    OpGenerators,
    RankContext,
    as_text,
    from_text,
    restore as restore_generators,
    states as states_of_generators,
    untouched_generators,
)
from ._samples import digest_of_values, require_samples  # noqa: E402
from ._modes import has_flop_counter  # noqa: E402
from ._step_data import (  # noqa: E402
    MicroBatches,
    StepData,
    as_samples,
    as_tree,
    in_order,
    merged,
    require_cut_alike,
)
from ._shared import SharedParameter, SharedParameters, shared_parameters  # noqa: E402
from ._watch import Replica, Watch, follow_memory  # noqa: E402

ConfigError = _training.ConfigError
PeerLostError = _training.PeerLostError

_CHECK_COPIES_EVERY = 128  # Steps
_CHECK_SAMPLES_FIRST, _CHECK_SAMPLES_EVERY = 2, 64  # Calls


@dataclass(frozen=True)
class Step:
    """Result of a step, equal on every rank."""

    loss: float
    """Mean over all ranks."""
    gradient_norm: float
    """Global norm of the gradients before clipping."""
    skipped: bool = False
    """No update: with a scaler, a gradient was not finite."""
    outputs: Any = None
    """With `return_outputs`, on ranks of the last stage: outputs of all samples, or a list if micro-batches were given.
    They have no graph."""
    losses: Sequence[float] = ()
    """With `return_outputs`, on ranks of the last stage: what the loss returned for each micro-batch."""


@dataclass
class _Call:
    """Arguments of step, validate or predict."""

    name: str
    inputs: Any
    targets: Any = None
    optimizer: Any = None
    clip: Any = 0.0
    scaler: Any = None
    scale_loss: Any = 1.0
    loss_kwargs: Mapping[str, Any] | None = None
    zero_gradients: bool = True
    return_outputs: bool = False
    gather: bool = False

    def in_words(self) -> str:
        """Returns what all ranks must ask for together."""
        words = [name for name in ("return_outputs", "gather") if getattr(self, name)]
        words += [] if self.zero_gradients else ["zero_gradients=False"]
        words += [f"loss_kwargs {sorted(self.loss_kwargs)}"] if self.loss_kwargs else []
        return " with ".join([self.name, *([", ".join(words)] if words else [])])


class Pipeline:
    """A model that trains by a pipeline schedule.

    Each process of `mesh`, or else of torch's default group, or else of a launcher's job, is a rank. Without these all
    ranks are threads. docs/python.md lists the requirements on layers.
    """

    def __init__(
        self,
        layers: nn.Module | Sequence[LayerOrFactory],
        loss: Callable[..., Tensor],
        schedule: Schedule,
        *,
        micro_batch_size: int = 1,
        partition: Sequence[int] | Partition = (),
        data_parallel: int = 1,
        mesh: Any = None,
        recompute: Recompute = False,
        device: torch.device | str = "cpu",
        reduction: str = "natural",
        count: Callable[[Any], int] = Tensor.numel,
        check_loss: bool = True,
        check_data: bool = True,
    ) -> None:
        """All ranks pass the same arguments.

        `layers`: an nn.Sequential, a list of modules or of functions that make them, or a model for `layers_of`.
        `loss`: function from output and target to the *sum* of losses.
        `micro_batch_size`: in samples.
        `partition`: layers of each stage, or a Partition; even by default.
        `data_parallel`: W, the number of groups that each run the schedule.
        `mesh`: the D W ranks of this pipeline, if other ranks have other roles: a DeviceMesh of one dimension, such as
        `mesh["pp"]`, or a process group. By default all ranks of the job.
        `recompute`: stages with activation checkpointing: True (all), numbers, or a function from number to bool.
        `device`: `cpu`, or `cuda`, which moves this rank's layers to its GPU.
        `reduction`: `canonical` adds gradients in a fixed order, so that all schedules, depths and widths with equal
        micro-batches give equal bits; `natural` adds them as they arrive.
        `count`: function from a target to its number of losses, for the mean.
        `check_loss`: compare the loss of the first micro-batch with the sum over two parts of it, to find a mean. It
        costs one call of the loss. False for a loss that is no sum over samples, such as a contrastive one.
        `check_data`: compare hashes of inputs and targets over processes, in the first two calls and in every 64th:
        equal in a group, different in different groups. A hash reads a gigabyte per second. False for groups that shall
        train on equal batches.

        Raises ConfigError for impossible arguments.
        """
        self._processes = Processes(mesh)
        self._world, self._rank = self._processes.world, self._processes.rank
        together = self._processes.task()
        self._layers = together.all_or_none(lambda: _layers_in(layers))
        self._given = layers
        self._names = Names(layers, self._layers)
        self._checks_loss, self._checks_data = bool(check_loss), bool(check_data)
        arguments: dict[str, Any] = {"schedule": schedule, "partition": partition, "recompute": recompute}
        arguments |= {"micro_batch_size": micro_batch_size, "data_parallel": data_parallel, "reduction": reduction}
        facts = {"versions": versions(), **facts_of_layers(self._layers), "loss": in_short(loss)}
        facts |= {"count": in_short(count), **{name: _as_text(value) for name, value in arguments.items()}}
        self._processes.require_equal({**facts, "device": str(device).partition(":")[0]})
        together.all_or_none(lambda: self._make(loss, schedule, partition, recompute, device, count, arguments))
        close_at_exit(self)
        self._processes.guarded(self._connect)

    def _make(
        self,
        loss: Callable[..., Tensor],
        schedule: Schedule,
        partition: Sequence[int] | Partition,
        recompute: Recompute,
        device: torch.device | str,
        count: Callable[[Any], int],
        arguments: Mapping[str, Any],
    ) -> None:
        """Makes everything but connections."""
        if not isinstance(schedule, Schedule):
            raise ConfigError(f"schedule: got a {type(schedule).__name__}; use cp.schedule or cp.Schedule")
        require_sum(loss)
        micro_batch_size, data_parallel = (
            _whole(name, arguments[name]) for name in ("micro_batch_size", "data_parallel")
        )
        reduction = str(arguments["reduction"])
        if torch.get_default_device().type == "meta":
            raise ConfigError("the default device is meta, which holds no values; make the pipeline outside of it")
        self._device = own_device(device, self._world, deterministic=reduction == "canonical")
        self._over_nccl = uses_nccl(self._device, self._world)
        self._recomputed = recomputed_stages(recompute, schedule.stages)
        counts = partition.layers if isinstance(partition, Partition) else partition
        if isinstance(counts, str):
            raise ConfigError(f"partition: got the text {counts!r}; give numbers of layers, such as [1, 3]")
        self._plan = _training.Plan(
            schedule.to_json(),
            len(self._layers),
            [_whole("partition", number) for number in counts],
            data_parallel,
            micro_batch_size,
            self._recomputed,
            reduction,
            self._over_nccl,
        )
        threads = () if self._processes.is_given else (1,)
        if self._world not in (*threads, self._plan.num_ranks):
            has = f"the mesh has {self._world}" if self._processes.is_given else f"{self._world} were started"
            hint = "" if self._processes.is_given else "; give mesh= if some ranks have other roles"
            raise ConfigError(
                f"{data_parallel} groups of {len(schedule.workers)} workers need {self._plan.num_ranks} processes, "
                f"but {has}{hint}"
            )
        self._splits = any(op.kind in "IW" for row in schedule.workers for op in row)
        self._width = data_parallel
        self._per_op = int(self._plan.mini_batch) // (schedule.micro_batches * data_parallel)
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
        self._own_facts: dict[str, str] = {}
        self._agreed: list[int] = []  # Digests of the facts that messages depend on
        self._agreed_key: tuple[object, ...] | None = None  # Of the last call
        self._agreed_rows: Tensor | None = None
        self._started = self._validated = self._failed = self._used = False
        self._autocast, self._data = Autocast(self._device), StepData()
        self._saver = Saver(self._processes)
        self._of_last_stage: list[Any] | None = None  # The group of its ranks in this group; made at first use
        of_threads: dict[int, RankContext] = {}
        self._generators = OpGenerators(self._device)
        self._loss = CheckedLoss(
            loss,
            self._autocast,
            self._device,
            of_threads,
            self._data,
            self._generators,
            len(self._layers),
            checks_sum=self._checks_loss,
            is_repeated=schedule.stages - 1 in self._recomputed,
        )
        self._count = Count(count, self._data)
        shared = dict(shared_parameters(self._layers, self._plan.stage_layers))
        if shared and reduction == "canonical":
            name = next(iter(shared.values())).name
            raise ConfigError(f"reduction canonical: stages share the parameter {name}; use natural")
        self._require_distributable(shared, reduction)
        self._shared = SharedParameters(self._processes, self._plan, list(shared.values()))
        for index, layer in enumerate(self._layers):
            if isinstance(layer, nn.Module):
                require_values(index, layer)  # On all ranks, also of other stages
        ranks = [self._rank] if self._world > 1 else range(self._plan.num_ranks)
        self._twins: list[tuple[nn.Parameter, nn.Parameter]] = []  # The parameter that is updated, and another leaf
        self._replicas: list[Replica] = []
        self._contexts = {r: RankContext(r, of_threads) if len(ranks) > 1 else RankContext() for r in ranks}
        self._held = [self._layers_of(rank, shared) for rank in ranks]
        self._every_layer = self._all()
        self._take_over_distributed()
        self._find_twins(shared)
        self._updated = list(self._find_updated())
        self._parameters = [p for layer in self._all() for p in layer.module.parameters()]
        given = {index: self._layers[index] for index in {layer.index for layer in self._all()}}
        modules = [(index, layer) for index, layer in given.items() if isinstance(layer, nn.Module)]
        held = [(each.index, each.module) for each in self._all()]
        self._watch = Watch([*modules, *held], self._updated, self._given, self._layers)
        own = {id(parameter) for parameter in self._parameters}
        words = [(in_words(i, each), each) for i, each in enumerate(self._layers) if isinstance(each, nn.Module)]
        self._freshness = Freshness(own, words if self._world > 1 else [])
        self._trained: set[int] = set()  # Layers that a call has seen in training mode
        self._calls = 0
        stages = [f"frozen in stage {stage}" for stage in range(len(self._plan.stage_layers))]
        stages += [f"training in stage {stage}" for stage in range(len(self._plan.stage_layers))]
        # The first five decide nothing about messages
        self._fact_names = ["call", "clip", "optimizer", "scale", "targets", "inputs", "autocast", *stages]
        self._run = self._new_run()

    def _take_over_distributed(self) -> None:
        """Finds DTensors, and parts of layers that sum gradients over ranks themselves."""
        parameters = {id(p): p for layer in self._every_layer for p in layer.module.parameters() if is_distributed(p)}
        self._sharded = {key: ShardedParameter(parameter) for key, parameter in parameters.items()}
        self._parts: dict[int, StageParts] = {}
        for stage in {layer.stage for layer in self._every_layer}:
            modules = [layer.module for layer in self._every_layer if layer.stage == stage]
            if parts := StageParts(modules, splits=self._splits):
                self._parts[stage] = parts
        meshes = Meshes()
        for layer in self._every_layer:
            meshes.learn((*layer.module.parameters(), *layer.module.buffers()))
            layer.meshes = meshes

    @property
    def _is_distributed(self) -> bool:
        return bool(self._sharded or self._parts)

    def _require_distributable(self, shared: Mapping[int, SharedParameter], reduction: str) -> None:
        """Raises ConfigError for distributed layers that a pipeline cannot train. All ranks look at all layers."""
        wrapped = [(i, each) for i, each in enumerate(self._layers) if isinstance(each, nn.Module) and is_wrapped(each)]
        if not wrapped:
            return
        index, layer = wrapped[0]
        words = f"{in_words(index, layer)} is distributed (DTensor, fully_shard, replicate, DistributedDataParallel)"
        if self._world == 1 < self._plan.num_ranks:
            raise ConfigError(f"{words}, but the ranks of this pipeline are threads; start a process for each")
        own = set(self._processes.ranks) if self._world > 1 else set()
        for number, each in wrapped:
            for name, ranks in ranks_of_parts(each):
                if len(own & set(ranks)) > 1:
                    raise ConfigError(
                        f"{in_words(number, each)}: '{name}' is distributed over ranks {ranks}, of which several are "
                        "ranks of this pipeline; distribute it over another dimension of the mesh, such as mesh['tp'], "
                        "and give the pipeline mesh['pp']"
                    )
        if reduction == "canonical":
            raise ConfigError(f"reduction canonical: {words}, and its sums have no fixed order; use natural")
        for number, each in wrapped:
            of_stages = [shared[id(parameter)] for parameter in each.parameters() if id(parameter) in shared]
            if of_stages and has_parts(each):
                raise ConfigError(
                    f"{in_words(number, each)} is wrapped by fully_shard, replicate or DistributedDataParallel, but "
                    f"stages share its parameter {of_stages[0].name}; keep its uses in one stage"
                )

    def _new_run(self) -> _training.Run:
        for sharded in self._sharded.values():
            sharded.follow()
        run = self._plain_run()
        if self._parts:
            run.complete_gradients(self._complete_gradients)
        return run

    def _complete_gradients(self, stage: int) -> None:
        if stage in self._parts:
            self._parts[stage].complete()

    def _plain_run(self) -> _training.Run:
        layers = [self._as_given(held) for held in self._held]
        return _training.Run(self._plan, layers, self._rank, self._loss, self._count, self._device)

    def _connect(self) -> None:
        if self._over_nccl:
            self._processes.join_gpus(self._run, self._plan, self._device)
        elif self._world > 1:
            self._processes.join(self._run)

    def close(self) -> None:
        """Ends the pipeline and closes its connections, as the end of the program does; all ranks call it together."""
        self._failed = True
        self._shared.close()
        self._of_last_stage = None
        self._processes.close()

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

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step on this process, for `MicroBatches`."""
        return self.batch_size // self._per_op

    @property
    def has_first_stage(self) -> bool:
        """Whether this process reads the inputs."""
        return any(layer.stage == 0 for layer in self._every_layer)

    @property
    def has_last_stage(self) -> bool:
        """Whether this process reads the targets and has outputs."""
        return any(layer.gives_loss for layer in self._every_layer)

    def step(
        self,
        inputs: Any,
        targets: Any,
        *more: Any,
        optimizer: torch.optim.Optimizer | None = None,
        clip: float = 0.0,
        scaler: torch.amp.GradScaler | None = None,
        scale_loss: float | Callable[[Tensor], Tensor] = 1.0,
        loss_kwargs: Mapping[str, Any] | None = None,
        zero_gradients: bool = True,
        return_outputs: bool = False,
    ) -> Step:
        """Trains on a mini-batch.

        `inputs`, `targets`: `batch_size` samples in the first dimension, equal on all ranks of a group. The first stage
        reads the inputs, the last stage the targets; a rank without this stage may pass None. They are a tensor, or
        tensors in a tuple, list, dict, dataclass or BatchEncoding; or `MicroBatches`, which are already cut.
        `optimizer`: over `parameters()`; without it the caller updates them.
        `clip`: largest global gradient norm; 0 disables clipping.
        `scaler`: a torch.amp.GradScaler on each rank, for float16: the loss is multiplied by its scale, gradients are
        divided by it before clipping, and if one is not finite, all ranks skip the update. Needs `optimizer`.
        `scale_loss`: a number, or a function such as `scaler.scale`, by which losses are multiplied before backward.
        Gradients and their norm are those of the scaled loss; the returned loss is not scaled. After a function,
        gradients may be infinite: `Step.skipped` then is True on all ranks, each of which has an infinite gradient.
        `loss_kwargs`: keyword arguments of the loss, equal for all micro-batches.
        `zero_gradients`: False adds to the gradients that `.grad` holds, for an update after several steps.
        `return_outputs`: fill `Step.outputs` and `Step.losses`.

        Gradients of the mean loss stay in `.grad`. Raises ConfigError for wrong inputs, and exceptions of modules
        unchanged.
        """
        if more:
            raise ConfigError(
                f"step: got {2 + len(more)} values, but takes inputs and targets; give several inputs as one value, as "
                "in step((a, b), targets) or step({'a': a, 'b': b}, targets)"
            )
        before = [] if zero_gradients else [(p, p.grad.clone()) for _, p in self._updated if p.grad is not None]
        call = _Call(
            "step", inputs, targets, optimizer, clip, scaler, scale_loss, loss_kwargs, zero_gradients, return_outputs
        )
        mine, wanted = self._prepare(call)
        shares, scales = bool(self._shared.all), scaler is not None and scaler.is_enabled()
        clips_here = shares or scales or not zero_gradients or self._is_distributed
        may_skip = scales or callable(scale_loss)
        self._prepare_ranks()
        for parts in self._parts.values():
            parts.begin()
        for sharded in self._sharded.values():
            sharded.attach()
        loss, norm, is_skipped = self._guarded(
            lambda: self._run.step(
                mine, wanted, 0.0 if clips_here else float(clip), may_skip or self._is_distributed
            )
        )
        if shares:
            norm = self._guarded(lambda: self._sum_shared(norm))
        if not zero_gradients or self._is_distributed:
            norm = self._guarded(lambda: self._add_gradients(before, is_skipped))
            is_skipped = is_skipped or not math.isfinite(norm)
            if is_skipped and not may_skip:
                self._failed = True
                raise _training.Error(f"step {self._run.steps}: the loss or a gradient is not finite")
        if clips_here and not scales:
            self._clip(clip, norm)
        loss = loss / self._loss.scale
        if scaler is not None and scales:
            norm = norm / self._loss.scale
            self._guarded(lambda: self._update_scaled(optimizer, scaler, clip, norm, is_skipped))
        elif is_skipped:
            self._spoil_a_gradient()
        elif optimizer is not None:
            self._guarded(optimizer.step)
        if self._run.steps % _CHECK_COPIES_EVERY == 0:
            self._guarded(self._require_equal_copies)
        self._end_call()
        outputs, losses = self._results(call)
        self._last = Step(loss, norm, is_skipped, outputs, losses)
        return self._last

    def _add_gradients(self, before: Sequence[tuple[nn.Parameter, Tensor]], is_skipped: bool) -> float:
        """Adds earlier gradients to those of this step. Returns the norm of the sums as whole tensors, NaN on all ranks
        after a loss that is not finite."""
        for parameter, gradient in before:
            if parameter.grad is not None:
                parameter.grad.add_(gradient)
        square = square_norm(self._counted_parameters())
        return float(self._processes.rows([math.nan if is_skipped else square], torch.float64).sum().sqrt())

    def _counted_parameters(self) -> list[nn.Parameter]:
        """Returns the parameters with gradients that this rank counts, so that each is counted on one rank."""
        shared = {id(leaf): each.ranks[0] for each in self._shared.all for leaf in each.leaves.values()}
        owned = {id(p) for layer in self._every_layer if layer.own for p in layer.module.parameters()}
        with_gradients = [p for _, p in self._updated if p.grad is not None]
        if self._world == 1:
            return with_gradients
        return [p for p in with_gradients if (shared[id(p)] == self._rank if id(p) in shared else id(p) in owned)]

    def _spoil_a_gradient(self) -> None:
        """A GradScaler looks only at gradients of its rank."""
        for _, parameter in self._updated:
            if parameter.grad is not None:
                parameter.grad.fill_(torch.inf)
                return

    def _results(self, call: _Call) -> tuple[Any, list[float]]:
        """Returns outputs and losses of all micro-batches of this process's group, if they are wanted here."""
        if not call.return_outputs:
            return None, []
        own = self._data.results()
        if self._world == 1:
            parts = [own]
        elif call.gather:
            told = self._guarded(lambda: self._processes.told(own))
            parts = [told[rank] for rank in range(self._world) if self._plan.group(rank) == self.group]
        else:
            parts = self._guarded(lambda: self._told_in_last_stage(own))
        if not any(parts):
            return None, []
        outputs, losses = in_order(parts, self._device)
        return (outputs if self._data.is_given_cut else merged(outputs)), losses

    def _told_in_last_stage(self, own: Any) -> list[Any]:
        """Returns the results of the ranks that hold the last stage in this group, on these ranks; else nothing."""
        if self._of_last_stage is None:
            last = len(self._plan.stage_layers) - 1
            holders = [rank for rank in range(self._world) if last in self._plan.stages_of(rank)]
            groups = [[rank for rank in holders if self._plan.group(rank) == group] for group in range(self._width)]
            made = [self._processes.group_of(ranks) if len(ranks) > 1 else None for ranks in groups]
            self._of_last_stage = [made[self.group]]
        (group,) = self._of_last_stage
        return [own] if group is None else self._processes.told(own, group)

    def _update_scaled(
        self, optimizer: Any, scaler: torch.amp.GradScaler, clip: float, norm: float, is_skipped: bool
    ) -> None:
        """All ranks skip the update together, and their scales stay equal."""
        if self._sharded:
            optimizer = OnLocals(optimizer, self._sharded)
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if is_skipped and gradients:
            gradients[0].fill_(torch.inf)  # The scaler looks only at gradients of this rank
        scaler.unscale_(optimizer)
        if not is_skipped and 0 < clip < norm:
            for gradient in gradients:
                gradient.mul_(clip / norm)
        scaler.step(optimizer)
        scaler.update()

    def _prepare_ranks(self) -> None:
        """Forgets earlier results."""
        self._data.begin()
        for layer in self._every_layer:
            layer.prepare()

    @overload
    def validate(self, inputs: Any, targets: Any, *, loss_kwargs: Mapping[str, Any] | None = None) -> float: ...
    @overload
    def validate(
        self,
        inputs: Any,
        targets: Any,
        *,
        loss_kwargs: Mapping[str, Any] | None = None,
        return_outputs: Literal[True],
        gather: bool = False,
    ) -> tuple[float, Any]: ...
    def validate(
        self,
        inputs: Any,
        targets: Any,
        *,
        loss_kwargs: Mapping[str, Any] | None = None,
        return_outputs: bool = False,
        gather: bool = False,
    ) -> float | tuple[float, Any]:
        """Returns the mean loss of a mini-batch in eval mode, equal on every rank; with `return_outputs` also the
        outputs, as `predict` does."""
        call = _Call(
            "validate", inputs, targets, loss_kwargs=loss_kwargs, return_outputs=return_outputs, gather=gather
        )
        loss, outputs = self._forwards(call)
        return (loss, outputs) if return_outputs else loss

    def predict(self, inputs: Any, *, gather: bool = False) -> Any:
        """Returns the last stage's outputs for a mini-batch in eval mode, on ranks of the last stage; None on others.
        `gather`: on all ranks. `MicroBatches` give a list."""
        return self._forwards(_Call("predict", inputs, return_outputs=True, gather=gather))[1]

    def _forwards(self, call: _Call) -> tuple[float, Any]:
        """Returns mean loss and outputs."""
        with torch.inference_mode(False):
            inputs, targets = self._prepare(call)
            training = [(module, module.training) for layer in self._all() for module in layer.module.modules()]
            try:
                for layer in self._all():
                    layer.module.eval()
                if not self._validated:
                    self._validated = True
                    self._warm_up(inputs, targets, validates=True)
                self._prepare_ranks()
                loss = float(self._guarded(lambda: self._run.validate(inputs, targets)))
                self._end_call()
                return loss, self._results(call)[0]
            finally:
                for parts in self._parts.values():
                    parts.release()
                for module, mode in training:
                    module.training = mode

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields this process's trained parameters for an optimizer, each once. Replicas on rank threads share their
        memory."""
        for _, parameter in self.named_parameters():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields `parameters` with the model's own names; layers of a list have numbers, as in `3.weight`."""
        for name, parameter in self._updated:
            if parameter.requires_grad:
                yield self._names.of(name)[0], parameter

    def state_dict(self) -> dict[str, Tensor]:
        """Returns this process's parameters and buffers by the model's names.

        torch.distributed.checkpoint saves the dicts of all processes as one, which any layout and the plain model load.
        """
        return {name: value.detach() if isinstance(value, Tensor) else value for name, value in self._state()}

    def _state(self) -> Iterator[tuple[str, Any]]:
        if self._watch.moved():
            follow_memory(self._twins)
        seen: set[str] = set()
        for layer in self._all():
            for own, value in layer.module.state_dict(keep_vars=True).items():
                for name in self._names.of(f"{layer.index}.{own}"):
                    if name not in seen:
                        seen.add(name)
                        yield name, value

    def module(self) -> nn.Module:
        """Returns a module with this process's parameters and buffers under the model's names, for functions of torch
        that take a model: `torch.distributed.checkpoint.state_dict`, or a logger. It has no forward."""
        updated = {name: p for own, p in self._updated for name in self._names.of(own)}
        return as_module({name: updated.get(name, each) for name, each in self._state() if isinstance(each, Tensor)})

    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Returns the optimizer's state and settings by the model's names, as torch's `get_optimizer_state_dict` with
        `flatten_optimizer_state_dict` does. An optimizer without state gets zeros, for `torch.distributed.checkpoint`
        to load into."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        self._require_own(optimizer)
        kept = [(p, p.grad) for _, p in self._updated]
        if not optimizer.state:
            for parameter, _ in kept:
                parameter.grad = None
        flat = StateDictOptions(flatten_optimizer_state_dict=True)
        state: dict[str, Any] = get_optimizer_state_dict(self.module(), optimizer, options=flat)
        for parameter, gradient in kept:
            parameter.grad = gradient
        return state

    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        """Loads a result of `optimizer_state_dict`, into which `torch.distributed.checkpoint` has loaded."""
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        flat = StateDictOptions(flatten_optimizer_state_dict=True)
        set_optimizer_state_dict(self.module(), optimizer, dict(state), options=flat)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copies values into this process's layers. `state` may contain others."""
        for layer in self._all():
            own = {}
            for name in layer.module.state_dict():
                for given in self._names.of(f"{layer.index}.{name}"):
                    if given in state:
                        own[name] = state[given]
            try:
                layer.module.load_state_dict(own)
            except RuntimeError as error:
                raise RuntimeError(f"{in_words(layer.index, layer.module)}: {error}") from None

    def gather(self) -> None:
        """Copies parameters, buffers and extra state of all processes into this one's given layers; collective."""
        if self._world == 1:
            return
        self._together("gather", self._freshness.require)
        for stage, (first, end) in enumerate(self._plan.stage_layers):
            for layer in self._layers[first:end]:
                if isinstance(layer, nn.Module):
                    owner = int(self._plan.owner(stage))
                    for value in map(local_of, [*layer.parameters(), *layer.buffers()]):
                        moved = value.detach().cpu().contiguous()  # Shares memory if it can
                        self._processes.send_from(owner, as_bytes(moved))
                        value.detach().copy_(moved)
                    for module in modules_with_extra_state(layer):
                        state = self._processes.told(module.get_extra_state() if self._rank == owner else None)
                        if self._rank != owner:
                            module.set_extra_state(state[owner])
        self._freshness.note()

    def _together(self, call: str, check: Callable[[], None] = lambda: None) -> None:
        """Raises on all ranks unless all make this call, and the check passes."""
        if self._failed:
            raise _training.Error("this pipeline has failed before, or is closed; create a new one")
        if self._world > 1:
            self._processes.guarded(lambda: self._require_same_call(call))
        self._processes.all_or_none(check)

    def _require_same_call(self, call: str) -> None:
        """Takes part in the exchange of rows of `_agree`, which other ranks may be in."""
        row = [0] * (6 + len(self._fact_names))
        row[4] = digest(call)
        rows = self._processes.rows(row)
        self._agreed_rows = None
        if rows[:, 0].any():
            told = self._processes.exchanged("")
            raise OtherRankError(next(f"rank {rank}: {words}" for rank, words in enumerate(told) if words))
        if (rows[:, 4] != row[4]).any():
            self._processes.require_equal({"call": call})

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

        It contains weights, buffers, values of `get_extra_state`, optimizer state, the number of steps, and the states
        of the random generators of torch, Python and numpy. Any layout loads it, and `chimera checkpoint` reads it. A
        failed write raises and leaves older checkpoints intact. Raises ConfigError for values that cannot be read back.

        `extra`: further JSON values, such as a learning-rate scheduler's state.
        `keep`: number of newest checkpoints to keep; 0 keeps all.
        `wait`: False returns a `Saving` after copying the tensors; a thread writes them, and prints a failure.
        """
        self._require_whole("save_checkpoint")
        path, step, together = os.fspath(folder), int(self._run.steps), self._processes
        saved_as = os.path.join(path, f"step-{step:08}")
        self._together("save_checkpoint", self._freshness.require)
        self._saver.await_last()
        together.all_or_none(lambda: together.claim(saved_as))
        own = [layer for layer in self._all() if layer.own]
        weights, described = together.all_or_none(lambda: as_stored(self._values(own)))
        written = {f"{n.index}.{name}" for n in own for name, _ in n.module.named_parameters()}
        trained = [(name, value) for name, value in self._updated if name in written]
        state = together.all_or_none(lambda: optimizer_part(optimizer, trained))
        tensors, of_state = together.all_or_none(state.stored)
        random = as_text(states_of_generators(self._device))
        told = together.gathered((state.numbers, {**described, **of_state}, random))
        record = {
            **self._record(step),
            "optimizer": portable({**state.record, "numbers": {k: v for own, _, _ in told for k, v in own.items()}}),
            "extra": portable(extra or {}),
            "stored_as_bytes": {k: v for _, own, _ in told for k, v in own.items()},
            "random": [own for _, _, own in told],
            "seed": self._generators.own_seed(),
        }
        run = together.all_or_none(lambda: as_json(record, "save_checkpoint"))
        parts = Parts(path, step, self._rank, self._world, run, weights, tensors, keep)
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
        With as many processes as at the save, the random generators get their states back: a resumed run with dropout
        equals an undisturbed one.

        Raises CheckpointError if there is no good checkpoint, ConfigError if the model differs.
        """
        self._require_whole("load_checkpoint")

        def find() -> tuple[str, list[str]] | None:
            if self._rank > 0:
                return None
            reader = _training.OpenCheckpoint(os.fspath(path), True)
            return reader.path, reader.refused

        self._together("load_checkpoint")
        good, refused = self._processes.gathered(self._processes.all_or_none(find))[0]
        if refused and self._rank == 0:
            warnings.warn(f"load_checkpoint: refused {'; '.join(refused)}; uses {good} instead", stacklevel=2)
        reader = Reader(_training.OpenCheckpoint(good, False))
        self._processes.all_or_none(lambda: self._restore(reader, optimizer))
        self._run.steps = reader.step
        random = reader.run.get("random", [])
        if len(random) == self._world:
            restore_generators(self._device, from_text(random[self._rank]))
        if "seed" in reader.run:
            self._generators.load_seed(int(reader.run["seed"]))
        return LoadedCheckpoint(reader.path, reader.step, from_portable(reader.run.get("extra", {})), list(refused))

    def _require_whole(self, call: str) -> None:
        if self._sharded:
            raise ConfigError(
                f"{call}: layers have DTensors, of which each rank holds a part; use torch.distributed.checkpoint with "
                "state_dict() and optimizer_state_dict()"
            )

    def _restore(self, reader: Reader, optimizer: torch.optim.Optimizer | None) -> None:
        layers = reader.run.get("model", {}).get("layers")
        if layers != len(self._layers):
            raise ConfigError(f"{reader.path} has {layers} layers, this pipeline {len(self._layers)}")
        for layer in self._all():
            layer.module.load_state_dict(reader.values_like(layer.module.state_dict(), f"{layer.index}."))
        if optimizer is not None:
            record = from_portable(reader.run["optimizer"])
            trained = [(name, parameter) for name, parameter in self._updated if parameter.requires_grad]
            restore_optimizer(optimizer, record, reader, trained)

    @staticmethod
    def _values(layers: Sequence[HeldLayer]) -> list[tuple[str, Any]]:
        return [(f"{n.index}.{name}", value) for n in layers for name, value in n.module.state_dict().items()]

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

    def _find_updated(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters that optimizers update, trained or not. A shared one has its first name."""
        first = {id(each.first): each.name for each in self._shared.all}
        seen = {id(twin) for _, twin in self._twins}
        for layer in sorted(self._all(), key=lambda layer: layer.index):
            if layer.own or self._world > 1:
                for name, parameter in layer.module.named_parameters():
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        yield first.get(id(parameter), f"{layer.index}.{name}"), parameter

    def _holders(self, stage: int) -> tuple[int, ...]:
        """Returns the processes that hold a stage."""
        return tuple(rank for rank in range(self._world) if self._world == 1 or stage in self._plan.stages_of(rank))

    def _copied_holders(self) -> list[tuple[int, ...]]:
        """Returns the groups of several processes that hold the same stages, equal on all processes."""
        holders = [self._holders(stage) for stage in range(len(self._plan.stage_layers))]
        return [ranks for ranks in dict.fromkeys(holders) if len(ranks) > 1]

    def _optimized(self) -> Iterator[tuple[str, nn.Parameter, nn.Module | None, tuple[int, ...]]]:
        """Yields each trained parameter of this process with its name, its module and the processes that hold it. The
        module is None in the last layer, and for parameters that stages share."""
        layers = {layer.index: layer for layer in self._all()}
        shared = {id(leaf) for each in self._shared.all for leaf in each.leaves.values()}
        for name, parameter in self._updated:
            if parameter.requires_grad:
                index, _, own = name.partition(".")
                layer = layers[int(index)]
                is_head = layer.index + 1 == len(self._layers) or id(parameter) in shared
                module = None if is_head else layer.module.get_submodule(own.rpartition(".")[0])
                yield self._names.of(name)[0], parameter, module, self._holders(layer.stage)

    def _layers_of(self, rank: int, shared: Mapping[int, SharedParameter]) -> list[HeldLayer]:
        held: list[HeldLayer] = []
        surroundings = Surroundings(self._device, self._autocast, self._data, self._generators)
        for stage in self._plan.stages_of(rank):
            first, end = self._plan.stage_layers[stage]
            copied_stage, recomputed = self._plan.is_copied(stage), stage in self._recomputed
            is_owner = self._plan.owner(stage) == rank
            memo: dict[int, Any] = {}
            for index in range(first, end):
                made = made_layer(self._layers[index], index)
                require_trainable(index, made)
                if copied_stage:
                    require_dense_buffers(index, made)
                bring_to(self._device, made, in_words(index, made))
                for parameter in made.parameters():
                    if not local_of(parameter).is_contiguous():
                        parameter.data = parameter.data.contiguous()  # Before others share its memory
                if isinstance(self._layers[index], nn.Module):
                    made = self._own_or_copy(index, made, rank, stage, shared, memo)
                shares_process = self._world == 1 < self._plan.num_ranks
                use = Use(copied_stage, recomputed, is_owner, self._shares_buffers(index, stage), shares_process)
                held.append(HeldLayer(index, stage, made, use, surroundings, self._contexts[rank]))
            for layer in held[first - end :]:
                layer.of_stage = held[first - end :]
            held[-1].sends = stage + 1 < len(self._plan.stage_layers)
            held[-1].gives_loss = not held[-1].sends
        return held

    def _shares_buffers(self, index: int, stage: int) -> bool:
        first, end = self._plan.stage_layers[stage]
        others = [layer for layer in (*self._layers[:first], *self._layers[end:]) if isinstance(layer, nn.Module)]
        layer = self._layers[index]
        own = {id(buffer) for buffer in layer.buffers()} if isinstance(layer, nn.Module) else set()
        return bool(own) and any(id(buffer) in own for other in others for buffer in other.buffers())

    def _own_or_copy(
        self,
        index: int,
        layer: nn.Module,
        rank: int,
        stage: int,
        shared: Mapping[int, SharedParameter],
        memo: dict[int, Any],
    ) -> nn.Module:
        """Returns the given layer to the owner of its parameters, else a copy with other leaves on the same memory."""
        keeps = self._world > 1 or self._plan.owner(stage) == rank
        here = set(self._plan.stages_of(rank)) if self._world > 1 else set(range(len(self._plan.stage_layers)))
        uses = {id(parameter): shared.get(id(parameter)) for parameter in layer.parameters()}
        own = {key for key, use in uses.items() if keeps and (use is None or min(here & {*use.stages}) == stage)}
        if keeps and own == uses.keys():
            made = layer
        else:
            made = copied(layer, memo, own, in_words(index, layer))
            pairs = zip(called_modules(layer), called_modules(made), strict=True)
            self._replicas += [Replica(module, copy, memo) for module, copy in pairs]
        for original, parameter in zip(layer.parameters(), made.parameters(), strict=True):
            if use := shared.get(id(original)):
                use.leaves[rank, stage] = parameter
        return made

    def _find_twins(self, shared: Mapping[int, SharedParameter]) -> None:
        """Pairs leaves with the parameters that optimizers update. Rank threads share their memory."""
        updated: dict[str, nn.Parameter] = {}
        for layer in sorted(self._all(), key=lambda layer: not layer.own):
            for name, parameter in layer.module.named_parameters():
                main = updated.setdefault(f"{layer.index}.{name}", parameter)
                if main is not parameter:
                    if main.shape != parameter.shape or main.dtype != parameter.dtype:
                        raise ConfigError(
                            f"{in_words(layer.index, layer.module)}: the factory makes '{name}' in several shapes"
                        )
                    share_memory(parameter, main)
                    self._twins.append((main, parameter))
        replicas = {id(twin) for _, twin in self._twins}
        of_stages = [
            (each.first, leaf)
            for each in shared.values()
            for leaf in each.leaves.values()
            if each.first is not None and leaf is not each.first and id(leaf) not in replicas
        ]
        self._twins = [*of_stages, *self._twins]  # Replicas follow the leaves of their stage

    def _as_given(self, held: list[HeldLayer]) -> dict[int, Any]:
        """Returns the layers with each parameter of a stage once, and with buffers, whose first values are shared. A
        stage without trained parameters gets one that no layer uses."""
        given: dict[int, Any] = {}
        seen: set[tuple[int, int]] = set()
        stages: set[int] = set()
        trained = {layer.stage for layer in held if any(p.requires_grad for p in layer.module.parameters())}
        for layer in held:
            values: list[tuple[str, Tensor]] = []
            for name, value in [*layer.module.named_parameters(), *layer.module.named_buffers()]:
                if (layer.stage, id(value)) not in seen:
                    seen.add((layer.stage, id(value)))
                    sharded = self._sharded.get(id(value))
                    values.append((name, local_of(value) if sharded is None else sharded.leaf))
            if layer.stage not in trained | stages:
                values.append(("untrained", nn.Parameter(torch.zeros(1, device=self._device))))
            stages.add(layer.stage)
            given[layer.index] = _training.Layer(type(layer.module).__name__, layer, values)
        return given

    def _prepare(self, call: _Call) -> tuple[Tensor, Tensor]:
        """Checks the arguments on all ranks before any message, and starts the run if messages change. Returns what
        the executor gets."""
        if self._failed:
            raise _training.Error("this pipeline has failed before, or is closed; create a new one")
        for context in self._contexts.values():
            context.take_over()
        call.inputs, call.targets = as_samples(call.inputs), as_samples(call.targets)
        problem: Exception | None = None
        key = None
        try:
            self._follow_changes(call.name)
            self._loss.scale = self._scale_of(call)
            self._loss.predicts = self._count.predicts = call.name == "predict"
            self._loss.use_arguments(call.loss_kwargs)
            key = self._key(call)
            if key is None or key != self._agreed_key or not self._started:
                self._agreed_key, self._agreed_rows = None, None
                self._own_facts = self._facts(call)
        except ConfigError as error:
            problem, self._agreed_key, self._agreed_rows = error, None, None
        hashes = (0, 0) if problem is not None else self._hashes(call)
        self._generators.seed = self._generators.own_seed()
        if self._world > 1 or self._agreed_key is None:
            if self._processes.guarded(lambda: self._agree(call, problem, hashes)):
                self._started = False
            self._agreed_key = key
        inputs, targets = (
            each if isinstance(each, MicroBatches) else mapped(_without_inference_mode, each)
            for each in (call.inputs, call.targets)
        )
        given = self._data.take_over(inputs, targets, self.batch_size, self._per_op, call.return_outputs)
        if not self._started:
            self._start(*given, keeps_gradients=call.name != "step" or not call.zero_gradients)
        return given

    def _follow_changes(self, call: str) -> None:
        """Brings changes of the given layers to replicas. Raises ConfigError for changes that nothing can follow."""
        self._watch.require_same()
        self._freshness.require()
        if self._splits and call == "step" and has_flop_counter():
            raise ConfigError(
                f"FlopCounterMode cannot count a split backward, which {self._layout['schedule']} has; count with a "
                "schedule that splits none, such as 1f1b or chimera"
            )
        if self._watch.moved():
            follow_memory(self._twins)
        for replica in self._replicas:
            replica.follow()

    def _end_call(self) -> None:
        for replica in self._replicas:
            replica.note()

    def _scale_of(self, call: _Call) -> float:
        if call.scaler is None:
            scale = call.scale_loss
            if isinstance(scale, bool) or not (callable(scale) or isinstance(scale, int | float)):
                raise ConfigError(f"scale_loss: got {scale!r}; give a number, or a function such as scaler.scale")
            return float(scale(torch.ones((), device=self._device)) if callable(scale) else scale)
        if not isinstance(call.scaler, torch.amp.GradScaler):
            raise ConfigError(f"scaler: got a {type(call.scaler).__name__}; give a torch.amp.GradScaler")
        if call.scale_loss != 1.0:
            raise ConfigError("scale_loss: the scaler scales the loss already; give one of both")
        call.scaler.scale(torch.zeros((), device=self._device))  # Creates the scale
        return float(call.scaler.get_scale())

    def _hashes(self, call: _Call) -> tuple[int, int]:
        """Returns hashes of inputs and targets, 0 in calls without a comparison, and for None."""
        self._calls += 1
        is_checked = self._calls <= _CHECK_SAMPLES_FIRST or self._calls % _CHECK_SAMPLES_EVERY == 0
        if self._world == 1 or not self._checks_data or not is_checked:
            return 0, 0
        given = (as_tree(each) for each in (call.inputs, call.targets))
        inputs, targets = (0 if each is None else digest_of_values(each) for each in given)
        return inputs, targets

    def _key(self, call: _Call) -> tuple[object, ...] | None:
        """Returns what `_facts` depends on, None for arguments that it refuses."""
        leaves, tree = [call.inputs, call.targets], None
        if not (isinstance(call.inputs, Tensor) and isinstance(call.targets, Tensor)):
            leaves, tree = flattened([as_tree(call.inputs), as_tree(call.targets)])
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if not tensors:
            return None
        self._autocast.take_over()
        groups = [len(group["params"]) for group in getattr(call.optimizer, "param_groups", ())]
        flags = [parameter.requires_grad for parameter in self._parameters]
        facts = [(each.shape, each.dtype, each.device) for each in tensors]
        others = [repr(leaf) for leaf in leaves if not isinstance(leaf, Tensor)]
        modes = (self._autocast.in_words(), torch.is_inference_mode_enabled())
        hooks = [(p._backward_hooks is None, p._post_accumulate_grad_hooks is None) for p, _ in self._twins]
        of_modules = [key for replica in self._replicas for key in hooks_of(replica.module)]
        training = [layer.module.training for layer in self._every_layer]
        asked = (call.in_words(), repr(call.clip), self._loss.scale, call.optimizer, groups)
        return (asked, tree, facts, others, modes, flags, hooks, of_modules, training)

    def _require_samples(self, name: str, value: Any, is_read: bool) -> list[tuple[str, Tensor]]:
        """Returns the tensors by name. Raises ConfigError unless they are the samples of a step."""
        if value is None and not is_read:
            return []
        if isinstance(value, MicroBatches):
            require_cut_alike(name, value, self.micro_batches)
            for number, each in enumerate(value):
                for own, tensor in named_tensors(f"{name}[{number}]", each):
                    require_on(self._device, own, tensor)
            return [(own, tensor) for own, tensor in named_tensors(name, value[0])]
        named = named_tensors(name, value)
        for own, tensor in named:
            require_on(self._device, own, tensor)
            if tensor.dim() == 0 or len(tensor) != self.batch_size:
                found, wanted = len(tensor) if tensor.dim() else "no", self.batch_size
                raise ConfigError(f"{own}: {found} samples, but a step of this process takes {wanted}")
        return named

    def _facts(self, call: _Call) -> dict[str, str]:
        """Returns what all ranks must agree on, by `_fact_names`. Raises ConfigError for wrong arguments."""
        inputs = self._require_samples("inputs", call.inputs, self.has_first_stage)
        targets = [] if call.name == "predict" else self._require_samples("targets", call.targets, self.has_last_stage)
        clip, optimizer = call.clip, call.optimizer
        if isinstance(clip, bool) or not isinstance(clip, int | float) or not clip >= 0:
            raise ConfigError(f"clip: got {clip!r}; give a number of at least 0, the largest gradient norm (0: any)")
        if clip:
            self._require_clippable()
        if call.name == "step" and torch.is_inference_mode_enabled():
            raise ConfigError("step: nothing can be trained under inference_mode; leave it, or use validate")
        for main, twin in self._twins:
            if twin.requires_grad != main.requires_grad:
                twin.requires_grad_(main.requires_grad)
            share_hooks(twin, main)
        for replica in self._replicas:
            follow_hooks(replica.made, replica.module)
        if optimizer is not None:
            self._require_own(optimizer)
        elif call.scaler is not None:
            raise ConfigError("scaler: needs optimizer=, whose gradients it divides by its scale")
        facts = {"call": call.in_words(), "clip": repr(float(clip)), "optimizer": type(optimizer).__name__}
        facts["scale"] = repr(self._loss.scale)
        facts["autocast"] = self._autocast.in_words()
        stages = {layer.stage for layer in self._all()}
        for name, read, named in (("inputs", self.has_first_stage, inputs), ("targets", self.has_last_stage, targets)):
            if read and named:
                samples = {own: f"samples {tensor_in_words(each.shape[1:], each.dtype)}" for own, each in named}
                facts[name] = samples.get(name) or f"{samples}"
        frozen: dict[int, list[str]] = {stage: [] for stage in stages}
        for layer in self._all():
            for name, parameter in layer.module.named_parameters():
                if not parameter.requires_grad:
                    frozen[layer.stage].append(f"{layer.index}.{name}")
        facts |= {f"frozen in stage {s}": ", ".join(dict.fromkeys(names)) or "nothing" for s, names in frozen.items()}
        # A layer that leaves eval mode for the first time may draw random numbers or write to buffers: _start() looks
        self._trained |= {layer.index for layer in self._all() if any(m.training for m in layer.module.modules())}
        for stage in stages:
            first, end = self._plan.stage_layers[stage]
            facts[f"training in stage {stage}"] = f"layers {[i for i in range(first, end) if i in self._trained]}"
        return facts

    def _require_clippable(self) -> None:
        """Raises ConfigError for layers whose groups other pipelines share: their ranks would clip by other norms."""
        for layer in self._every_layer:
            if not is_wrapped(layer.module) and (name := group_in(layer.module)):
                raise ConfigError(
                    f"clip: {in_words(layer.index, layer.module)} has a group of its own, '{name}', whose ranks would "
                    "clip by other norms; leave clip out, and clip by the norm over all ranks before optimizer.step"
                )

    def _agree(self, call: _Call, problem: Exception | None, hashes: tuple[int, int]) -> bool:
        """Raises on all ranks if one has a problem, or if their facts differ. Returns whether messages change."""
        facts = {} if problem else self._own_facts
        own = [digest(facts[name]) if name in facts else 0 for name in self._fact_names]
        trained = sum(parameter.requires_grad for _, parameter in self._updated)
        rows = self._processes.rows(
            [int(problem is not None), int(not self._started), trained, self._generators.seed, *own, *hashes]
        )
        self._generators.seed = int(rows[0, 3])
        rows, samples = rows[:, :-2], rows[:, -2:]
        groups = [self._plan.group(rank) for rank in range(self._world)] if samples.any() else []
        if self._agreed_rows is not None and torch.equal(rows, self._agreed_rows):
            require_samples(samples.tolist(), groups, must_differ=call.name == "step")
            return False
        self._agreed_rows = None
        if rows[:, 0].any():
            told = self._processes.exchanged("" if problem is None else str(problem))
            if problem is not None:
                raise problem
            raise OtherRankError(next(f"rank {rank}: {words}" for rank, words in enumerate(told) if words))
        agreed = rows[:, 4:].max(0).values
        if ((rows[:, 4:] != agreed) & (rows[:, 4:] != 0)).any():
            self._processes.require_equal(facts)
        require_samples(samples.tolist(), groups, must_differ=call.name == "step")
        if call.name == "step" and not rows[:, 2].any():
            raise ConfigError("no parameter of any layer requires grad; there is nothing to train")
        messages = agreed[5:].tolist()
        changed = bool(rows[:, 1].any()) or messages != self._agreed
        self._agreed = messages
        if not changed:
            self._agreed_rows = rows
        return changed

    def _require_own(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises ConfigError unless the optimizer updates every trained parameter of this process, and no other's."""
        groups = getattr(optimizer, "param_groups", None)
        if not isinstance(groups, list):
            raise ConfigError(f"optimizer: got a {type(optimizer).__name__}; give a torch.optim.Optimizer")
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise ConfigError("optimizer: SparseAdam needs sparse gradients, but a pipeline's are dense; use Adam")
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise ConfigError(
                f"optimizer: {type(optimizer).__name__} calls a closure that computes the loss again, but a step runs "
                "once; use an optimizer whose step() needs no closure"
            )
        given = {id(p) for group in groups for p in group["params"]}
        trained = dict(self.named_parameters())
        missed = [name for name, p in trained.items() if id(p) not in given]
        if missed:
            raise ConfigError(
                f"optimizer: misses {missed[0]} and {len(missed) - 1} more of {len(trained)} trained parameters; make "
                "it over parameters()"
            )
        layers = [layer for layer in self._layers if isinstance(layer, nn.Module)]
        own = {id(p) for _, p in self._updated} | {id(p) for layer in layers for p in layer.parameters()}
        foreign = [p for group in groups for p in group["params"] if id(p) not in own]
        if foreign:
            raise ConfigError(
                f"optimizer: holds a parameter {tensor_in_words(foreign[0].shape, foreign[0].dtype)} that is not of "
                "this pipeline; make it over parameters()"
            )

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Returns `call()`. A failure ends the pipeline, unless the ranks refused the data together."""
        try:
            return self._processes.guarded(call)
        except _training.RefusedData:
            raise
        except BaseException:
            self._failed = True
            self._shared.close()
            raise

    def _start(self, inputs: Tensor, targets: Tensor, keeps_gradients: bool) -> None:
        """Finds shapes and shares first values. After a failure here, the next call starts again."""
        parameters = [*self._parameters, *(parameter for _, parameter in self._updated)] if keeps_gradients else []
        gradients = [(parameter, parameter.grad) for parameter in parameters]
        if self._used:
            steps, self._run = self._run.steps, self._new_run()
            self._run.steps = steps
            self._processes.guarded(self._connect)
        self._used = True
        with torch.inference_mode(False), untouched_generators(self._device), contextlib.ExitStack() as probes:
            boundaries = Boundaries(self._processes.store())
            for layer in self._all():
                layer.boundaries = boundaries
                probes.enter_context(layer.probing())
            self._processes.guarded(lambda: self._run.start(inputs, targets))
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for parts in self._parts.values():
            parts.release()
        self._processes.guarded(self._share_draws)
        self._processes.guarded(self._shared.connect)
        self._processes.guarded(self._require_equal_copies)
        self._warm_up(inputs, targets, validates=False)
        self._started = True

    def _share_draws(self) -> None:
        """Tells replicas, which run no first forward, which generators their layers and the loss draw from."""
        own = {layer.index: layer.draws for layer in self._all() if layer.own}
        for layers, of_loss in self._processes.told((own, self._loss.draws)):
            for layer in self._all():
                layer.draws = layer.draws | layers.get(layer.index, set())
            self._loss.take_over(of_loss)

    def _sum_shared(self, norm: float) -> float:
        """Sums gradients of shared parameters over stages. Returns the norm of all gradients."""
        change = self._shared.sum_gradients()
        change = float(self._processes.rows([change], torch.float64).sum())
        return float(max(norm * norm + change, 0.0) ** 0.5)

    def _clip(self, clip: float, norm: float) -> None:
        if 0 < clip < norm:
            every = {id(p): p for layer in self._all() for p in layer.module.parameters()}
            for parameter in every.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(clip / norm)

    def _require_equal_copies(self) -> None:
        """Raises Error on all ranks if replicas of a stage differ in a bit."""
        stages = range(len(self._plan.stage_layers))
        if self._world == 1 or not any(map(self._plan.is_copied, stages)):
            return
        row = [0] * len(stages)
        for stage in {layer.stage for layer in self._all()}:
            held = [layer.module for layer in self._all() if layer.stage == stage]
            row[stage] = 1 + bits_of([each for module in held for each in (*module.parameters(), *module.buffers())])
        rows = self._processes.rows(row)
        for stage in stages:
            holders = rows[:, stage].nonzero().flatten().tolist()
            for rank in holders:
                if rows[rank, stage] != rows[holders[0], stage]:
                    raise _training.Error(
                        f"stage {stage}: the replicas on ranks {holders[0]} and {rank} hold different values; all "
                        "ranks must update them alike"
                    )

    def _warm_up(self, inputs: Tensor, targets: Tensor, validates: bool) -> None:
        """Runs all ops of a step or a validation once before its first message, without effects.

        The first use of an op may wait for the whole GPU, which would deadlock with a receive on it.
        """
        if self._device.type == "cpu":
            return
        with untouched_generators(self._device), contextlib.ExitStack() as kept:
            for layer in self._all():
                kept.enter_context(unchanged(layer.module))
            self._processes.guarded(lambda: self._run.warm_up(inputs, targets, validates))


def _layers_in(given: Any) -> list[Any]:
    if isinstance(given, nn.Module) and is_sharded(given):
        raise ConfigError(
            "layers: fully_shard has wrapped the model around the layers, and nothing would gather the weights that it "
            "holds itself; call fully_shard for each layer instead"
        )
    return listed(given)


def _without_inference_mode(tensor: Tensor) -> Tensor:
    return tensor.clone() if tensor.is_inference() else tensor


def _as_text(value: Any) -> str:
    """Returns an argument as a text that is equal in all processes."""
    if isinstance(value, Schedule):
        return f"{value.name} of {value.stages} stages and {value.micro_batches} micro-batches, {digest(value._text):x}"
    if isinstance(value, Partition):
        value = value.layers
    if callable(value):
        return in_short(value)
    return str(list(value)) if isinstance(value, Sequence) and not isinstance(value, str) else repr(value)


def _whole(name: str, value: Any) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ConfigError(f"{name}: got {value!r}; give a whole number")
