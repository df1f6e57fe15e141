"""Schedules of chimerapipe in torchtitan, without a fork (docs/bring_your_model.md).

torchtitan's trainer gets its pipeline from `ModelSpec.pipelining_fn`; `pipelining("chimera-zb")` is such a function.
The parts of the model, their weights, optimizer, checkpoints and data stay those of torchtitan.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ._generate import schedule as make_schedule
from ._pipeline import Pipeline
from ._step_data import MicroBatches
from ._schedule import Schedule
from ._training import ConfigError

__all__ = ["PipelineSchedule", "pipelining"]


def pipelining(schedule: Schedule | str = "chimera-zb") -> Callable[..., tuple[Any, list[nn.Module], bool, bool]]:
    """Returns a `pipelining_fn` for a ModelSpec of torchtitan.

    `schedule`: a Schedule, or a name of cp.schedules(), with a stage per process of the pipeline and with
    local_batch_size / pipeline_parallel_microbatch_size micro-batches.

    The settings pipeline_parallel_schedule and pipeline_parallel_layers_per_stage decide nothing then. A process holds
    a part of the model for each of its stages. Raises ConfigError for a schedule that does not fit.
    """

    def pipelining_fn(
        model: nn.Module, *, parallel_dims: Any, training: Any, parallelism: Any, device: torch.device,
        model_config: Any, parallelize_fn: Callable[..., nn.Module], loss_fn: Callable[..., Any], **settings: Any,
    ) -> tuple[Any, list[nn.Module], bool, bool]:
        mesh = parallel_dims.get_mesh("pp")
        size, left = divmod(training.local_batch_size, parallelism.pipeline_parallel_microbatch_size)
        if left:
            raise ConfigError("local_batch_size: pipeline_parallel_microbatch_size does not divide it")
        made = schedule
        if not isinstance(made, Schedule):
            made = make_schedule(made, stages=mesh.size(), micro_batches=size)
        if made.micro_batches != size or len(made.workers) != mesh.size() or made.micro_batch_scale != 1:
            raise ConfigError(
                f"schedule: {made.name} has {made.micro_batches} micro-batches and {len(made.workers)} workers, but "
                f"torchtitan {size} micro-batches and {mesh.size()} processes in a pipeline"
            )
        if hasattr(loss_fn, "set_lm_head"):
            raise ConfigError("loss: ChunkedLossWrapper runs backwards of its own; give CrossEntropyLoss.Config")
        splits = any(op.kind == "W" for row in made.workers for op in row)
        if splits and "SelectiveAC" in type(settings.get("ac_config")).__qualname__:
            raise ConfigError(
                f"activation_checkpoint: SelectiveAC allows one backward, but {made.name} splits it in two; give None "
                "or FullAC.Config()"
            )
        own = sorted({stage for row in made.placement for stage, at in enumerate(row) if at == mesh.get_local_rank()})
        names = _names_of_stages(made.stages, parallelism, len(model_config.layers))
        shared = {"parallel_dims": parallel_dims, "training": training, "parallelism": parallelism, **settings}
        parts = {stage: parallelize_fn(_part(model, names[stage]), **shared) for stage in own}
        pipeline = PipelineSchedule(made, parts, loss_fn, device, mesh)
        return pipeline, list(parts.values()), 0 in own, made.stages - 1 in own

    return pipelining_fn


class PipelineSchedule:
    """What torchtitan's trainer calls in place of a schedule of torch.distributed.pipelining."""

    def __init__(
        self, schedule: Schedule, parts: Mapping[int, nn.Module], loss_fn: Callable[..., Any], device: torch.device,
        mesh: Any,
    ) -> None:
        """`parts`: of the model, by stage of this process; they may have no values before the first step."""
        self._schedule, self._loss_fn, self._device, self._mesh = schedule, loss_fn, device, mesh
        self._stages = {stage: _Stage(part, stage == schedule.stages - 1) for stage, part in parts.items()}
        self._copies = _Copies([])
        self._pipeline: Pipeline | None = None

    def step(
        self, *, arg_mbs: Sequence[tuple[Any, ...]] | None = None, kwarg_mbs: Sequence[Mapping[str, Any]] | None = None,
        target_mbs: Sequence[Tensor] | None = None, losses: list[Tensor] | None = None,
        loss_kwargs: Mapping[str, Any] | None = None, return_outputs: bool = False,
    ) -> None:
        """Adds the gradients of all micro-batches to `.grad`, and the sum of the losses to `losses`."""
        if return_outputs:
            raise ConfigError("return_outputs: not supported; torchtitan's trainer does not ask for outputs")
        inputs, targets, pipeline = self._taken(arg_mbs, kwarg_mbs, target_mbs)
        self._copies.restore()
        done = pipeline.step(inputs, targets, loss_kwargs=loss_kwargs, zero_gradients=False)
        self._copies.divide()
        self._report(losses, done.loss)

    def eval(
        self, *, arg_mbs: Sequence[tuple[Any, ...]] | None = None, kwarg_mbs: Sequence[Mapping[str, Any]] | None = None,
        target_mbs: Sequence[Tensor] | None = None, losses: list[Tensor] | None = None,
    ) -> None:
        """Adds the sum of the losses to `losses`."""
        inputs, targets, pipeline = self._taken(arg_mbs, kwarg_mbs, target_mbs)
        self._report(losses, pipeline.validate(inputs, targets))

    def _report(self, losses: list[Tensor] | None, loss: float) -> None:
        if losses is not None:
            losses.append(torch.tensor(loss, dtype=torch.float64, device=self._device))

    def _taken(self, arg_mbs: Any, kwarg_mbs: Any, target_mbs: Any) -> tuple[Any, Any, Pipeline]:
        """Returns micro-batches for the pipeline. A number goes with each, by which stages find its arguments."""
        if self._pipeline is None:
            holders = {stage: len({row[stage] for row in self._schedule.placement}) for stage in self._stages}
            self._copies = _Copies(  # After torchtitan has made the parameters
                [(p, math.sqrt(holders[stage])) for stage, part in self._stages.items() for p in part.parameters()]
            )
            self._pipeline = Pipeline(
                [_Layer(self._stages.get(stage)) for stage in range(self._schedule.stages)], self._loss, self._schedule,
                device=self._device.type, count=lambda target: 1, check_loss=False, check_data=False, mesh=self._mesh,
            )
        named = [dict(each) for each in kwarg_mbs or [{}] * self._schedule.micro_batches]
        for stage in self._stages.values():
            stage.named = named
        inputs = None
        if arg_mbs is not None:
            inputs = [(tuple(given), torch.full((len(given[0]),), at)) for at, given in enumerate(arg_mbs)]
        return inputs and MicroBatches(inputs), target_mbs and MicroBatches(list(target_mbs)), self._pipeline

    def _loss(self, output: Tensor, target: Tensor, **named: Any) -> Tensor:
        """Returns a loss whose mean over micro-batches is torchtitan's sum over them."""
        loss, _ = self._loss_fn(output, target, **named)
        return loss * self._schedule.micro_batches


