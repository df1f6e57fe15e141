"""The Trainer of transformers with pipelines (docs/bring_your_model.md).

The loop, callbacks, logs, metrics and files are those of transformers. A batch of gradient accumulation becomes a
micro-batch: the last batch before an update starts a step of the pipeline. Checkpoints are those of a plain Trainer.
"""

import dis
import functools
import inspect
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.data_loader import prepare_data_loader
from torch import Tensor, nn
from transformers import Trainer, TrainerCallback
from transformers.trainer import OPTIMIZER_NAME
from transformers.utils import ModelOutput

from ._generate import schedule as make_schedule
from ._given_layers import Recompute
from ._hugging_face import ModelLoss, layers_of
from ._messages import mapped
from ._partition import Partition
from ._pipeline import Pipeline
from ._schedule import Schedule
from ._training import ConfigError

__all__ = ["PipelineMixin", "PipelineTrainer"]


_IGNORED = -100  # The label of tokens and samples without a loss
# Arguments of TrainingArguments that cannot work, and what to do
_REFUSED = {
    **{name: f"give {name}=False" for name in ("packing", "padding_free", "eval_packing")},
    **dict.fromkeys(("bf16_full_eval", "fp16", "fp16_full_eval"), "use bf16=True"),
    **dict.fromkeys(
        ("activation_checkpointing", "gradient_checkpointing"),
        "give gradient_checkpointing=False, and recompute=True to the trainer",
    ),
    **dict.fromkeys(("debug", "deepspeed", "fsdp", "neftune_noise_alpha"), ""),
    **dict.fromkeys(("parallelism_config", "use_liger_kernel"), ""),
    "auto_find_batch_size": "choose per_device_train_batch_size",
    "predict_with_generate": "call model.generate after train()",
    "torch_compile": "compile layers with layer.compile()",
}
# Arguments of TRL's trainers that others do not take, and what to do
_OF_TRL = {
    "formatting_func": "format the texts of the data set first, or derive from PipelineMixin and trl.SFTTrainer",
    "peft_config": (
        "give model=peft.get_peft_model(model, peft_config), or derive from PipelineMixin and trl.SFTTrainer"
    ),
    "ref_model": "a pipeline trains one model, with its own loss or compute_loss_func",
    "reward_funcs": "a pipeline trains with the model's own loss, or with compute_loss_func",
}
_LAYERWISE = ("lomo", "adalomo", "layerwise")  # Optimizers that update during the backward


@dataclass
class _Step:
    """The samples of a step or validation: N micro-batches of B samples, some of which only fill up."""

    inputs: dict[str, Tensor]
    real: list[int]
    """Samples of each micro-batch that count."""
    items: Any
    """Labels of the update, of all groups: `num_items_in_batch` of transformers. None: each micro-batch's own."""
    factors: list[float]
    """Of the losses of micro-batches."""


_Other: Any = object  # Members come from the other base, a Trainer


