"""Calls of a pipeline, and the agreement of all ranks on them before any message."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._agreement import digest, in_words as tensor_in_words
from ._devices import require_on
from ._held_layer import Autocast
from ._layers import Layers
from ._loss import CheckedLoss, Count
from ._messages import flattened, named_tensors
from ._processes import OtherRankError, Processes
from ._random import OpGenerators
from ._samples import checked_work, digest_of_values, require_samples
from ._shape import Shape
from ._step_data import MicroBatches, as_samples, as_tree, require_cut_alike
from ._training import ConfigError

_CHECK_SAMPLES_FIRST, _CHECK_SAMPLES_EVERY = 2, 64  # Calls


@dataclass
class Call:
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
    work: Any = None

    def in_words(self) -> str:
        """Returns what all ranks must ask for together."""
        words = [name for name in ("return_outputs", "gather") if getattr(self, name)]
        words += [] if self.zero_gradients else ["zero_gradients=False"]
        words += [f"loss_kwargs {sorted(self.loss_kwargs)}"] if self.loss_kwargs else []
        return " with ".join([self.name, *([", ".join(words)] if words else [])])

    def scale_on(self, device: torch.device) -> float:
        """Returns the factor of the loss. Raises ConfigError for a wrong one."""
        if self.scaler is None:
            scale = self.scale_loss
            if isinstance(scale, bool) or not (callable(scale) or isinstance(scale, int | float)):
                raise ConfigError(f"scale_loss: got {scale!r}; give a number, or a function such as scaler.scale")
            return float(scale(torch.ones((), device=device)) if callable(scale) else scale)
        if not isinstance(self.scaler, torch.amp.GradScaler):
            raise ConfigError(f"scaler: got a {type(self.scaler).__name__}; give a torch.amp.GradScaler")
        if self.scale_loss != 1.0:
            raise ConfigError("scale_loss: the scaler scales the loss already; give one of both")
        self.scaler.scale(torch.zeros((), device=device))  # Creates the scale
        return float(self.scaler.get_scale())


@dataclass(frozen=True)
class Choices:
    """What the caller has chosen for all calls."""

    checks_data: bool
    deals: bool
    """Uses work= of steps."""
    is_canonical: bool


class Agreement:
    """What all ranks have agreed on."""

    def __init__(
        self, processes: Processes, shape: Shape, layers: Layers, loss: CheckedLoss, count: Count,
        generators: OpGenerators, autocast: Autocast, choices: Choices,
    ) -> None:
        self._processes, self._shape, self._layers = processes, shape, layers
        self._loss, self._count, self._generators, self._autocast = loss, count, generators, autocast
        self._choices = choices
        self._own_facts: dict[str, str] = {}
        self._agreed: list[int] = []  # Digests of the facts that messages depend on
        self._key_of_last: tuple[object, ...] | None = None
        self._rows: Tensor | None = None
        self._trained: set[int] = set()  # Layers that a call has seen in training mode
        self._calls = 0
        stages = [f"{what} in stage {stage}" for what in ("frozen", "training") for stage in range(shape.stages)]
        # The first five decide nothing about messages
        self._fact_names = ["call", "clip", "optimizer", "scale", "targets", "inputs", "autocast", *stages]

    def on(self, call: Call, is_started: bool) -> bool:
        """Checks the arguments of a call on all ranks. Returns whether messages change. Raises on all ranks if one has
        a problem, or if their facts differ."""
        call.inputs, call.targets = as_samples(call.inputs), as_samples(call.targets)
        problem: Exception | None = None
        key = None
        try:
            self._layers.follow_changes(call.name)
            self._loss.scale = call.scale_on(self._layers.device)
            self._loss.predicts = self._count.predicts = call.name == "predict"
            self._loss.use_arguments(call.loss_kwargs)
            call.work = self._work(call.work)
            key = self._key(call)
            if key is None or key != self._key_of_last or not is_started:
                self._key_of_last, self._rows = None, None
                self._own_facts = self._facts(call)
        except ConfigError as error:
            problem, self._key_of_last, self._rows = error, None, None
        hashes = (0, 0, 0) if problem is not None else self._hashes(call)
        self._generators.seed = self._generators.own_seed()
        if self._shape.world == 1 and self._key_of_last is not None:
            return False
        changed: bool = self._processes.guarded(lambda: self._agree(call, problem, hashes, is_started))
        self._key_of_last = key
        return changed

    def on_call(self, name: str, **arguments: str) -> None:
        """Raises ConfigError on all ranks unless all make a call with this name and these arguments."""
        if self._shape.world > 1:
            self._processes.guarded(lambda: self._require_same_call({"call": name, **arguments}))

    def _work(self, work: Any) -> list[float]:
        """Returns the work of the micro-batches, none if they keep their order."""
        if work is None or not self._choices.deals:
            return []
        if self._choices.is_canonical:
            raise ConfigError("work: reduction='canonical' adds gradients by place, so micro-batches keep theirs")
        return checked_work(work, self._shape.micro_batches)

    def _hashes(self, call: Call) -> tuple[int, int, int]:
        """Returns hashes of inputs and targets, 0 in calls without a comparison, and for None; and one of the work."""
        work = digest_of_values(call.work) if call.work else 0
        self._calls += 1
        is_checked = self._calls <= _CHECK_SAMPLES_FIRST or self._calls % _CHECK_SAMPLES_EVERY == 0
        if self._shape.world == 1 or not self._choices.checks_data or not is_checked:
            return 0, 0, work
        given = (as_tree(each) for each in (call.inputs, call.targets))
        inputs, targets = (0 if each is None else digest_of_values(each) for each in given)
        return inputs, targets, work

    def _key(self, call: Call) -> tuple[object, ...] | None:
        """Returns what `_facts` depends on, None for arguments that it refuses."""
        leaves, tree = [call.inputs, call.targets], None
        if not (isinstance(call.inputs, Tensor) and isinstance(call.targets, Tensor)):
            leaves, tree = flattened([as_tree(call.inputs), as_tree(call.targets)])
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if not tensors:
            return None
        self._autocast.take_over()
        groups = [len(group["params"]) for group in getattr(call.optimizer, "param_groups", ())]
        facts = [(each.shape, each.dtype, each.device) for each in tensors]
        others = [repr(leaf) for leaf in leaves if not isinstance(leaf, Tensor)]
        modes = (self._autocast.in_words(), torch.is_inference_mode_enabled())
        asked = (call.in_words(), repr(call.clip), self._loss.scale, call.optimizer, groups)
        return (asked, tree, facts, others, modes, self._layers.key())

    def _require_samples(self, name: str, value: Any, is_read: bool) -> list[tuple[str, Tensor]]:
        """Returns the tensors by name. Raises ConfigError unless they are the samples of a step."""
        if value is None and not is_read:
            return []
        if isinstance(value, MicroBatches):
            require_cut_alike(name, value, self._shape.micro_batches)
            for number, each in enumerate(value):
                for own, tensor in named_tensors(f"{name}[{number}]", each):
                    require_on(self._layers.device, own, tensor)
            return [(own, tensor) for own, tensor in named_tensors(name, value[0])]
        named = named_tensors(name, value)
        for own, tensor in named:
            require_on(self._layers.device, own, tensor)
            if tensor.dim() == 0 or len(tensor) != self._shape.batch_size:
                found, wanted = len(tensor) if tensor.dim() else "no", self._shape.batch_size
                raise ConfigError(f"{own}: {found} samples, but a step of this process takes {wanted}")
        return named

    def _facts(self, call: Call) -> dict[str, str]:
        """Returns what all ranks must agree on, by `_fact_names`. Raises ConfigError for wrong arguments."""
        reads = {"inputs": self._shape.holds(0), "targets": self._shape.holds(self._shape.stages - 1)}
        given = {"inputs": call.inputs} if call.name == "predict" else {"inputs": call.inputs, "targets": call.targets}
        named = {name: self._require_samples(name, value, reads[name]) for name, value in given.items()}
        clip, optimizer = call.clip or 0.0, call.optimizer
        if isinstance(clip, bool) or not isinstance(clip, int | float) or not clip >= 0:
            raise ConfigError(f"clip: got {clip!r}; give a number of at least 0, the largest gradient norm (0: any)")
        if clip:
            self._layers.require_clippable()
        if call.name == "step" and torch.is_inference_mode_enabled():
            raise ConfigError("step: nothing can be trained under inference_mode; leave it, or use validate")
        self._layers.follow_replicas()
        if optimizer is not None:
            self._layers.require_own(optimizer)
        elif call.scaler is not None:
            raise ConfigError("scaler: needs optimizer=, whose gradients it divides by its scale")
        facts = {"call": call.in_words(), "clip": repr(float(clip)), "optimizer": type(optimizer).__name__}
        facts |= {"scale": repr(self._loss.scale), "autocast": self._autocast.in_words()}
        stages = {layer.stage for layer in self._layers.every}
        for name, tensors in named.items():
            if reads[name] and tensors:
                samples = {own: f"samples {tensor_in_words(each.shape[1:], each.dtype)}" for own, each in tensors}
                facts[name] = samples.get(name) or f"{samples}"
        frozen: dict[int, list[str]] = {stage: [] for stage in stages}
        for layer in self._layers.every:
            for name, parameter in layer.module.named_parameters():
                if not parameter.requires_grad:
                    frozen[layer.stage].append(f"{layer.index}.{name}")
        facts |= {f"frozen in stage {s}": ", ".join(dict.fromkeys(names)) or "nothing" for s, names in frozen.items()}
        # A layer that leaves eval mode for the first time may draw or write to buffers: Run.start() looks
        modes = {layer.index: any(m.training for m in layer.module.modules()) for layer in self._layers.every}
        self._trained |= {index for index, is_training in modes.items() if is_training}
        for stage in stages:
            first, end = self._shape.plan.stage_layers[stage]
            facts[f"training in stage {stage}"] = f"layers {[i for i in range(first, end) if i in self._trained]}"
        return facts

    def _agree(self, call: Call, problem: Exception | None, hashes: tuple[int, int, int], is_started: bool) -> bool:
        """Raises on all ranks if one has a problem, or if their facts differ. Returns whether messages change."""
        facts = {} if problem else self._own_facts
        own = [digest(facts[name]) if name in facts else 0 for name in self._fact_names]
        trained = sum(parameter.requires_grad for _, parameter in self._layers.updated)
        rows = self._processes.rows(
            [int(problem is not None), int(not is_started), trained, self._generators.seed, *own, *hashes],
            call=call.in_words(),
        )
        self._generators.seed = int(rows[0, 3])
        rows, samples = rows[:, :-3], rows[:, -3:]
        groups = [self._shape.plan.group(rank) for rank in range(self._shape.world)] if samples.any() else []
        if self._rows is not None and torch.equal(rows, self._rows):
            require_samples(samples.tolist(), groups, must_differ=call.name == "step")
            return False
        self._rows = None
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
            self._rows = rows
        return changed

    def _require_same_call(self, facts: dict[str, str]) -> None:
        """Takes part in the exchange of rows of `_agree`, which other ranks may be in."""
        row = [0] * (7 + len(self._fact_names))
        row[4] = digest(" ".join(facts.values()))
        rows = self._processes.rows(row, call=facts["call"])
        self._rows = None
        if rows[:, 0].any():
            told = self._processes.exchanged("")
            raise OtherRankError(next(f"rank {rank}: {words}" for rank, words in enumerate(told) if words))
        if (rows[:, 4] != row[4]).any():
            self._processes.require_equal(facts)