class _Stage(nn.Module):
    """A part of the model. Its value is the positional arguments and the number of the micro-batch."""

    def __init__(self, part: nn.Module, is_last: bool) -> None:
        super().__init__()
        self.part, self._is_last = part, is_last
        self.named: list[dict[str, Any]] = []
        """Arguments of the forward, by micro-batch."""

    def forward(self, value: tuple[Any, Tensor]) -> Any:
        given, number = value
        arguments = given if isinstance(given, tuple) else (given,)
        result = self.part(*arguments, **self.named[int(number.flatten()[0])])
        return result if self._is_last else (result, number)


class _Layer:
    """Gives the pipeline a stage of this process. It asks for no other."""

    def __init__(self, stage: _Stage | None) -> None:
        self._stage = stage

    def __call__(self) -> nn.Module:
        assert self._stage is not None
        return self._stage


class _Copies:
    """Gradients of stages with several copies, between the step and the optimizer.

    torchtitan's clipping adds squares over all processes of the pipeline. So each of f copies holds the gradient
    divided by the root of f until the optimizer's step.
    """

    def __init__(self, factors: Sequence[tuple[nn.Parameter, float]]) -> None:
        self._factors, self._are_divided = list(factors), False
        if factors:
            register_optimizer_step_pre_hook(lambda optimizer, arguments, named: self.restore())

    def divide(self) -> None:
        self._multiply_by(lambda factor: 1 / factor)
        self._are_divided = True

    def restore(self) -> None:
        if self._are_divided:
            self._multiply_by(lambda factor: factor)
            self._are_divided = False

    def _multiply_by(self, of: Callable[[float], float]) -> None:
        for parameter, factor in self._factors:
            if parameter.grad is not None:
                parameter.grad.mul_(of(factor))


def _names_of_stages(stages: int, parallelism: Any, layers: int) -> list[list[str]]:
    """Returns the names of each stage's modules. The embedding and the head count as some layers, which the settings
    pipeline_parallel_first_stage_less_layers and pipeline_parallel_last_stage_less_layers give."""
    given: list[list[str]] | None = parallelism.module_fqns_per_model_part
    if given is not None:
        if len(given) != stages:
            raise ConfigError(f"module_fqns_per_model_part: {len(given)} stages, but the schedule has {stages}")
        return given
    first = parallelism.pipeline_parallel_first_stage_less_layers
    whole = first + layers + parallelism.pipeline_parallel_last_stage_less_layers
    ends = [(whole * (stage + 1) + stages - 1) // stages - first for stage in range(stages)]
    ends = [min(max(end, 0), layers) for end in ends[:-1]] + [layers]
    names = [[f"layers.{at}" for at in range(begin, end)] for begin, end in zip([0, *ends], ends)]
    if not all(names[1:-1]) or whole < stages:
        raise ConfigError(f"schedule: {layers} layers are too few for {stages} stages")
    names[0].insert(0, "tok_embeddings")
    names[-1] += ["norm", "lm_head"]
    return names


def _part(model: nn.Module, names: list[str]) -> nn.Module:
    """Returns a copy of a model of torchtitan with these modules alone; its forward skips missing ones."""
    part = copy.deepcopy(model)
    for name, module in list(part.named_children()):
        if isinstance(module, nn.ModuleDict):
            for key in [key for key in module if f"{name}.{key}" not in names]:
                del module[key]
        elif name not in names:
            setattr(part, name, None)
    return part
