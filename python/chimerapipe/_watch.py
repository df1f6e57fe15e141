"""Changes that users make to layers between steps.

The executor keeps gradients for the parameters that layers had when the pipeline was made. Other parameters or modules
would not be trained, so they are refused by name. Other memory, buffers, attributes and hooks are followed by replicas
on rank threads.
"""

import contextlib
import copy
import operator
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from ._agreement import in_words as tensor_in_words
from ._given_layers import in_words
from ._modules import OF_TORCH, called_modules, share_memory
from ._placed import is_distributed, local_of
from ._training import ConfigError

_FOLLOWED = (bool, int, float, str, type(None))
_DEPTH = 4  # Of containers and objects in an attribute


def _state_of(value: Any, depth: int = _DEPTH) -> Any:
    """Returns what differs after a change of the value: of its items and attributes, of tensors and arrays."""
    if isinstance(value, _FOLLOWED):
        return type(value), value
    if depth > 0 and isinstance(value, dict):
        return id(value), [(key, _state_of(each, depth - 1)) for key, each in value.items()]
    if depth > 0 and isinstance(value, list | tuple | set | frozenset):
        return id(value), [_state_of(each, depth - 1) for each in value]
    if isinstance(value, Tensor):
        return id(value), value._version, None if value.is_sparse else value.data_ptr()
    if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
        return id(value), value.tobytes()
    is_plain = isinstance(value, nn.Module | type | types.ModuleType) or callable(value)
    return id(value), None if is_plain or depth == 0 else _state_of(getattr(value, "__dict__", None), depth - 1)


class Watch:
    """Parameters and modules of layers, as they were when the pipeline was made. A step takes about 1 us per module and
    0.1 us per parameter."""

    def __init__(
        self, layers: Sequence[tuple[int, nn.Module]], updated: Sequence[tuple[str, nn.Parameter]], model: Any,
        listed: Sequence[Any],
    ) -> None:
        """`layers`: with their indices. `updated`: parameters that optimizers update, by global name. `model`: what the
        user gave, of which `listed` are the layers."""
        self._layers = list({id(layer): (in_words(index, layer), layer) for index, layer in reversed(layers)}.values())
        modules = {id(each): each for _, layer in self._layers for each in layer.modules()}
        self._model, self._listed = (model, list(model)) if isinstance(model, list) else ([], [])
        if isinstance(model, nn.Module):
            self._layers.append((f"the {type(model).__name__}", model))
            inner = {id(each) for layer in listed if isinstance(layer, nn.Module) for each in called_modules(layer)}
            modules |= {id(each): each for each in model.modules() if id(each) not in inner}
        self._dicts = [parts for each in modules.values() for parts in (each._parameters, each._modules)]
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
        if len(self._model) != len(self._listed) or not all(map(operator.is_, self._model, self._listed)):
            raise ConfigError(
                "the list of layers was changed after the pipeline was made, which still has the layers before; make a "
                "new pipeline"
            )
        parts = self._parts()
        if len(parts) == len(self._kept) and all(map(operator.is_, parts, self._kept)):
            return
        for (words, layer), names in zip(self._layers, self._names, strict=True):
            now = self._names_in(layer)
            for name in dict.fromkeys((*names, *now)):
                if names.get(name) is not now.get(name):
                    what = "parameter" if isinstance(names.get(name, now.get(name)), nn.Parameter) else "module"
                    how = "removed from" if name not in now else "replaced in" if name in names else "added to"
                    raise ConfigError(
                        f"{words}: the {what} '{name}' was {how} the layer after the pipeline was made, so nothing "
                        "would train it; load values without assign=True, or make a new pipeline"
                    )

    def moved(self) -> bool:
        """Returns whether a parameter has other memory, or other strides over it, since the last call. Raises
        ConfigError if it also has another shape, type or device."""
        places = self._pointers()
        if places == self._places and all(map(torch.Tensor.is_contiguous, self._parameters)):
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

    def __init__(self, module: nn.Module, made: nn.Module, memo: Mapping[int, Any]) -> None:
        """`made`: the copy of `module`, made by copy.deepcopy with `memo`."""
        self.module, self.made, self._memo = module, made, memo
        self._seen = dict(vars(module))
        self._states = self._states_now()

    def note(self) -> None:
        """Remembers the attributes at the end of a step. Changes in a step are those of `forward`."""
        self._states = self._states_now()

    def _states_now(self) -> dict[str, Any]:
        names = vars(self.module).keys() - OF_TORCH
        return {name: _state_of(vars(self.module)[name]) for name in names}

    def follow(self) -> None:
        """Takes over changed attributes, such as `training`, another class, and other buffers. Buffers share memory.
        Raises ConfigError for another function that may use the given module, such as `forward`."""
        now = vars(self.module)
        for name, value in now.items():
            before = self._seen.get(name, self)
            if isinstance(value, _FOLLOWED) and (type(value) is not type(before) or value != before):
                setattr(self.made, name, value)
        for name, state in self._states_now().items():
            if not isinstance(now[name], _FOLLOWED) and not _equal(state, self._states.get(name, self)):
                self._copy(name, now[name])
        self._seen = dict(now)
        if type(self.made) is not type(self.module):
            self.made.__class__ = type(self.module)
        for name, buffer in self.module._buffers.items():
            if self.made._buffers.get(name) is not buffer:
                self.made._buffers[name] = buffer

    def _copy(self, name: str, value: Any) -> None:
        kind = type(self.module).__name__
        if isinstance(value, types.FunctionType) and (name == "forward" or value.__closure__):
            raise ConfigError(
                f"the function '{name}' of a {kind} was replaced after the pipeline was made, which copies of its "
                "layer cannot follow; make a new pipeline"
            )
        parts = {  # Not the earlier copies of attributes
            key: each
            for key, each in self._memo.items()
            if isinstance(each, nn.Module | nn.Parameter) or (isinstance(each, Tensor) and id(each) == key)
        }
        try:
            setattr(self.made, name, copy.deepcopy(value, parts))
        except Exception as error:
            raise ConfigError(
                f"the attribute '{name}' of a {kind} was changed after the pipeline was made, but cannot be copied for "
                f"another rank thread ({str(error).splitlines()[0]}); make a new pipeline"
            ) from error


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # Values with an equality of their own, such as arrays as keys
        return False


