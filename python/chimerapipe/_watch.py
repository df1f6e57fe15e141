"""Changes that users make to layers between steps.

The executor keeps gradients for the parameters that layers had when the pipeline was made. Other parameters or modules
would not be trained, so they are refused by name. Other memory, buffers, attributes and hooks are followed by replicas
on rank threads.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from . import _training
from ._agreement import in_words as tensor_in_words
from ._held_layer import in_words, share_memory
from ._placed import is_distributed, local_of

ConfigError = _training.ConfigError

_FOLLOWED = (bool, int, float, str, type(None))


class Watch:
    """Parameters and modules of layers, as they were when the pipeline was made. A step takes about 1 us per module and
    0.1 us per parameter."""

    def __init__(self, layers: Sequence[tuple[int, nn.Module]], updated: Sequence[tuple[str, nn.Parameter]]) -> None:
        """`layers`: with their indices. `updated`: parameters that optimizers update, by global name."""
        self._layers = list({id(layer): (index, layer) for index, layer in reversed(layers)}.values())
        modules = {id(each): each for _, layer in self._layers for each in layer.modules()}.values()
        self._dicts = [parts for each in modules for parts in (each._parameters, each._modules)]
        self._names = [self._names_in(layer) for _, layer in self._layers]
        self._kept = self._parts()  # Keeps objects alive, so that no other object gets their id
        self._updated, self._parameters = list(updated), [parameter for _, parameter in updated]
        self._has_distributed = any(map(is_distributed, self._parameters))
        self._facts = [(each.shape, each.dtype, each.device) for _, each in self._updated]
        self._places = self._pointers()

    def _parts(self) -> list[Any]:
        return [part for parts in self._dicts for part in parts.values()]

    def _pointers(self) -> list[int]:
        parameters = map(local_of, self._parameters) if self._has_distributed else self._parameters
        return [parameter.data_ptr() for parameter in parameters]

    @staticmethod
    def _names_in(layer: nn.Module) -> dict[str, Any]:
        return {**dict(layer.named_parameters(remove_duplicate=False)), **dict(layer.named_modules())}

    def require_same(self) -> None:
        """Raises ConfigError if a parameter or module was replaced, added or removed."""
        parts = self._parts()
        if len(parts) == len(self._kept) and all(map(operator.is_, parts, self._kept)):
            return
        for (index, layer), names in zip(self._layers, self._names, strict=True):
            now = self._names_in(layer)
            for name in dict.fromkeys((*names, *now)):
                if names.get(name) is not now.get(name):
                    what = "parameter" if isinstance(names.get(name, now.get(name)), nn.Parameter) else "module"
                    how = "removed from" if name not in now else "replaced in" if name in names else "added to"
                    raise ConfigError(
                        f"{in_words(index, layer)}: the {what} '{name}' was {how} the layer after the pipeline was "
                        "made, so nothing would train it; load values without assign=True, or make a new pipeline"
                    )

    def moved(self) -> bool:
        """Returns whether a parameter has other memory since the last call. Raises ConfigError if it also has another
        shape, type or device."""
        places = self._pointers()
        if places == self._places:
            return False
        for (name, parameter), facts in zip(self._updated, self._facts, strict=True):
            if facts != (parameter.shape, parameter.dtype, parameter.device):
                was, now = (tensor_in_words(*each[:2]) for each in (facts, (parameter.shape, parameter.dtype)))
                raise ConfigError(
                    f"parameter {name} is {now} on {parameter.device}, but was {was} on {facts[2]} when the pipeline "
                    "was made; make a new pipeline"
                )
            if not local_of(parameter).is_contiguous():
                parameter.data = parameter.data.contiguous()  # Before others share its memory
        self._places = self._pointers()
        return True


class Replica:
    """A copy of a module on a rank thread, which follows the given module."""

    def __init__(self, module: nn.Module, made: nn.Module) -> None:
        """`made`: the copy of `module`."""
        self.module, self.made = module, made
        self._seen = dict(vars(module))

    def follow(self) -> None:
        """Takes over changed numbers, texts and flags, such as `training`, and other buffers. Buffers share memory."""
        now = vars(self.module)
        if not self._is_seen(now):
            for name, value in now.items():
                before = self._seen.get(name, self)
                if isinstance(value, _FOLLOWED) and (type(value) is not type(before) or value != before):
                    setattr(self.made, name, value)
            self._seen = dict(now)
        for name, buffer in self.module._buffers.items():
            if self.made._buffers.get(name) is not buffer:
                self.made._buffers[name] = buffer

    def _is_seen(self, now: dict[str, Any]) -> bool:
        try:
            return now == self._seen  # Compares identities first
        except Exception:  # Some tensor is another one
            return False


def follow_memory(twins: Sequence[tuple[nn.Parameter, nn.Parameter]]) -> None:
    """Gives other leaves the memory of the parameters that are updated."""
    with torch.no_grad():
        for main, twin in twins:
            share_memory(twin, main)
