"""Layers of a pipeline, as ranks call them."""

from __future__ import annotations

import contextlib
import copy
import operator
import pickle
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from . import _training
from ._agreement import in_short
from ._devices import generator_states
from ._messages import Layout, is_plain, mapped, part_of, samples_of

LayerOrFactory: TypeAlias = nn.Module | Callable[[], nn.Module]
Recompute: TypeAlias = bool | str | Iterable[int] | Callable[[int], bool]
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

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._dtype is None:
            return function(*arguments)
        with torch.autocast(self._type, dtype=self._dtype):
            return function(*arguments)


class Inputs:
    """Inputs of a step. If they are several tensors, the executor gets the indices of their samples."""

    def __init__(self) -> None:
        self._value: Any = None

    def take_over(self, value: Any) -> Tensor:
        """Returns the inputs for the executor."""
        if isinstance(value, Tensor):
            self._value = None
            return value
        self._value = value
        return torch.arange(samples_of(value))

    def of(self, given: Tensor) -> Any:
        """Returns a micro-batch; `given` is the executor's part of it. Copies of several tensors, which a layer may
        change."""
        return given if self._value is None else mapped(Tensor.clone, part_of(self._value, int(given[0]), len(given)))


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
    if isinstance(value, Tensor):
        return value
    carrier = torch.empty(0)
    setattr(carrier, _VALUE, value)
    return carrier


def value_of(carrier: Tensor) -> Any:
    """Returns the value of carrier_of()."""
    return getattr(carrier, _VALUE, carrier)


class HeldLayer:

    def __init__(
        self,
        index: int,
        stage: int,
        module: nn.Module,
        repeats: bool,
        own: bool,
        autocast: Autocast,
        device: torch.device,
        inputs: Inputs,
    ) -> None:
        self.index = index
        self.stage = stage
        self.module = module
        self._device = device
        self.repeats = repeats  # Replicated or recomputed
        self.shares_buffers = False  # With another stage
        self.own = own  # This rank is the owner among its replicas
        self.of_stage = [self]  # All layers of the stage
        self.sends = False  # To another stage
        self.boundaries = Boundaries(None)
        self._autocast = autocast
        self._inputs = inputs
        self._probing = False
        self._probed = torch.empty(0)  # Message to the first layer of a stage

    def __call__(self, tensor: Tensor) -> Tensor:
        value = self._received(tensor) if self is self.of_stage[0] else value_of(tensor)
        output = self._autocast.call(self._probe if self._probing else self.module, value)
        return self._message(output) if self.sends else carrier_of(output)

    def _received(self, message: Tensor) -> Any:
        if self._probing:
            self._probed = message
        if self.stage == 0:
            return self._inputs.of(message)
        layout = self.boundaries.after(self.stage - 1)
        return message if layout is None else layout.unpack(message)

    def _message(self, output: Any) -> Tensor:
        again = self._output_with_graph() if self._probing and not is_plain(output) else None
        try:
            if self._probing:
                self.boundaries.announce(self.stage, None if is_plain(output) else Layout.of(again))
            layout = self.boundaries.after(self.stage)
            if layout is None and not is_plain(output):
                raise TypeError("at first it was a tensor of floating-point numbers")
            message: Tensor = output if layout is None else layout.pack(output)
            return message
        except TypeError as error:
            raise TypeError(f"{self._name()} returns a {type(output).__name__}: {error}") from None

    def _output_with_graph(self) -> Any:
        """Returns the stage's output for its first message, to find the tensors with gradients."""
        with torch.enable_grad(), contextlib.ExitStack() as kept:
            first = self.of_stage[0]
            value = first._received(first._probed.detach().requires_grad_(self.stage > 0))
            for layer in self.of_stage:
                kept.enter_context(layer.untouched_buffers())
                value = self._autocast.call(layer.module, value)
            return value

    @contextlib.contextmanager
    def untouched_buffers(self) -> Iterator[None]:
        saved = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in saved:
                    buffer.copy_(value)

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Checks calls for effects that replicas would not repeat. Clears gradients; calls keep buffers unchanged."""
        for parameter in self.module.parameters():
            parameter.grad = None
        self._probing = True
        try:
            yield
        finally:
            self._probing = False

    def _probe(self, value: Any) -> Any:
        with self.untouched_buffers():
            before = generator_states(self._device)
            versions = {name: (id(buffer), buffer._version) for name, buffer in self.module.named_buffers()}
            output = self.module(value)
            if self.repeats or self.shares_buffers:
                self._require_repeatable(before, versions)
            return output

    def _require_repeatable(self, generators: list[Tensor], versions: dict[str, tuple[int, int]]) -> None:
        for name, buffer in self.module.named_buffers():
            if versions.get(name) != (id(buffer), buffer._version):
                if not self.repeats:
                    words = f"writes to its buffer '{name}', which it shares with another stage"
                    raise ConfigError(f"{self._name()} {words}")
                raise ConfigError(
                    f"{self._name()} writes to its buffer '{name}', and replicas or a recomputed forward would write "
                    "other values; use a module without buffers (GroupNorm, LayerNorm), or another schedule"
                )
        if self.repeats and not all(map(torch.equal, generators, generator_states(self._device))):
            raise ConfigError(
                f"{self._name()} draws random numbers, which differ in replicas or a recomputed forward; set its "
                "dropout to 0, or choose another schedule"
            )

    def _name(self) -> str:
        return in_words(self.index, self.module)


def in_words(index: int, module: nn.Module) -> str:
    return f"layer {index} ({type(module).__name__})"


def made_layer(layer: LayerOrFactory, index: int) -> nn.Module:
    """Returns the given module, or the result of the function. Raises ConfigError if it cannot be trained."""
    if isinstance(layer, nn.Module):
        if isinstance(layer, nn.parallel.DistributedDataParallel):
            raise ConfigError(f"layer {index} is wrapped in DistributedDataParallel; use data_parallel= instead")
        return layer
    if not callable(layer):
        raise ConfigError(f"layer {index} is a {type(layer).__name__}; give an nn.Module, or a function that makes one")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(index)  # Equal values in every replica
        try:
            made = layer()
        except TypeError as error:
            name, reason = getattr(layer, "__name__", in_short(layer)), str(error).splitlines()[0]
            raise ConfigError(
                f"layer {index}: {name}() fails: {reason}; give an nn.Module, or a function without arguments that "
                "makes one"
            ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"layer {index}: the factory returned a {type(made).__name__}, not an nn.Module")
    return made


def require_trainable(index: int, module: nn.Module) -> None:
    """Raises ConfigError for parameters that no pipeline can train."""
    for name, parameter in module.named_parameters():
        dtype = str(parameter.dtype).removeprefix("torch.")
        wrong = "was made under inference_mode" if parameter.is_inference() else f"is {dtype}"
        is_plain = parameter.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        if parameter.is_inference() or (parameter.requires_grad and not is_plain):
            raise ConfigError(
                f"{in_words(index, module)}: parameter '{name}' {wrong}; a pipeline trains float32, float64, float16 "
                "and bfloat16"
            )


def twin_of(parameter: nn.Parameter) -> nn.Parameter:
    """Returns another leaf with the same memory, hooks and attributes."""
    twin = nn.Parameter(torch.empty(0, dtype=parameter.dtype, device=parameter.device), parameter.requires_grad)
    share_memory(twin, parameter)
    twin.__dict__.update(parameter.__dict__)
    share_hooks(twin, parameter)
    return twin


def share_hooks(twin: nn.Parameter, parameter: nn.Parameter) -> None:
    """Gives the twin the parameter's own dicts of hooks, which torch makes for the first hook."""
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if getattr(twin, name) is not getattr(parameter, name):
            setattr(twin, name, getattr(parameter, name))


