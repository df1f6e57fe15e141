"""Training with a synchronous schedule on the C++ executor."""

import operator
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
from ._agreement import digest, facts_of_layers, in_short, versions  # noqa: E402
from ._calls import Agreement, Call, Choices  # noqa: E402
from ._checkpoint import Checkpoints, LoadedCheckpoint, Saving  # noqa: E402
from ._devices import own_device, uses_nccl  # noqa: E402
from ._distributed import is_sharded  # noqa: E402
from ._given_layers import LayerOrFactory, Recompute, recomputed_stages  # noqa: E402
from ._held_layer import Autocast, Surroundings  # noqa: E402
from ._layers import Layers  # noqa: E402
from ._loss import CheckedLoss, Count, require_sum  # noqa: E402
from ._measure import listed  # noqa: E402
from ._messages import mapped  # noqa: E402
from ._modules import eval_mode  # noqa: E402
from ._placed import settled  # noqa: E402
from ._processes import Processes, close_at_exit  # noqa: E402
from ._random import OpGenerators, RankContext  # noqa: E402
from ._run import Results, Run  # noqa: E402
from ._shape import Shape  # noqa: E402
from ._step_data import MicroBatches, StepData  # noqa: E402
from ._training import CheckpointError, ConfigError, PeerLostError  # noqa: E402

__all__ = ["CheckpointError", "ConfigError", "LoadedCheckpoint", "PeerLostError", "Pipeline", "Saving", "Step"]


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


