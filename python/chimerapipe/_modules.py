"""Copies of modules for replicas on rank threads, and hooks of modules."""

from __future__ import annotations

import contextlib
import copy
from collections import deque
from collections.abc import Container, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from . import _training
from ._placed import is_distributed, local_of, placed_as

ConfigError = _training.ConfigError

OF_TORCH = vars(nn.Module()).keys() | {"_compiled_call_impl"}  # Attributes with rules of their own


def twin_of(parameter: nn.Parameter) -> nn.Parameter:
    """Returns another leaf with the same memory, hooks and attributes."""
    if is_distributed(parameter):
        value = placed_as(parameter, local_of(parameter).detach())
    else:
        value = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
    twin = nn.Parameter(value, parameter.requires_grad)
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
    local_of(twin).data = local_of(parameter).data


def copied(module: nn.Module, memo: dict[int, Any], own: Container[int], name: str) -> nn.Module:
    """Returns a copy of the module that shares its buffers and the memory of its parameters.

    `memo`: as of copy.deepcopy. `own`: ids of parameters that the copy takes over, instead of twins. Raises ConfigError
    for a module that cannot be copied.
    """
    for parameter in module.parameters():
        if id(parameter) not in memo:
            memo[id(parameter)] = parameter if id(parameter) in own else twin_of(parameter)
    memo.update({id(buffer): buffer for buffer in module.buffers()})
    remedy = "give a function that makes the layer, or start a process per rank (torchrun)"
    return deep_copy(module, memo, f"{name} cannot be copied for another rank thread", remedy)


def deep_copy(module: nn.Module, memo: dict[int, Any], words: str, remedy: str) -> nn.Module:
    """Returns copy.deepcopy of the module. Raises ConfigError with the attribute that cannot be copied."""
    given = dict(memo)  # A failed copy leaves unfinished parts in its memo
    try:
        made: nn.Module = copy.deepcopy(module, memo)
        return made
    except Exception as error:
        part, reason = _first_without_copy(module, given) or (type(module).__name__, str(error) or repr(error))
        if "(graph leaves)" in reason:
            reason = "has tensors computed from others, as prune, weight_norm and ensure_weight_tying of PEFT make"
        raise ConfigError(f"{words}: {part}: {reason.splitlines()[0]}; {remedy}") from error


def _first_without_copy(module: nn.Module, memo: Mapping[int, Any]) -> tuple[str, str] | None:
    """Returns the name of an attribute that copy.deepcopy refuses, and why."""
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if name in ("_modules", "_parameters"):
                continue
            try:
                copy.deepcopy(value, dict(memo))
            except Exception as error:
                return f"attribute '{prefix}.{name}'" if prefix else f"attribute '{name}'", str(error) or repr(error)
    return None


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


@contextlib.contextmanager
def unchanged(layer: nn.Module) -> Iterator[None]:
    """Restores at its end what a forward may change: buffers, other buffers in their place, and attributes."""
    modules = {id(each): each for each in called_modules(layer)}.values()
    registered = [(each._buffers, dict(each._buffers)) for each in modules]
    attributes = [(vars(each), _attributes_of(each)) for each in modules if not _keeps_state_of_torch(each)]
    values = [value for _, given in attributes for value in given.values()]
    items = [(each, copy.copy(each)) for each in values if type(each) in (list, dict, set, deque)]
    tensors = {id(each): each for each in (*layer.buffers(), *values) if isinstance(each, Tensor)}.values()
    saved = [SavedTensor(each) for each in tensors]
    try:
        yield
    finally:
        for buffers, given in registered:
            buffers.clear()
            buffers.update(given)
        for own, given in attributes:
            for name in own.keys() - given.keys() - OF_TORCH:
                del own[name]
            own.update(given)
        for value, before in items:
            value.clear()
            value.extend(before) if isinstance(value, list | deque) else value.update(before)
        for each in saved:
            each.restore()


def _attributes_of(module: nn.Module) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if name not in OF_TORCH}


def _keeps_state_of_torch(module: nn.Module) -> bool:
    """Returns whether torch itself keeps the state of its first forward in attributes."""
    return type(module).__module__.startswith(("torch.nn.parallel", "torch._dynamo"))


_OF_STATISTICS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class SavedTensor:
    """A tensor and its value. Some kernels write without a new version: batch_norm its running mean and variance."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._version = tensor, None if tensor.is_inference() else tensor._version
        with torch.no_grad():
            self._value = tensor.detach().clone()

    def is_changed(self) -> bool:
        if self._version is None or self._tensor._version != self._version:
            return True
        if self._tensor.dtype not in _OF_STATISTICS or self._tensor.layout != torch.strided:
            return False
        return not torch.equal(local_of(self._tensor).detach(), local_of(self._value))

    def restore(self) -> None:
        if self.is_changed():
            with torch.no_grad():
                self._tensor.copy_(self._value)
