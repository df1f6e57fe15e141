"""Layers of a pipeline, as ranks call them."""

from __future__ import annotations

import contextlib
import copy
import operator
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from . import _training
from ._agreement import in_short
from ._devices import generator_states

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

    def call(self, function: Callable[..., Any], *arguments: Tensor) -> Any:
        if self._dtype is None:
            return function(*arguments)
        with torch.autocast(self._type, dtype=self._dtype):
            return function(*arguments)


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
    ) -> None:
        self.index = index
        self.stage = stage
        self.module = module
        self._device = device
        self.repeats = repeats  # Replicated or recomputed
        self.shares_buffers = False  # With another stage
        self.own = own  # This rank is the owner among its replicas
        self._autocast = autocast
        self._probing = False

    def __call__(self, tensor: Tensor) -> Tensor:
        output = self._autocast.call(self._probe if self._probing else self.module, tensor)
        if not isinstance(output, Tensor):
            raise TypeError(
                f"{self._name()} returns a {type(output).__name__}; a layer must map one tensor to one tensor, so wrap "
                "it in a module that does"
            )
        return output

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

    def _probe(self, tensor: Tensor) -> Any:
        with self.untouched_buffers():
            before = generator_states(self._device)
            versions = {name: (id(buffer), buffer._version) for name, buffer in self.module.named_buffers()}
            output = self.module(tensor)
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
    twin.requires_grad_()  # Hooks need it
    for hook in (parameter._backward_hooks or {}).values():
        twin.register_hook(hook)
    for hook in (parameter._post_accumulate_grad_hooks or {}).values():
        twin.register_post_accumulate_grad_hook(hook)
    return twin.requires_grad_(parameter.requires_grad)


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