class Pipeline:
    """A model that trains by a pipeline schedule.

    Each process of `mesh`, or else of torch's default group, or else of a launcher's job, is a rank. Without these all
    ranks are threads. docs/python.md lists the requirements on layers.
    """

    def __init__(
        self, layers: nn.Module | Sequence[LayerOrFactory], loss: Callable[..., Tensor], schedule: Schedule, *,
        micro_batch_size: int = 1, partition: Sequence[int] | Partition = (), data_parallel: int = 1, mesh: Any = None,
        recompute: Recompute = False, device: torch.device | str = "cpu", reduction: str = "natural",
        count: Callable[[Any], int] = Tensor.numel, check_loss: bool = True, check_data: bool = True,
        adapt: str = "documents",
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
        `adapt`: `documents` uses `work=` of `step`, `none` ignores it. `all` is for `chimera train`.

        Raises ConfigError for impossible arguments.
        """
        self._processes = Processes(mesh)
        together = self._processes.task("cp.Pipeline")
        given = together.all_or_none(lambda: _layers_in(layers))
        arguments: dict[str, Any] = {"schedule": schedule, "partition": partition, "recompute": recompute}
        arguments |= {"micro_batch_size": micro_batch_size, "data_parallel": data_parallel, "reduction": reduction}
        arguments["adapt"] = adapt
        facts = {"versions": versions(), **facts_of_layers(given), "loss": in_short(loss)}
        facts |= {"count": in_short(count), **{name: _as_text(value) for name, value in arguments.items()}}
        self._processes.require_equal({**facts, "device": str(device).partition(":")[0]})
        arguments |= {"device": device, "check_loss": bool(check_loss), "check_data": bool(check_data)}
        together.all_or_none(lambda: self._assemble(layers, given, loss, count, **arguments))
        close_at_exit(self)
        self._run.connect()

    def _assemble(
        self, model: Any, given: Sequence[Any], loss: Callable[..., Tensor], count: Callable[[Any], int], *,
        schedule: Schedule, partition: Sequence[int] | Partition, recompute: Recompute, micro_batch_size: Any,
        data_parallel: Any, reduction: Any, adapt: Any, device: torch.device | str, check_loss: bool, check_data: bool,
    ) -> None:
        """Makes the parts, without connections. Raises ConfigError for impossible arguments."""
        if not isinstance(schedule, Schedule):
            raise ConfigError(f"schedule: got a {type(schedule).__name__}; use cp.schedule or cp.Schedule")
        require_sum(loss)
        micro_batch_size, width = _whole("micro_batch_size", micro_batch_size), _whole("data_parallel", data_parallel)
        reduction = str(reduction)
        if adapt not in ("none", "documents"):
            hint = ": the package does not follow the speeds of ranks, as `chimera train --adapt all` does"
            raise ConfigError(f"adapt: got {adapt!r}{hint if adapt == 'all' else ''}; give 'documents' or 'none'")
        if torch.get_default_device().type == "meta":
            raise ConfigError("the default device is meta, which holds no values; make the pipeline outside of it")
        processes, world = self._processes, self._processes.world
        where = own_device(device, world, deterministic=reduction == "canonical")
        self._recomputed = recomputed = recomputed_stages(recompute, schedule.stages)
        plan = _training.Plan(
            schedule.to_json(), len(given), _numbers_of_layers(partition), width, micro_batch_size, recomputed,
            reduction, uses_nccl(where, world),
        )
        _require_processes(processes, plan.num_ranks, f"{width} groups of {len(schedule.workers)} workers")
        self._shape = shape = Shape(plan, schedule, width, processes)
        autocast, generators, data = Autocast(where), OpGenerators(where, given), StepData()
        of_threads: dict[int, RankContext] = {}
        threads = shape.ranks if len(shape.ranks) > 1 else []
        contexts = {r: RankContext(r, of_threads) for r in threads} or {shape.ranks[0]: RankContext()}
        checked = CheckedLoss(
            loss, autocast, where, of_threads, data, generators, len(given), checks_sum=check_loss,
            is_repeated=schedule.stages - 1 in recomputed,
        )
        counted = Count(count, data)
        self._surroundings = surroundings = Surroundings(where, autocast, data, generators)
        self._layers = layers = Layers(model, given, shape, processes, surroundings, contexts, recomputed, reduction)
        self._contexts, choices = contexts, Choices(check_data, adapt == "documents", reduction == "canonical")
        self._agreement = Agreement(processes, shape, layers, checked, counted, generators, autocast, choices)
        self._run = run = Run(processes, shape, layers, checked, counted)
        self._results = Results(processes, shape, run, data, where)
        layout = {"schedule": schedule.name, "stages": schedule.stages, "workers": len(schedule.workers)}
        layout |= {"micro_batches": schedule.micro_batches, "micro_batch_size": micro_batch_size}
        layout |= {"data_parallel": width, "partition": [end - first for first, end in plan.stage_layers]}
        layout |= {"recompute": recomputed, "reduction": reduction, "device": where.type}
        self._checkpoints = Checkpoints(processes, shape, layers, run, self._agreement, generators, layout)

    def close(self) -> None:
        """Ends the pipeline and closes its connections, as the end of the program does; all ranks call it together."""
        self._run.close()
        self._results.close()

    @property
    def rank(self) -> int:
        """Rank of this process; 0 for rank threads."""
        return self._shape.rank

    @property
    def device(self) -> torch.device:
        """Device of layers, inputs and targets."""
        return self._surroundings.device

    @property
    def recomputed(self) -> list[int]:
        """Stages with activation checkpointing."""
        return list(self._recomputed)

    @property
    def width(self) -> int:
        """Number of shares of a mini-batch: W under a launcher, 1 for rank threads."""
        return self._shape.width

    @property
    def group(self) -> int:
        """Share that this process loads, below `width`."""
        return self._shape.group

    @property
    def batch_size(self) -> int:
        """Samples of a step on this process."""
        return self._shape.batch_size

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step on this process, for `MicroBatches`."""
        return self._shape.micro_batches

    @property
    def has_first_stage(self) -> bool:
        """Whether this process reads the inputs."""
        return self._shape.holds(0)

    @property
    def has_last_stage(self) -> bool:
        """Whether this process reads the targets and has outputs."""
        return self._shape.holds(self._shape.stages - 1)

    def step(
        self, inputs: Any, targets: Any, *more: Any, optimizer: torch.optim.Optimizer | None = None,
        clip: float | None = None, scaler: torch.amp.GradScaler | None = None,
        scale_loss: float | Callable[[Tensor], Tensor] = 1.0, loss_kwargs: Mapping[str, Any] | None = None,
        zero_gradients: bool = True, return_outputs: bool = False, work: Sequence[float] | None = None,
    ) -> Step:
        """Trains on a mini-batch.

        `inputs`, `targets`: `batch_size` samples in the first dimension, equal on all ranks of a group. The first stage
        reads the inputs, the last stage the targets; a rank without this stage may pass None. They are a tensor, or
        tensors in a tuple, list, dict, dataclass or BatchEncoding; or `MicroBatches`, which are already cut.
        `optimizer`: over `parameters()`; without it the caller updates them.
        `clip`: largest global gradient norm, as in `clip_grad_norm_`; None or 0 disables clipping.
        `scaler`: a torch.amp.GradScaler on each rank, for float16: the loss is multiplied by its scale, gradients are
        divided by it before clipping, and if one is not finite, all ranks skip the update. Needs `optimizer`.
        `scale_loss`: a number, or a function such as `scaler.scale`, by which losses are multiplied before backward.
        Gradients and their norm are those of the scaled loss; the returned loss is not scaled. After a function,
        gradients may be infinite: `Step.skipped` then is True on all ranks, each of which has an infinite gradient.
        `loss_kwargs`: keyword arguments of the loss, equal for all micro-batches.
        `zero_gradients`: False adds to the gradients that `.grad` holds, for an update after several steps.
        `return_outputs`: fill `Step.outputs` and `Step.losses`.
        `work`: of each micro-batch, equal on all ranks of a group, such as the sum of squared lengths of documents.
        Micro-batches then stand in those places of the schedule where the step is fast; the results are the same.

        Gradients of the mean loss stay in `.grad`. Raises ConfigError for wrong inputs, and exceptions of modules
        unchanged.
        """
        if more:
            raise ConfigError(
                f"step: got {2 + len(more)} values, but takes inputs and targets; give several inputs as one value, as "
                "in step((a, b), targets) or step({'a': a, 'b': b}, targets)"
            )
        updated = [] if zero_gradients else self._layers.updated
        before = [(parameter, parameter.grad.clone()) for _, parameter in updated if parameter.grad is not None]
        given = (inputs, targets, optimizer, clip, scaler, scale_loss, loss_kwargs, zero_gradients, return_outputs)
        call = Call("step", *given, work=work)
        with self._run.alone():
            tensors = self._prepare(call)
            self._begin_ops()
            loss, norm, is_skipped = self._run.step(call, *tensors, before)
            self._layers.end_call()
            outputs, losses = self._results.of(call)
        step = self._checkpoints.last = Step(loss, norm, is_skipped, outputs, losses)
        return step

    @overload
    def validate(self, inputs: Any, targets: Any, *, loss_kwargs: Mapping[str, Any] | None = None) -> float: ...
    @overload
    def validate(
        self, inputs: Any, targets: Any, *, loss_kwargs: Mapping[str, Any] | None = None, return_outputs: Literal[True],
        gather: bool = False,
    ) -> tuple[float, Any]: ...
    def validate(
        self, inputs: Any, targets: Any, *, loss_kwargs: Mapping[str, Any] | None = None, return_outputs: bool = False,
        gather: bool = False,
    ) -> float | tuple[float, Any]:
        """Returns the mean loss of a mini-batch in eval mode, equal on every rank; with `return_outputs` also the
        outputs, as `predict` does."""
        call = Call("validate", inputs, targets, loss_kwargs=loss_kwargs, return_outputs=return_outputs, gather=gather)
        loss, outputs = self._forwards(call)
        return (loss, outputs) if return_outputs else loss

    def predict(self, inputs: Any, *, gather: bool = False) -> Any:
        """Returns the last stage's outputs for a mini-batch in eval mode, on ranks of the last stage; None on others.
        `gather`: on all ranks. `MicroBatches` give a list."""
        return self._forwards(Call("predict", inputs, return_outputs=True, gather=gather))[1]

    def _prepare(self, call: Call) -> tuple[Tensor, Tensor]:
        """Checks the arguments on all ranks before any message, and starts the run if messages change. Returns what
        the executor gets."""
        self._run.require_usable()
        for context in self._contexts.values():
            context.take_over()
        if self._agreement.on(call, self._run.is_started):
            self._run.is_started = False
        inputs, targets = (
            each if isinstance(each, MicroBatches) else mapped(_plain, each) for each in (call.inputs, call.targets)
        )
        samples, per_op = self.batch_size, self._shape.per_op
        given = self._surroundings.data.take_over(inputs, targets, samples, per_op, call.return_outputs)
        if not self._run.is_started:
            self._run.start(*given, keeps_gradients=call.name != "step" or not call.zero_gradients)
        return given

    def _begin_ops(self) -> None:
        """Forgets earlier results."""
        self._surroundings.data.results = {}
        for layer in self._layers.every:
            layer.prepare()

    def _forwards(self, call: Call) -> tuple[float, Any]:
        with torch.inference_mode(False), self._run.alone():
            given = self._prepare(call)
            try:
                with eval_mode([layer.module for layer in self._layers.every]):
                    loss = self._run.validate(*given, self._begin_ops)
                    self._layers.end_call()
                    return loss, self._results.of(call)[0]
            finally:
                self._layers.release()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Yields this process's trained parameters for an optimizer, each once; an empty one if it has none. Replicas
        on rank threads share their memory."""
        yield from [parameter for _, parameter in self.named_parameters()] or [nn.Parameter(torch.empty(0))]

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields `parameters` with the model's own names; layers of a list have numbers, as in `3.weight`."""
        return self._layers.named_parameters()

    def state_dict(self) -> dict[str, Tensor]:
        """Returns this process's parameters and buffers by the model's names.

        torch.distributed.checkpoint saves the dicts of all processes as one, which any layout and the plain model load.
        """
        state = self._layers.state()
        return {name: value.detach() if isinstance(value, Tensor) else value for name, value in state}

    def module(self) -> nn.Module:
        """Returns a module with this process's parameters and buffers under the model's names, for functions of torch
        that take a model: `torch.distributed.checkpoint.state_dict`, or a logger. It has no forward."""
        return self._layers.module()

    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Returns the optimizer's state and settings by the model's names, as torch's `get_optimizer_state_dict` with
        `flatten_optimizer_state_dict` does. An optimizer without state gets zeros, for `torch.distributed.checkpoint`
        to load into."""
        return self._layers.optimizer_state_dict(optimizer)

    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        """Loads a result of `optimizer_state_dict`, into which `torch.distributed.checkpoint` has loaded."""
        self._layers.load_optimizer_state_dict(optimizer, state)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copies values into this process's layers. `state` may contain others."""
        self._layers.load_state_dict(state)

    def gather(self) -> None:
        """Copies parameters, buffers and extra state of all processes into this one's given layers; collective."""
        self._checkpoints.gather()

    @overload
    def save_checkpoint(
        self, folder: str | os.PathLike[str], *, optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None, keep: int = 0, wait: Literal[True] = True,
    ) -> str: ...
    @overload
    def save_checkpoint(
        self, folder: str | os.PathLike[str], *, optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None, keep: int = 0, wait: Literal[False],
    ) -> Saving: ...
    def save_checkpoint(
        self, folder: str | os.PathLike[str], *, optimizer: torch.optim.Optimizer | None = None,
        extra: Mapping[str, Any] | None = None, keep: int = 0, wait: bool = True,
    ) -> str | Saving:
        """Writes `folder/step-N` and returns its path; collective.

        It contains weights, buffers, values of `get_extra_state`, optimizer state, the number of steps, and the states
        of the random generators of torch, Python and numpy. Any layout loads it, and `chimera checkpoint` reads it. A
        failed write raises and leaves older checkpoints intact. Raises ConfigError for values that cannot be read back.

        `extra`: further JSON values, such as a learning-rate scheduler's state.
        `keep`: number of newest checkpoints to keep; 0 keeps all.
        `wait`: False returns a `Saving` after copying the tensors; a thread writes them, and prints a failure.
        """
        return self._checkpoints.save(folder, optimizer, extra, keep, wait)

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
        return self._checkpoints.load(path, optimizer)


def _layers_in(given: Any) -> list[Any]:
    if isinstance(given, nn.Module) and is_sharded(given):
        raise ConfigError(
            "layers: fully_shard has wrapped the model around the layers, and nothing would gather the weights that it "
            "holds itself; call fully_shard for each layer instead"
        )
    return listed(given)


def _numbers_of_layers(partition: Any) -> list[int]:
    counts = partition.layers if isinstance(partition, Partition) else partition
    if isinstance(counts, str):
        raise ConfigError(f"partition: got the text {counts!r}; give numbers of layers, such as [1, 3]")
    return [_whole("partition", number) for number in counts]


def _require_processes(processes: Processes, needed: int, words: str) -> None:
    """Raises ConfigError for another number of processes. A single one has threads, unless a mesh was given."""
    if processes.world in (*(() if processes.is_given else (1,)), needed):
        return
    has = f"the mesh has {processes.world}" if processes.is_given else f"{processes.world} were started"
    hint = "" if processes.is_given else "; give mesh= if some ranks have other roles"
    raise ConfigError(f"{words} need {needed} processes, but {has}{hint}")


def _plain(tensor: Tensor) -> Tensor:
    """Returns a tensor without inference mode, and the result of a collective."""
    plain: Tensor = settled(tensor)
    return plain.clone() if plain.is_inference() else plain


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
