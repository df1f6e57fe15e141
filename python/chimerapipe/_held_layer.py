"""Layers of a pipeline, as ranks call them."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import _training
from ._given_layers import in_words
from ._messages import Layout, is_plain
from ._modules import unchanged
from ._placed import Meshes, is_distributed, settled
from ._probe import Probe, Use
from ._random import OpGenerators, RankContext
from ._step_data import StepData

ConfigError = _training.ConfigError


class Autocast:
    """The caller's autocast mode, which torch keeps per thread, for rank threads."""

    def __init__(self, device: torch.device) -> None:
        self._type = device.type
        self._dtype: torch.dtype | None = None

    def take_over(self) -> None:
        """Saves the caller's mode."""
        self._dtype = torch.get_autocast_dtype(self._type) if torch.is_autocast_enabled(self._type) else None

    def in_words(self) -> str:
        return str(self._dtype)

    @property
    def is_on(self) -> bool:
        return self._dtype is not None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._dtype is None:
            return function(*arguments)
        with torch.autocast(self._type, dtype=self._dtype):
            return function(*arguments)


class Boundaries:
    """Layouts of messages by the stage that sends them. The first forwards find them, and a store tells other
    processes. None: the stage sends its output as it is."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._known: dict[int, Layout | None] = {}

    def announce(self, stage: int, layout: Layout | None) -> None:
        self._known[stage] = layout
        if self._store is not None:
            self._store.set(str(stage), pickle.dumps(layout))

    def after(self, stage: int) -> Layout | None:
        if stage not in self._known and self._store is not None:
            self._known[stage] = pickle.loads(self._store.get(str(stage)))
        return self._known[stage]


_VALUE = "chimerapipe_value"  # Attribute of a tensor that stands for a value


def carrier_of(value: Any) -> Tensor:
    """Returns a tensor that the executor can pass to the next layer or to the loss of this stage."""
    if type(value) is Tensor or (isinstance(value, Tensor) and not is_distributed(value)):
        return value
    carrier = torch.empty(0, device="cpu")
    setattr(carrier, _VALUE, value)
    return carrier


def value_of(carrier: Tensor) -> Any:
    """Returns the value of carrier_of()."""
    return getattr(carrier, _VALUE, carrier)


@dataclass(frozen=True)
class Surroundings:
    """What all layers of a pipeline share."""

    device: torch.device
    autocast: Autocast
    data: StepData
    generators: OpGenerators


class HeldLayer:
    """A layer of a stage, as the executor calls it."""

    def __init__(
        self, index: int, stage: int, module: nn.Module, use: Use, shared: Surroundings, context: RankContext
    ) -> None:
        self.index = index
        self.stage = stage
        self.module = module
        self.use = use
        self.of_stage = [self]  # All layers of the stage
        self.sends = False  # To another stage
        self.gives_loss = False  # It is the last layer
        self.boundaries = Boundaries(None)
        self.draws: set[str] = set()  # Names of generators that the first forwards drew from
        self.context = context
        self.meshes = Meshes()  # Of this rank
        self._shared = shared
        self._has_scope = False  # A call needs more than the module
        self._probe: Probe | None = None  # During the first forwards
        self._probed = torch.empty(0, device="cpu")  # Message to the first layer of a stage

    @property
    def own(self) -> bool:
        """Whether this rank is the owner among the replicas."""
        return self.use.is_owner

    def __call__(self, tensor: Tensor) -> Tensor:
        value = self._received(tensor) if self is self.of_stage[0] else value_of(tensor)
        output = self._call_in_scope(value) if self._has_scope else self._shared.autocast.call(self.module, value)
        if type(output) is not Tensor:
            output = settled(output)
        return self._message(output) if self.sends else carrier_of(output)

    def prepare(self) -> None:
        """Decides for a step which calls need more than the module."""
        context = self.context
        needs_context = context.is_of_thread and (self.gives_loss or context.has_variables)
        self._has_scope = self._probe is not None or bool(self.draws) or needs_context

    def _call_in_scope(self, value: Any) -> Any:
        if self.gives_loss:
            self.context.use_on_this_thread()
        run, call = self.context.run, self._shared.autocast.call
        if self._probe is not None:
            return run(call, self._probe.forward, value)
        if not self.draws:
            return run(call, self.module, value)
        return self._shared.generators.run(self.draws, self.index, run, call, self.module, value)

    def _received(self, message: Tensor) -> Any:
        if self._probe is not None:
            self._probed = message
        if self.stage == 0:
            return self._shared.data.inputs_of(message)
        layout = self.boundaries.after(self.stage - 1)
        return message if layout is None else layout.unpack(message, self.meshes)

    def _message(self, output: Any) -> Tensor:
        is_probing = self._probe is not None
        again = self._output_with_graph() if is_probing and not is_plain(output) else None
        try:
            if is_probing:
                self.boundaries.announce(self.stage, None if is_plain(output) else Layout.of(again))
            layout = self.boundaries.after(self.stage)
            if layout is None and not is_plain(output):
                raise TypeError("at first it was a tensor of floating-point numbers")
            message: Tensor = output if layout is None else layout.pack(output)
            return message
        except TypeError as error:
            words = in_words(self.index, self.module)
            raise TypeError(f"{words} returns a {type(output).__name__}: {error}") from None

    def _output_with_graph(self) -> Any:
        """Returns the stage's output for its first message, to find the tensors with gradients."""
        with torch.enable_grad(), contextlib.ExitStack() as kept:
            first = self.of_stage[0]
            value = first._received(first._probed.detach().requires_grad_(self.stage > 0))
            for layer in self.of_stage:
                kept.enter_context(unchanged(layer.module))
                value = self._shared.autocast.call(layer.module, value)
            return value

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Checks calls for effects that replicas would not repeat. Clears gradients; calls keep the layer unchanged."""
        for parameter in self.module.parameters():
            parameter.grad = None
        self.draws = set()
        self._probe = Probe(in_words(self.index, self.module), self.module, self.use, self._shared.device, self.draws)
        self.prepare()
        try:
            yield
        finally:
            self._probe = None