class PipelineMixin(_Other):
    """Makes a subclass of transformers.Trainer train by a pipeline: `class MyTrainer(PipelineMixin, SFTTrainer)`."""

    def __init__(
        self, *args: Any, schedule: Schedule | str = "1f1b", data_parallel: int = 1,
        partition: Sequence[int] | Partition = (), recompute: Recompute = False, **named: Any,
    ) -> None:
        """Takes the Trainer's arguments, and:

        `schedule`: a Schedule, or a name of cp.schedules(), with a stage per process (two on the threads of a single
        process) and with gradient_accumulation_steps micro-batches.
        `data_parallel`: W, the number of pipelines. Each loads its share of the training data.
        `partition`, `recompute`: as in Pipeline.

        An update takes per_device_train_batch_size * gradient_accumulation_steps * W samples. Raises ConfigError for
        arguments that cannot work.
        """
        self._options: dict[str, Any] = {"data_parallel": data_parallel, "partition": partition, "recompute": recompute}
        self._wanted = schedule
        self._pipeline: Pipeline | None = None
        self._piped: Any = None  # Its model
        self._waiting: list[dict[str, Any]] = []  # Batches of the next update
        self._loads_training = True
        self._is_whole = True  # This process has all current weights
        _refuse_loss(type(self))
        signature = inspect.signature(super().__init__)
        for name in _OF_TRL.keys() & named.keys() - signature.parameters.keys():
            raise ConfigError(f"{name}: {type(self).__name__} does not take it; {_OF_TRL[name]}")
        _refuse(signature.bind_partial(*args, **named).arguments.get("args"))
        super().__init__(*args, **named)
        handler = self.callback_handler
        handler.call_event = functools.partial(self._call_event, handler.call_event)

    # Set-up

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        world, width = self.args.world_size, self._options["data_parallel"]
        if not isinstance(width, int) or width < 1 or world % width:
            raise ConfigError(f"data_parallel: got {width}; give a number that divides the {world} processes")
        self._workers = world // width
        self.schedule = _schedule(self._wanted, self.args.gradient_accumulation_steps, self._workers)
        self.accelerator.prepare_model = self._prepare_model
        self.accelerator.prepare_data_loader = self._prepare_data_loader
        self.accelerator.gather_for_metrics = self.gather_function = self._own_results

    def _prepare_model(self, model: nn.Module, *args: Any, **named: Any) -> nn.Module:
        """Leaves the model as it is, and known to the accelerator: evaluations log no time of preparation."""
        if all(each is not model for each in self.accelerator._models):
            self.accelerator._models.append(model)
        return model

    def _call_event(self, call: Any, event: str, *args: Any, **named: Any) -> Any:
        """Gathers the trained weights for callbacks that read the model."""
        if not self._is_whole and any(_reads_model(each, event) for each in self.callback_handler.callbacks):
            self._gather()
        return call(event, *args, **named)

    def _own_results(self, value: Any, **named: Any) -> Any:
        """Returns the results of real samples, which each process has."""
        state = self.accelerator.gradient_state
        if not state.end_of_dataloader or state.remainder <= 0:
            return value
        return mapped(lambda each: each[: state.remainder] if each.dim() else each, value)

    def get_tp_size(self) -> int:
        """Returns the number of processes that work on the same samples."""
        return int(self._workers)

    def _get_dataloader(self, *args: Any, **named: Any) -> Any:
        self._loads_training = bool(named.get("is_training"))
        return super()._get_dataloader(*args, **named)

    def _prepare_data_loader(self, loader: Any, device_placement: Any = None, slice_fn_for_dispatch: Any = None) -> Any:
        """Shares training samples among groups. All groups evaluate all samples."""
        accelerator, width = self.accelerator, self._options["data_parallel"] if self._loads_training else 1
        prepared = prepare_data_loader(
            loader, accelerator.device, num_processes=width, process_index=self.pipeline.group if width > 1 else 0,
            put_on_device=accelerator.device_placement if device_placement is None else device_placement,
            rng_types=accelerator.rng_types.copy(), dispatch_batches=False, even_batches=accelerator.even_batches,
            use_seedable_sampler=accelerator.use_seedable_sampler, data_seed=accelerator.dataloader_config.data_seed,
            non_blocking=accelerator.non_blocking,
        )
        accelerator._dataloaders.append(prepared)
        return prepared

    def _move_model_to_device(self, model: nn.Module, device: torch.device) -> None:
        """Does nothing: the pipeline moves the layers of this process."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline of `model`, made at the first use."""
        if self._pipeline is None or self._piped is not self.model:
            layers = layers_of(self.model)
            self._model_loss = ModelLoss(layers)
            self._piped = self.model
            self._pipeline = Pipeline(
                layers, lambda output, rows: self._loss(output, rows), self.schedule, device=self.args.device.type,
                micro_batch_size=self.args.per_device_train_batch_size, check_loss=False, **self._options,
                count=lambda rows: 1,  # Losses of micro-batches have the factors of transformers
            )
        return self._pipeline

    # Training

    def train(self, *args: Any, **named: Any) -> Any:
        """As in transformers. At the end, `model` has the trained weights in each process."""
        result = super().train(*args, **named)
        self._gather()
        return result

    def training_step(self, model: nn.Module, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        """Runs a step with the last batch of an update. Returns its loss, and 0 for the batches before."""
        self._waiting.append(self._prepare_inputs(inputs))
        if len(self._waiting) < self.current_gradient_accumulation_steps:
            return torch.zeros((), device=self.args.device)
        batches, self._waiting = self._waiting, []
        if num_items_in_batch is not None and not self.args.average_tokens_across_devices:
            num_items_in_batch = num_items_in_batch * self._workers  # Of this process alone, and yet divided by them
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        is_scaled = self.loss_is_scaled_for_ga
        if is_scaled is None:
            knows_items = self.model_accepts_loss_kwargs and num_items_in_batch is not None
            is_scaled = knows_items or self.compute_loss_func is not None
        factor = self.schedule.micro_batches / (1 if is_scaled else len(batches))
        step = self._joined(batches, num_items_in_batch, [factor] * len(batches))
        self._forget_others()
        is_fresh = all(parameter.grad is None for parameter in self.pipeline.parameters())
        # A pass may end before its last update. A loss that is not finite is the Trainer's to judge
        call = functools.partial(self.pipeline.step, zero_gradients=is_fresh, scale_loss=lambda loss: loss)
        with self.compute_loss_context_manager(), self.accelerator.autocast():
            self._done = self._run(step, call)
        self._is_whole = False
        return torch.tensor(self._done.loss, device=self.args.device)

    def _clip_grad_norm(self, model: nn.Module) -> Tensor:
        norm = torch.tensor(self._done.gradient_norm, dtype=torch.float64, device=self.args.device)
        nn.utils.clip_grads_with_norm_(list(self.pipeline.parameters()), self.args.max_grad_norm, norm)
        return norm

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> float:
        return float(self._done.gradient_norm)

    def _run(self, step: _Step, call: Any) -> Any:
        shifts = self._loss_shifts_labels

        def arguments(inputs: Any) -> dict[str, Any]:
            if not self.model_accepts_loss_kwargs or "labels" not in inputs:
                return {}
            return {"num_items_in_batch": _items(inputs["labels"], shifts) if step.items is None else step.items}

        pipeline, self._current = self.pipeline, step
        self._model_loss.arguments = arguments
        inputs = step.inputs
        if (self.label_smoother is not None or self.compute_loss_func is not None) and "labels" in inputs:
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
        return call(inputs, torch.arange(pipeline.batch_size, device=pipeline.device))

    def _loss(self, output: dict[str, Tensor], rows: Tensor) -> Tensor:
        """Returns the loss of a micro-batch. `rows`: numbers of its samples."""
        first, step = int(rows[0]), self._current
        place = first // len(rows)
        real = step.real[place]
        inputs = {name: value[first : first + len(rows)] for name, value in step.inputs.items()}
        if not real or not (self.model.training or self._has_labels(inputs)):
            zeros = [0 * value.sum() for name, value in output.items() if value.requires_grad and name != "loss"]
            return sum(zeros, torch.zeros((), device=rows.device))
        items = _items(inputs.get("labels"), self._loss_shifts_labels) if step.items is None else step.items
        loss = Trainer.compute_loss(self, _Result(self.model, output), inputs, num_items_in_batch=items)
        knows_items = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        if step.items is None and items is not None and knows_items and self.args.average_tokens_across_devices:
            loss = loss / self._options["data_parallel"]  # Transformers multiplies; all groups have equal samples
        return loss * step.factors[place]

    def _has_labels(self, inputs: Any) -> bool:
        return bool(self.label_names) and all(name in inputs for name in self.label_names)

    def _joined(self, batches: list[dict[str, Any]], items: Any, factors: list[float]) -> _Step:
        """Makes N micro-batches of B samples of batches. Further samples and tokens have no loss."""
        size, count = self.args.per_device_train_batch_size, self.schedule.micro_batches
        main = self.model.main_input_name
        real = [len(batch[main]) for batch in batches]
        shares = self._options["data_parallel"] > 1
        batches = list(_of_equal_lengths(batches, main, self._pad_token(), self.model, shares))
        batches += [batches[-1]] * (count - len(batches))
        real += [0] * (count - len(real))
        factors = factors + [0.0] * (count - len(factors))
        joined = {}
        for name in batches[0]:
            parts = []
            for batch, samples in zip(batches, real, strict=True):
                part = batch[name]
                if not isinstance(part, Tensor) or len(part) != len(batch[main]):
                    raise ConfigError(f"inputs: '{name}' is no tensor of {len(batch[main])} samples")
                if samples < size:
                    more = part[-1:].expand(size - samples, *part.shape[1:])
                    part = torch.cat([part[:samples], self._without_loss(name, more, samples)])
                parts.append(part)
            joined[name] = torch.cat(parts)
        return _Step(joined, real, items, factors)

    def _without_loss(self, name: str, samples: Tensor, beside: int) -> Tensor:
        """Returns copies of a sample that no loss counts. `beside`: real samples of the micro-batch."""
        if name not in ("labels", *self.label_names):
            return samples
        if beside and (name != "labels" or samples.is_floating_point()):
            raise ConfigError(
                f"{name}: a batch has {beside} samples, and the loss cannot ignore others; set dataloader_drop_last, "
                "and give evaluations a multiple of per_device_train_batch_size samples"
            )
        return torch.full_like(samples, _IGNORED)

    def _pad_token(self) -> int:
        found = getattr(self.processing_class, "pad_token_id", None)
        return 0 if found is None else int(found)

    # Evaluation

    def prediction_step(
        self, model: nn.Module, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[Any, Any, Any]:
        """As in transformers. Processes of a pipeline evaluate together; each gets all results."""
        inputs = self._prepare_inputs(inputs)
        labels = tuple(inputs[name] for name in self.label_names) if self._has_labels(inputs) else None
        loss, outputs = self._evaluated(inputs, prediction_loss_only)
        if prediction_loss_only or not outputs:
            return loss, None, None
        if ignore_keys is None:
            ignore_keys = getattr(self.model.config, "keys_to_ignore_at_inference", ["past_key_values"])
        logits = tuple(value for name, value in outputs.items() if name not in ignore_keys)
        return loss, _single(logits), None if labels is None else _single(labels)

    def _evaluated(self, inputs: dict[str, Tensor], loss_only: bool) -> tuple[Tensor | None, dict[str, Tensor]]:
        """Returns loss and outputs of a batch of any size."""
        size, count = self.args.per_device_train_batch_size, self.schedule.micro_batches
        samples = len(inputs[self.model.main_input_name])
        parts = [{k: v[at : at + size] for k, v in inputs.items()} for at in range(0, samples, size)]
        weights = [float(self._weight(part)) for part in parts]
        loss, outputs = 0.0, []
        for at in range(0, len(parts), count):
            factors = [weight * count / (sum(weights) or 1.0) for weight in weights[at : at + count]]
            step = self._joined(parts[at : at + count], None, factors)
            validate = functools.partial(self.pipeline.validate, return_outputs=not loss_only, gather=not loss_only)
            with self.compute_loss_context_manager(), self.accelerator.autocast():
                part, found = (self._run(step, validate), {}) if loss_only else self._run(step, validate)
            loss += part
            if loss_only:
                continue
            rows = [size * place + row for place, real in enumerate(step.real) for row in range(real)]
            outputs.append({name: value[rows] for name, value in found.items() if name != "loss"})
        named = {name: torch.cat([each[name] for each in outputs]) for name in (outputs[0] if outputs else ())}
        has_loss = self._has_labels(inputs)
        return torch.tensor(loss, device=self.args.device) if has_loss else None, named

    def _weight(self, part: dict[str, Tensor]) -> Any:
        """Returns the number of losses of which the loss of samples is the mean."""
        labels = part.get("labels")
        if labels is None or labels.is_floating_point():
            return len(next(iter(part.values())))
        return _items(labels, self._loss_shifts_labels)

    # Files and logs

    def save_model(self, *args: Any, **named: Any) -> None:
        """As in transformers. All processes call it, unless nothing was trained since the last call or `train`."""
        self._gather()
        super().save_model(*args, **named)

    def _gather(self) -> None:
        if not self._is_whole:
            self.pipeline.gather()
            self._is_whole = True

    def _indices(self) -> dict[int, Any]:
        """Returns the parameters that this process trains, by their numbers in the optimizer."""
        own = {id(parameter) for parameter in self.pipeline.parameters()}
        every = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        return {number: parameter for number, parameter in enumerate(every) if id(parameter) in own}

    def _forget_others(self) -> None:
        """Drops optimizer state of other processes, which a loaded checkpoint contains."""
        if len(self.optimizer.state) > len(own := {id(each) for each in self._indices().values()}):
            for parameter in [each for each in self.optimizer.state if id(each) not in own]:
                del self.optimizer.state[parameter]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.world_size == 1:
            return
        whole = self.optimizer.state_dict()
        own = {number: whole["state"][number] for number in self._indices() if number in whole["state"]}
        every: Any = [None] * self.args.world_size if self.args.process_index == 0 else None
        torch.distributed.gather_object(own, every)
        if self.args.should_save:
            whole["state"] = {number: state for states in every for number, state in states.items()}
            torch.save(whole, os.path.join(output_dir, OPTIMIZER_NAME))

    def floating_point_ops(self, inputs: Any) -> Any:
        return super().floating_point_ops(inputs) / self._workers  # Transformers adds those of all processes

    def _track_num_input_tokens(self, inputs: Any) -> None:
        before = self.state.num_input_tokens_seen
        super()._track_num_input_tokens(inputs)
        self.state.num_input_tokens_seen = before + (self.state.num_input_tokens_seen - before) // self._workers

    def hyperparameter_search(self, *args: Any, **named: Any) -> Any:
        raise ConfigError("hyperparameter_search: a pipeline cannot run it; start a job for each trial")


class PipelineTrainer(PipelineMixin, Trainer):
    """transformers.Trainer, training by a pipeline."""


class _Result:
    """Stands for the model in Trainer.compute_loss: returns what the pipeline has computed."""

    def __init__(self, model: Any, output: dict[str, Tensor]) -> None:
        self._model = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._output = output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, **inputs: Any) -> ModelOutput:
        return ModelOutput(self._output)


def _reads_model(callback: Any, event: str) -> bool:
    """Returns whether a callback of the user may read the model at an event: its function names the model or a trainer,
    or passes on its arguments."""
    own = vars(callback).get(event)  # A function may have been assigned to the instance
    function = own if own is not None else getattr(type(callback), event, None)
    if function is None or function is getattr(TrainerCallback, event, None):
        return False
    if own is None and type(callback).__module__.startswith(("transformers.", "accelerate.")):
        return False
    code = getattr(getattr(inspect.unwrap(function), "__func__", function), "__code__", None)
    if code is None:
        return True
    count = code.co_argcount + code.co_kwonlyargcount
    more = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    named = {*code.co_varnames[:count], *code.co_names, *code.co_consts}
    others = code.co_varnames[count : count + more]
    passes_on = any(each.opname.startswith("LOAD") and each.argval in others for each in dis.get_instructions(code))
    return passes_on or any("model" in str(each) or "trainer" in str(each) for each in named)


def _items(labels: Any, shifts: bool) -> Any:
    """Returns the number of labels with a loss. `shifts`: the first token has none."""
    if labels is None:
        return None
    return (labels[..., 1:] if shifts else labels).ne(_IGNORED).sum()


def _single(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


def _of_equal_lengths(
    batches: list[dict[str, Any]], main: str, pad_token: int, model: Any, shares: bool
) -> list[dict[str, Any]]:
    """Returns the batches with equal lengths, the second dimension. An attention mask hides further tokens. `shares`:
    batches of other groups have this length too."""
    long = [name for name, value in batches[0].items() if isinstance(value, Tensor) and value.dim() > 1]
    found = {name: {batch[name].shape[1] for batch in batches} for name in long}
    if shares:
        every: Any = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(every, found)
        found = {name: set().union(*(each[name] for each in every)) for name in long}
    if all(len(lengths) == 1 for lengths in found.values()):
        return batches
    if "attention_mask" in inspect.signature(model.forward).parameters and "attention_mask" not in found:
        found["attention_mask"] = found[main]
        batches = [{**batch, "attention_mask": torch.ones_like(batch[main])} for batch in batches]
    filled = {main: pad_token, "labels": _IGNORED}

    def padded(name: str, value: Any) -> Any:
        if name not in found or value.shape[1] == max(found[name]):
            return value
        more = value.new_full((len(value), max(found[name]) - value.shape[1], *value.shape[2:]), filled.get(name, 0))
        return torch.cat([value, more], dim=1)

    return [{name: padded(name, value) for name, value in batch.items()} for batch in batches]


def _schedule(wanted: Schedule | str, micro_batches: int, processes: int) -> Schedule:
    made = wanted
    if not isinstance(made, Schedule):
        made = make_schedule(made, stages=max(processes, 2), micro_batches=micro_batches)
    if made.micro_batches != micro_batches or made.micro_batch_scale != 1:
        raise ConfigError(
            f"schedule: {made.name} has {made.micro_batches} micro-batches, but gradient_accumulation_steps is "
            f"{micro_batches}; give equal numbers"
        )
    if processes > 1 and len(made.workers) != processes:
        raise ConfigError(f"schedule: {made.name} has {len(made.workers)} workers, but a group {processes} processes")
    return made


def _refuse(args: Any) -> None:
    """Raises ConfigError for arguments that a pipeline cannot follow."""
    for name, instead in _REFUSED.items():
        if getattr(args, name, None):
            raise ConfigError(f"{name}: a pipeline cannot use it" + (f"; {instead}" if instead else ""))
    optimizer = str(getattr(getattr(args, "optim", ""), "value", getattr(args, "optim", "")))
    if any(word in optimizer for word in _LAYERWISE):
        raise ConfigError(f"optim: {optimizer} updates during the backward; choose one that updates after it")
    if getattr(getattr(args, "accelerator_config", None), "dispatch_batches", None):
        raise ConfigError("accelerator_config: dispatch_batches: a pipeline cannot use it; each process loads its data")
    if getattr(getattr(args, "accelerator_config", None), "split_batches", False):
        raise ConfigError("accelerator_config: split_batches: a pipeline cannot use it; batches are micro-batches")
    if (loss := getattr(args, "loss_type", "nll")) not in ("nll", "chunked_nll"):
        raise ConfigError(f"loss_type: a pipeline cannot use {loss}; give loss_type='nll', or compute_loss_func")


def _refuse_loss(trainer: type) -> None:
    """Raises ConfigError for a trainer with a loss of its own."""
    owner = next(each for each in trainer.__mro__ if "compute_loss" in vars(each))
    if owner.__module__.startswith("trl.") and owner.__name__ != "SFTTrainer":
        raise ConfigError(
            f"{owner.__name__}: its loss needs more than one forward of the model, or other results; a pipeline trains "
            "with the model's own loss, as trl.SFTTrainer, or with compute_loss_func"
        )
    if owner.__module__.split(".")[0] not in ("transformers", "trl"):
        raise ConfigError(f"compute_loss: {owner.__name__} overrides it, but only the last stage has outputs; give "
                          "compute_loss_func")
