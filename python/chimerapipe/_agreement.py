"""Facts that all ranks must share, as short texts by name."""

import functools
import hashlib
import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._placed import is_distributed, local_of

Facts = Mapping[str, str]


def first_difference(facts: Sequence[Facts]) -> str | None:
    """Returns one line about the first fact with several values; None if all are equal. A rank may lack facts."""
    for name in dict.fromkeys(name for own in facts for name in own):
        ranks = [rank for rank, own in enumerate(facts) if name in own]
        for rank in ranks:
            here, there = facts[ranks[0]][name], facts[rank][name]
            if here != there:
                return f"{name}: {here} on rank {ranks[0]}, but {there} on rank {rank}; all ranks must give the same"
    return None


@functools.lru_cache(maxsize=1024)
def digest(text: str) -> int:
    """Returns a positive number that differs for different texts."""
    return 1 + (int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 2)


def facts_of_layers(layers: Sequence[Any]) -> dict[str, str]:
    """Describes classes, parameters and buffers of modules. A function that makes a module has only its name."""
    facts = {"number of layers": str(len(layers))}
    for index, layer in enumerate(layers):
        facts[f"layer {index}"] = in_short(layer)
        if isinstance(layer, nn.Module):
            facts |= facts_of_tensors(index, layer)
    return facts


def facts_of_tensors(index: int, module: nn.Module) -> dict[str, str]:
    named = [*module.named_parameters(), *module.named_buffers()]
    return {
        f"layer {index}, {name}": "no shape yet"
        if is_lazy(value)
        else in_words(value.shape, value.dtype) + (f" as {value.placements}" if is_distributed(value) else "")
        for name, value in named
    }


def is_lazy(value: Tensor) -> bool:
    """Returns whether it belongs to a lazy module that has not seen a sample."""
    return isinstance(value, nn.parameter.UninitializedTensorMixin)


def in_words(sizes: Sequence[int], dtype: torch.dtype) -> str:
    return f"{list(sizes)} of {str(dtype).removeprefix('torch.')}"


def in_short(value: Any) -> str:
    """Returns a text that is equal in all processes: no addresses."""
    if isinstance(value, functools.partial):
        return f"partial of {in_short(value.func)}"
    if isinstance(value, nn.Module):
        return type(value).__name__
    return str(getattr(value, "__qualname__", type(value).__name__))


def versions() -> str:
    built = importlib.import_module("._built_for", __package__).TORCH
    return f"torch {torch.__version__}, chimerapipe for torch {built}"


def reduction_of(loss: Any) -> str:
    """Returns how a loss of torch reduces its elements; `sum` if it has no such choice."""
    if isinstance(loss, nn.Module):
        return str(getattr(loss, "reduction", "sum"))
    try:
        choice = inspect.signature(loss).parameters.get("reduction")
    except (TypeError, ValueError):
        return "sum"
    return "sum" if choice is None or choice.default is inspect.Parameter.empty else str(choice.default)


def trained_in(loss: Any) -> list[str]:
    """Returns the names of a loss's parameters that require gradients."""
    owner = loss.func if isinstance(loss, functools.partial) else loss
    owner = getattr(owner, "__self__", owner)
    if not isinstance(owner, nn.Module):
        return []
    return [name for name, parameter in owner.named_parameters() if parameter.requires_grad]


def bits_of(tensors: Sequence[Tensor]) -> int:
    """Returns a sum of all bits, weighted by position in the sequence. Equal values have equal sums."""
    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    total = 0
    for place, tensor in enumerate(tensors, 1):
        plain = local_of(tensor.detach())
        plain = torch.view_as_real(plain) if plain.is_complex() else plain
        words = plain.contiguous().reshape(-1).view(integers[plain.element_size()])
        total += place * int(words.sum(dtype=torch.int64))
    return total % (1 << 62)
