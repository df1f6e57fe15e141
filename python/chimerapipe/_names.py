"""The user's names of parameters and buffers, as in the model that a plain program has."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

_EXTRA_STATE = nn.modules.module._EXTRA_STATE_KEY_SUFFIX


class Names:
    """Maps names in layers, such as `3.weight` of layer 3, to those of the model: its own for an nn.Sequential, for a
    model of transformers or PEFT and for its layers; numbers for other lists."""

    def __init__(self, given: Any, layers: Sequence[Any]) -> None:
        """`given`: what the user has passed as layers."""
        self._names: dict[str, list[str]] = {}
        modules = [(index, layer) for index, layer in enumerate(layers) if isinstance(layer, nn.Module)]
        models = {id(given): given} if isinstance(given, nn.Module) else {}
        for _, layer in modules:
            if (model := getattr(layer, "user_model", lambda: None)()) is not None:
                models[id(model)] = model
        known: defaultdict[int, list[str]] = defaultdict(list)
        for model in models.values():
            for name, value in _named(model).items():
                known[id(value)].append(name)
        for index, layer in modules if known else ():
            for name, value in _named(layer).items():
                if id(value) in known:
                    self._names[f"{index}.{name}"] = known[id(value)]

    def of(self, name: str) -> list[str]:
        """Returns all names of a value: a shared parameter has several."""
        return self._names.get(name, [name])


def _named(model: nn.Module) -> dict[str, Any]:
    """Returns parameters, buffers, and modules with extra state, as a state_dict names them."""
    named: dict[str, Any] = dict(model.named_parameters(remove_duplicate=False))
    named |= dict(model.named_buffers(remove_duplicate=False))
    for name, module in model.named_modules(remove_duplicate=False):
        named[f"{name}.{_EXTRA_STATE}" if name else _EXTRA_STATE] = module
    return named


def as_module(values: Mapping[str, Tensor]) -> nn.Module:
    """Returns a module that holds these parameters and buffers under their names, for functions of torch that take a
    model and its optimizer."""
    root = nn.Module()
    for name, value in values.items():
        *parents, own = name.split(".")
        module = root
        for parent in parents:
            if parent not in module._modules:
                module.add_module(parent, nn.Module())
            module = module._modules[parent]
        if isinstance(value, nn.Parameter):
            module.register_parameter(own, value)
        else:
            module.register_buffer(own, value)
    return root
