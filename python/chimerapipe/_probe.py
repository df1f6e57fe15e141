"""The first forwards of a layer, which show what replicas and a recomputation could not repeat."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import _training
from ._given_layers import are_equal
from ._messages import flattened, mapped
from ._modes import noting_forward_mode
from ._modules import unchanged
from ._random import States, changed, restore, states, states_of_own

ConfigError = _training.ConfigError


@dataclass(frozen=True)
class Use:
    """How a rank uses a layer."""

    is_copied: bool
    """Other ranks have replicas of it."""
    is_recomputed: bool
    is_owner: bool
    """Its values are those that the replicas start with."""
    shares_buffers: bool
    """With another stage."""
    shares_process: bool
    """With layers of other ranks."""

    @property
    def repeats(self) -> bool:
        return self.is_copied or self.is_recomputed


class Probe:
    """Runs the first forwards of a layer."""

    def __init__(self, name: str, module: nn.Module, use: Use, device: torch.device, draws: set[str]) -> None:
        """`name`: for messages. `draws`: gets the names of the process's generators that the layer draws from."""
        self._name, self._module, self._use, self._device, self._draws = name, module, use, device, draws

    def forward(self, value: Any) -> Any:
        """Runs a forward and leaves the layer as before. A layer that replicas or a recomputation repeat runs twice,
        with the same random numbers, and both results must be equal: this costs one forward, once."""
        again = mapped(Tensor.clone, value) if self._use.repeats else None
        with unchanged(self._module):
            before, before_own = states(self._device), states_of_own(self._module)
            buffers = {name: (id(buffer), buffer._version) for name, buffer in self._module.named_buffers()}
            parameters = [(name, each, each._version) for name, each in self._module.named_parameters()]
            uses_forward_mode: list[bool] = []
            with noting_forward_mode(uses_forward_mode):
                output = self._first_call(value)
            self._draws |= {*changed(before, states(self._device))}
            self._require_kept_buffers(buffers)
            if uses_forward_mode and self._use.shares_process:
                raise ConfigError(
                    f"{self._name} uses forward-mode differentiation, which torch has once per process, so rank "
                    "threads would disturb each other; start a process per rank (torchrun), or use reverse mode"
                )
            if self._use.is_copied:
                self._require_kept(parameters)
            if self._use.repeats:
                self._require_no_own_draws(before_own)
                restore(self._device, before)
                self._require_equal(output, self._module(again))
            return output

    def _first_call(self, value: Any) -> Any:
        try:
            return self._module(value)
        except TypeError as error:
            names = _required_arguments(self._module.forward)
            if len(names) < 2:
                raise
            raise ConfigError(
                f"{self._name}: forward takes {len(names)} values ({', '.join(names)}), but a layer gets one value: "
                "the inputs of step, or what the layer before returns. Unpack a tuple in forward, or wrap the layer: "
                f"cp.KeyedLayer(layer, takes={names}, gives=...), with a dict as inputs"
            ) from error

    def _require_kept_buffers(self, versions: dict[str, tuple[int, int]]) -> None:
        if not self._use.repeats and not self._use.shares_buffers:
            return
        for name, buffer in self._module.named_buffers():
            if versions.get(name) != (id(buffer), buffer._version):
                if not self._use.repeats:
                    raise ConfigError(f"{self._name} writes to its buffer '{name}', which it shares with another stage")
                raise ConfigError(
                    f"{self._name} writes to its buffer '{name}', and replicas or a recomputed forward would write "
                    "other values; use a module without buffers (GroupNorm, LayerNorm), or another schedule"
                )

    def _require_kept(self, versions: list[tuple[str, nn.Parameter, int]]) -> None:
        for name, parameter, version in versions:
            if parameter._version != version:
                raise ConfigError(
                    f"{self._name} writes to its parameter '{name}' in forward, as Embedding(max_norm=) does, and "
                    "replicas would write other values; leave that out, or choose a schedule without replicas"
                )

    def _require_no_own_draws(self, before: States) -> None:
        if drawn := changed(before, states_of_own(self._module)):
            raise ConfigError(
                f"{self._name} draws random numbers from its generator '{drawn[0]}', which differ in replicas or a "
                "recomputed forward; draw from torch's generator, or choose another schedule"
            )

    def _require_equal(self, output: Any, second: Any) -> None:
        """GPU kernels may add in any order, so only their results may differ slightly."""
        pairs = zip(flattened(output)[0], flattened(second)[0], strict=True)
        if not all(are_equal(one, other) for one, other in pairs):
            raise ConfigError(
                f"{self._name} gives another result in a second forward of the same input: it draws random numbers of "
                "its own, or depends on earlier calls. Replicas or a recomputed forward would differ; choose another "
                "schedule"
            )


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    """Returns the names of positional arguments without a default."""
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in wanted if each.kind in kinds and each.default is each.empty]
