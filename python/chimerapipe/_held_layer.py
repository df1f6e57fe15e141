"""A user's layers as the ranks that hold them call them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from . import _training

LayerOrFactory: TypeAlias = nn.Module | Callable[[], nn.Module]
ConfigError = _training.ConfigError


class Autocast:
    """The caller's autocast, which torch knows of its own thread alone, for rank threads."""

    def __init__(self) -> None:
        self._dtype: torch.dtype | None = None

    def take_over(self) -> None:
        """Whatever holds where this is called holds from now on in `call`."""
        self._dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    def call(self, function: Callable[..., Any], *arguments: Tensor) -> Any:
        """The function's result under it."""
        if self._dtype is None:
            return function(*arguments)
        with torch.autocast("cpu", dtype=self._dtype):
            return function(*arguments)


class HeldLayer:
    """A layer as a rank calls it."""

    def __init__(self, index: int, module: nn.Module, repeats: bool, own: bool, autocast: Autocast) -> None:
        self.index = index
        self.module = module
        self.repeats = repeats  # copies of it are trained, or its forward runs twice
        self.own = own  # of the ranks that hold it, this one's counts
        self._autocast = autocast
        self._probing = False

    def __call__(self, tensor: Tensor) -> Tensor:
        output = self._autocast.call(self._probe if self._probing else self.module, tensor)
        if not isinstance(output, Tensor):
            raise TypeError(
                f"{self._name()} gives a {type(output).__name__}; a layer maps one tensor to one tensor: wrap it in a "
                "module that does"
            )
        return output

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """The first forward, by which shapes are found: it finds too what copies would do differently."""
        saved = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        for parameter in self.module.parameters():
            parameter.grad = None
        self._probing = True
        try:
            yield
        finally:
            self._probing = False
            with torch.no_grad():
                for buffer, value in saved:
                    buffer.copy_(value)

    def _probe(self, tensor: Tensor) -> Any:
        before = torch.get_rng_state()
        versions = {name: (id(buffer), buffer._version) for name, buffer in self.module.named_buffers()}
        output = self.module(tensor)
        if not self.repeats:
            return output
        for name, buffer in self.module.named_buffers():
            if versions.get(name) != (id(buffer), buffer._version):
                raise ConfigError(
                    f"{self._name()} writes to its buffer '{name}', which copies of it, or a recomputed forward, would "
                    "do differently; use a module that keeps none (GroupNorm, LayerNorm), or another schedule"
                )
        if not torch.equal(before, torch.get_rng_state()):
            raise ConfigError(
                f"{self._name()} draws random numbers, which copies of it, or a recomputed forward, would draw "
                "differently; set its dropout to 0, or choose another schedule"
            )
        return output

    def _name(self) -> str:
        return f"layer {self.index} ({type(self.module).__name__})"


def made_layer(layer: LayerOrFactory, index: int, own: bool) -> nn.Module:
    """The layer itself for the rank that owns it, a copy for others. Raises ConfigError for one that is not trained."""
    if isinstance(layer, nn.Module):
        if isinstance(layer, nn.parallel.DistributedDataParallel):
            raise ConfigError(f"layer {index} is wrapped in DistributedDataParallel; use data_parallel= instead")
        made = layer if own else copy.deepcopy(layer)
    else:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(index)  # the same values in every copy
            made = layer()
        if not isinstance(made, nn.Module):
            raise ConfigError(f"layer {index}: the factory gave a {type(made).__name__}, no nn.Module")
    for name, value in [*made.named_parameters(), *made.named_buffers()]:
        if value.device.type != "cpu":
            raise ConfigError(
                f"layer {index} ({type(made).__name__}) has '{name}' on {value.device}; Pipeline trains on CPUs: "
                "give it layers there (GPUs are for `chimera train --device cuda`)"
            )
    return made


def refuse_shared_parameters(held: list[list[HeldLayer]]) -> None:
    """Of each process or thread."""
    for layers in held:
        seen: dict[int, tuple[int, str]] = {}
        for layer in layers:
            for name, parameter in layer.module.named_parameters():
                other, other_name = seen.setdefault(id(parameter), (layer.index, name))
                if other != layer.index:
                    raise ConfigError(
                        f"layers {other} and {layer.index} share a parameter ({other_name}, {name}); give each its own"
                    )


@contextlib.contextmanager
def untouched_generator() -> Iterator[None]:
    """Torch's generator is afterwards as it was."""
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
