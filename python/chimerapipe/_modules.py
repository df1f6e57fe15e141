"""Copies of modules for replicas on rank threads, and hooks of modules."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._placed import is_distributed, local_of, placed_as
from ._random import own_state
from ._training import ConfigError

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
def eval_mode(modules: Sequence[nn.Module]) -> Iterator[None]:
    modes = [(part, part.training) for module in modules for part in module.modules()]
    try:
        for module in modules:
            module.eval()
        yield
    finally:
        for part, mode in modes:
            part.training = mode


@contextlib.contextmanager
def unchanged(*roots: Any) -> Iterator[None]:
    """Restores at its end what calls of layers or functions may change: buffers and untrained parameters, attributes,
    and what these hold."""
    before = _Snapshot(roots)
    try:
        yield
    finally:
        before.restore()


_DEPTH, _MOST_ITEMS = 8, 1000  # Of containers and objects in an attribute; of a container whose items are looked at
_STANDARD = sys.stdlib_module_names - {"types", "__main__"} | {"torch", "chimerapipe"}


class _Replays:
    """Stands for an iterator, and keeps what it gives."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._given: list[Any] = []

    def __iter__(self) -> _Replays:
        return self

    def __next__(self) -> Any:
        self._given.append(next(self._source))
        return self._given[-1]

    def source(self) -> Any:
        """Returns an iterator that gives all values again."""
        return itertools.chain(self._given, self._source) if self._given else self._source


class _Snapshot:
    """The values that objects hold, and those that these hold in turn."""

    def __init__(self, roots: Sequence[Any]) -> None:
        self._seen: dict[int, Any] = {}  # Keeps objects alive, so that no other object gets their id
        self._undo: list[Callable[[], object]] = []
        self._found: deque[tuple[Any, int]] = deque()
        for root in roots:
            owner = getattr(root, "__self__", root)
            for module in (owner, *(held for _, held in _closure_of(root))):
                for each in called_modules(module) if isinstance(module, nn.Module) else ():
                    self._save_module(each)
            self._found.append((owner, _DEPTH))
        while self._found:
            value, depth = self._found.popleft()
            if isinstance(value, nn.Module) and not type(value).__module__.startswith("chimerapipe."):
                for each in called_modules(value):  # Not registered as parts
                    self._save_module(each, has_parameters=False)
            elif depth and id(value) not in self._seen and not isinstance(value, int | float | str | nn.Module | type):
                self._seen[id(value)] = value
                self._save(value, depth - 1)

    def restore(self) -> None:
        for undo in self._undo:
            undo()

    def _save_module(self, module: nn.Module, has_parameters: bool = True) -> None:
        if id(module) in self._seen:
            return
        self._seen[id(module)] = module
        self._save_items(module._buffers, _DEPTH)
        self._found += [(each, _DEPTH) for name in _HOOKS for each in getattr(module, name).values()]
        parameters = module._parameters.values() if has_parameters else ()
        self._found += [(each, 1) for each in parameters if each is not None and not each.requires_grad]
        if not type(module).__module__.startswith(("torch.nn.parallel", "torch._dynamo")):  # They keep a first forward
            self._save_items(vars(module), _DEPTH, OF_TORCH | {"_target"})

    def _save(self, value: Any, depth: int) -> None:
        if isinstance(value, Tensor):
            if not (value.is_leaf and value.requires_grad):
                self._undo.append(SavedTensor(value).restore)
        elif isinstance(value, dict):
            self._save_items(value, depth)
        elif isinstance(value, list | deque | set):
            self._save_container(value, depth)
        elif isinstance(value, tuple):
            self._found += [(each, depth) for each in value[:_MOST_ITEMS]]
        elif isinstance(value, types.FunctionType):
            for cell, held in _closure_of(value):
                self._undo.append(functools.partial(setattr, cell, "cell_contents", held))
                self._found.append((held, min(depth, 2)))  # It may hold the whole program
        elif isinstance(value, types.MethodType):
            self._found.append((value.__self__, depth))
        elif isinstance(value, functools.partial):
            self._found += [(each, depth) for each in (value.func, *value.args, *value.keywords.values())]
        elif states := own_state(value):
            self._undo.append(functools.partial(states[1], states[0]))
        elif type(value).__module__ == "numpy" and hasattr(value, "tobytes") and value.shape:
            self._undo.append(functools.partial(value.__setitem__, ..., value.copy()))
        elif type(value).__module__.partition(".")[0] not in _STANDARD:
            self._save_items(getattr(value, "__dict__", {}), depth)
            for name in [name for kind in type(value).__mro__ for name in vars(kind).get("__slots__", ())]:
                if not name.startswith("__") and hasattr(value, name):
                    self._undo.append(functools.partial(object.__setattr__, value, name, getattr(value, name)))
                    self._found.append((getattr(value, name), depth))

    def _save_items(self, given: dict[Any, Any], depth: int, others: Container[Any] = ()) -> None:
        """Saves the items of a dict, but for keys in `others`."""
        before = {key: value for key, value in given.items() if key not in others}
        noted = {key: _Replays(value) for key, value in before.items() if _is_iterator(value)}
        dict.update(given, noted)  # A Counter adds

        def undo() -> None:
            before.update({key: replays.source() for key, replays in noted.items()})
            for key in [key for key in given if key not in before and key not in others]:
                del given[key]
            dict.update(given, {key: value for key, value in before.items() if given.get(key, given) is not value})

        self._undo.append(undo)
        if len(before) <= _MOST_ITEMS:
            self._found += [(each, depth) for each in before.values()]

    def _save_container(self, given: Any, depth: int) -> None:
        before = copy.copy(given)

        def undo() -> None:
            if len(given) != len(before) or any(map(operator.is_not, given, before)):
                given.clear()
                given.update(before) if isinstance(given, set) else given.extend(before)

        self._undo.append(undo)
        if len(before) <= _MOST_ITEMS:
            self._found += [(each, depth) for each in before]


def _closure_of(function: Any) -> list[tuple[types.CellType, Any]]:
    """Returns the variables of a function that hold a value."""
    cells = getattr(function, "__closure__", None) or ()
    return [(cell, cell.cell_contents) for cell in cells if cell != types.CellType()]


def _is_iterator(value: Any) -> bool:
    """Returns whether it is an iterator of Python, such as a generator."""
    return type(value).__module__ in ("builtins", "itertools") and isinstance(value, Iterator)


_OF_STATISTICS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class SavedTensor:
    """A tensor and its value. Some kernels write without a new version: batch_norm its running mean and variance."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._version = tensor, None if tensor.is_inference() else tensor._version
        with torch.no_grad():
            self._given, self._value = tensor.detach(), tensor.detach().clone()

    def is_changed(self) -> bool:
        if self._version is None or self._tensor._version != self._version or self._is_moved():
            return True
        if self._tensor.dtype not in _OF_STATISTICS or self._tensor.layout != torch.strided or self._tensor.is_meta:
            return False
        return not torch.equal(local_of(self._tensor).detach(), local_of(self._value))

    def _is_moved(self) -> bool:
        if self._tensor.layout != torch.strided or is_distributed(self._tensor):
            return False
        return bool(self._tensor.data_ptr() != self._given.data_ptr()) or self._tensor.shape != self._given.shape

    def restore(self) -> None:
        if self.is_changed():
            with torch.no_grad():
                if self._is_moved():
                    self._tensor.data = self._given
                self._tensor.copy_(self._value)