def follow_memory(twins: Sequence[tuple[nn.Parameter, nn.Parameter]]) -> None:
    """Gives other leaves the memory of the parameters that are updated."""
    with torch.no_grad():
        for main, twin in twins:
            share_memory(twin, main)


class _Record:
    """Versions of a pipeline's parameters when all processes had equal values. Frees no parameter late."""

    def __init__(self, every: Sequence[nn.Parameter], own: set[int]) -> None:
        self.versions = WeakIdKeyDictionary({parameter: parameter._version for parameter in every})
        self._own = WeakIdKeyDictionary({parameter: True for parameter in every if id(parameter) in own})

    def has_changed(self) -> bool:
        """Returns whether this process has other values since, and so do others."""
        return any(self.versions[parameter] != parameter._version for parameter in self._own)

    def is_old(self, parameter: nn.Parameter) -> bool:
        is_of_others = parameter in self.versions and parameter not in self._own
        return is_of_others and bool(self.versions[parameter] == parameter._version)


class Freshness:
    """Finds parameters of a pipeline that another pipeline over the same layers trains in another process."""

    _records: list[_Record] = []  # Of all pipelines, also of freed ones, as long as their layers exist

    def __init__(self, own: set[int], layers: Sequence[tuple[str, nn.Module]]) -> None:
        """`own`: ids of the parameters that this process trains. `layers`: all, with words for messages. Raises
        ConfigError as require() does."""
        named = [(words, p) for words, layer in layers for p in layer.parameters() if p.requires_grad]
        self._own = [(words, parameter) for words, parameter in named if id(parameter) in own]
        self._every = [parameter for _, parameter in named]
        self._record = _Record(self._every, own)
        self.require()
        Freshness._records = [*(each for each in Freshness._records if len(each.versions)), self._record]

    def note(self) -> None:
        """Notes that all processes have equal values now."""
        for record in Freshness._records:
            record.versions.update({each: each._version for each in self._every if each in record.versions})

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        """Scope in which replicas get the first values, which trains nothing."""
        unchanged = [record for record in Freshness._records if not record.has_changed()]
        yield
        for record in unchanged:
            record.versions.update({each: each._version for each in self._every if each in record.versions})

    def require(self) -> None:
        """Raises ConfigError if a parameter of this process was trained in another one."""
        for record in Freshness._records:
            if record is self._record or not record.has_changed():
                continue
            for words, parameter in self._own:
                if record.is_old(parameter):
                    raise ConfigError(
                        f"{words}: another pipeline has trained it in another process, so its values here are old; "
                        "call gather() of that pipeline first"
                    )