def share_memory(twin: nn.Parameter, parameter: nn.Parameter) -> None:
    twin.data = parameter.data


def copied(module: nn.Module, memo: dict[int, Any], own: Container[int], keeps_buffers: bool) -> nn.Module:
    """Returns a copy of the module that shares the memory of its parameters.

    `memo`: as of copy.deepcopy. `own`: ids of parameters that the copy takes over, instead of twins.
    """
    for parameter in module.parameters():
        if id(parameter) not in memo:
            memo[id(parameter)] = parameter if id(parameter) in own else twin_of(parameter)
    if keeps_buffers:
        memo.update({id(buffer): buffer for buffer in module.buffers()})
    return copy.deepcopy(module, memo)


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_FLAGS_OF_HOOKS = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")


def called_modules(layer: nn.Module) -> Iterator[nn.Module]:
    """Yields the layer's modules, and those that stand-ins of `layers_of` call."""
    for module in layer.modules():
        yield module
        yield from (target for target in vars(module).get("_target", ()) if isinstance(target, nn.Module))


def hooks_of(module: nn.Module) -> list[int]:
    """Returns the ids of the module's hooks."""
    return [key for name in _HOOKS for key in getattr(module, name)]


def follow_hooks(made: nn.Module, module: nn.Module) -> None:
    """Adds the module's later hooks to a copy, and removes those that the module has lost."""
    for name in _HOOKS + _FLAGS_OF_HOOKS:
        own, hooks = getattr(made, name), getattr(module, name)
        for key in own.keys() - hooks.keys():
            del own[key]
        own.update({key: hook for key, hook in hooks.items() if key not in own})
    made._is_full_backward_hook = module._is_full_backward_hook


def counted(count: Callable[[Tensor], int]) -> Callable[[Tensor], int]:

    def checked(target: Tensor) -> int:
        number = count(target)
        try:
            return operator.index(number)
        except TypeError:
            raise TypeError(f"count returns a {type(number).__name__}; it must return an int") from None

    return checked


def recomputed_stages(choice: Recompute, stages: int) -> list[int]:
    """Returns sorted stage numbers. Raises ConfigError for an unknown choice or stage."""
    every = range(stages)
    words = {"full": True, "none": False}
    if isinstance(choice, str) and choice in words:
        choice = words[choice]
    if isinstance(choice, bool):
        return [stage for stage in every if choice]
    if callable(choice):
        return [stage for stage in every if choice(stage)]
    if isinstance(choice, Iterable) and not isinstance(choice, str):
        given = set(choice)
        if given <= set(every):
            return sorted(map(operator.index, given))
    hints = {
        "auto": "; cp.plan(cp.profile(layers, x), ..., memory=...) finds the stages that memory requires",
        "attention": "; only GPT-2, BERT and Llama models of `chimera train` have 'attention'",
    }
    raise ConfigError(
        f"recompute={choice!r}: expected True, False, 'full', 'none', stage numbers from 0 to {stages - 1}, or a "
        f"function of the stage{hints.get(choice, '') if isinstance(choice, str) else ''}"
    )
