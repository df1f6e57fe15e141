"""Values of several tensors, and the one tensor that carries such a value between stages."""

from __future__ import annotations

import dataclasses
import functools
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree

from ._placed import Meshes, Place, is_distributed, place_of, to_travel

_ALIGNMENT = 16  # Elements, so that each tensor of a message begins at a multiple of 32 bytes or more
_CONSTANTS = (type(None), bool, int, float, str, torch.dtype, torch.device)
_REGISTRATION = threading.Lock()
_NO_MESHES = Meshes()


def flattened(value: Any) -> tuple[list[Any], Any]:
    """Returns leaves and structure of nested tuples, lists, dicts and dataclasses (ModelOutput too)."""
    leaves, tree = _pytree.tree_flatten(value)
    unknown = {type(leaf) for leaf in leaves if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type)}
    if not unknown:
        return leaves, tree
    _register(unknown)
    return flattened(value)


def _register(kinds: set[type]) -> None:
    with _REGISTRATION:  # Rank threads
        for kind in kinds - _pytree.SUPPORTED_NODES.keys():
            _pytree.register_dataclass(kind)


def mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Returns the value with `function` applied to each tensor."""
    leaves, tree = flattened(value)
    return _pytree.tree_unflatten([function(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves], tree)


def tensors_of(value: Any) -> list[Tensor]:
    return [leaf for leaf in flattened(value)[0] if isinstance(leaf, Tensor)]


def named_tensors(name: str, value: Any) -> list[tuple[str, Any]]:
    """Returns the tensors of a value by names such as `inputs['mask']`; the value itself if it has none."""
    if not isinstance(value, Tensor) and tensors_of(value):  # Registers dataclasses
        paths, _ = _pytree.tree_flatten_with_path(value)
        return [(name + _pytree.keystr(path), leaf) for path, leaf in paths if isinstance(leaf, Tensor)]
    return [(name, value)]


def as_inputs(value: Any) -> Any:
    """Returns the value; a BatchEncoding or another Mapping becomes a dict."""
    return dict(value) if isinstance(value, Mapping) and type(value) not in _pytree.SUPPORTED_NODES else value


def samples_of(value: Any) -> int:
    """Returns the size of the first tensor's first dimension."""
    return next((len(tensor) for tensor in tensors_of(value) if tensor.dim() > 0), 0)


def part_of(value: Any, first: int, count: int) -> Any:
    """Returns samples `first` .. `first + count - 1` of each tensor."""
    return mapped(lambda tensor: tensor.narrow(0, first, count), value)


def is_plain(value: Any) -> bool:
    """Returns whether a value is a message already: a floating-point tensor with dimensions."""
    is_message = isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 0
    return is_message and not is_distributed(value)


@dataclass(frozen=True)
class _Leaf:
    """A tensor of a value."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    has_gradient: bool
    place: Place | None = None
    """Of a DTensor, whose local tensor travels."""

    def __str__(self) -> str:
        words = f"{list(self.sizes)} of {str(self.dtype).removeprefix('torch.')}"
        return words if self.place is None else f"{words} {self.place}"

    @property
    def is_wide(self) -> bool:
        """Whether it is complex, or of a floating-point type of more than a byte."""
        return bool(self.dtype.is_complex or (self.dtype.is_floating_point and self.dtype.itemsize > 1))

    @property
    def numbers(self) -> int:
        """Elements of a message."""
        of_element: int = 2 if self.dtype.is_complex else 1 if self._keeps_values else self.dtype.itemsize
        return math.prod(self.sizes) * of_element

    @property
    def _keeps_values(self) -> bool:
        return self.is_wide or self.dtype == torch.bool

    def flat(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the tensor's values in one dimension. Integers become bytes: numbers up to 255, which all
        floating-point types of messages represent exactly."""
        tensor = to_travel(tensor)
        if not self.has_gradient:
            tensor = tensor.detach()
        if self.dtype.is_complex:
            tensor = torch.view_as_real(tensor.resolve_conj())
        flat = tensor.reshape(-1)
        return (flat if self._keeps_values else flat.contiguous().view(torch.uint8)).to(dtype)

    def restored(self, flat: Tensor) -> Tensor:
        """Returns the tensor of flat()'s result."""
        if not self.has_gradient:
            flat = flat.detach()
        if self.dtype.is_complex:
            return torch.view_as_complex(flat.view(*self.sizes, 2).to(self.dtype.to_real()))
        if self._keeps_values:
            return flat.view(self.sizes).to(self.dtype)
        return flat.to(torch.uint8).view(self.dtype).view(self.sizes)


_Constant: TypeAlias = tuple[type, Any]  # Its type and value


@dataclass(frozen=True)
class Layout:
    """Structure, tensors and constants of a value, equal for all micro-batches."""

    tree: Any
    leaves: tuple[_Leaf | _Constant, ...]

    @staticmethod
    def of(value: Any) -> Layout:
        """Raises TypeError for a value that no message can carry."""
        leaves, tree = flattened(value)
        layout = Layout(tree, tuple(map(_described, leaves)))
        if not layout.tensors:
            raise TypeError("it has no tensor")
        return layout

    def __getstate__(self) -> dict[str, Any]:
        """A value with numbers for leaves stands for its structure, which has no stable format of its own."""
        return {"value": _pytree.tree_unflatten(range(len(self.leaves)), self.tree), "leaves": self.leaves}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(tree=flattened(state["value"])[1], leaves=state["leaves"])

    @functools.cached_property
    def tensors(self) -> list[_Leaf]:
        return [leaf for leaf in self.leaves if isinstance(leaf, _Leaf)]

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """The type of messages: it represents all floating-point tensors exactly."""
        wide = [leaf.dtype.to_real() for leaf in self.tensors if leaf.is_wide]
        return functools.reduce(torch.promote_types, wide) if wide else torch.float32

    @functools.cached_property
    def _sizes(self) -> list[int]:
        """Elements of each tensor and of the padding behind it."""
        return [size for leaf in self.tensors for size in (leaf.numbers, -leaf.numbers % _ALIGNMENT)]

    @property
    def nbytes(self) -> int:
        """Bytes of a message."""
        return sum(self._sizes) * int(self.dtype.itemsize)

    def pack(self, value: Any) -> Tensor:
        """Returns a message of one dimension. Raises TypeError for a value of another layout."""
        leaves, tree = flattened(value)
        if tree != self.tree:
            raise TypeError(f"it is {_one_line(tree)}, but at first it was {_one_line(self.tree)}")
        parts: list[Tensor] = []
        for leaf, expected in zip(leaves, self.leaves, strict=True):
            found = _described(leaf)
            if isinstance(found, _Leaf) and isinstance(expected, _Leaf) and expected.has_gradient:
                found = dataclasses.replace(found, has_gradient=True)
            if found != expected:
                raise TypeError(f"it has {_in_words(found)}, but at first {_in_words(expected)}")
            if isinstance(expected, _Leaf):
                padding = torch.zeros(-expected.numbers % _ALIGNMENT, dtype=self.dtype, device=leaf.device)
                parts += [expected.flat(leaf, self.dtype), padding]
        return torch.cat(parts)

    def unpack(self, message: Tensor, meshes: Meshes = _NO_MESHES) -> Any:
        """Returns the value. Gradients flow to the tensors that had one at first. `meshes`: of DTensors."""
        parts = iter(message.split(self._sizes)[::2])
        leaves: list[Any] = []
        for leaf in self.leaves:
            if not isinstance(leaf, _Leaf):
                leaves.append(leaf[1])
                continue
            local = leaf.restored(next(parts))
            leaves.append(local if leaf.place is None else meshes.placed(local, leaf.place))
        return _pytree.tree_unflatten(leaves, self.tree)


def _described(leaf: Any) -> _Leaf | _Constant:
    if isinstance(leaf, Tensor):
        place = place_of(leaf)
        return _Leaf(tuple((leaf if place is None else to_travel(leaf)).shape), leaf.dtype, leaf.requires_grad, place)
    if isinstance(leaf, _CONSTANTS):
        return type(leaf), leaf
    raise TypeError(
        f"it has a {type(leaf).__name__}; give tensors, numbers, texts and None in tuples, lists, dicts or dataclasses"
    )


def _in_words(leaf: _Leaf | _Constant) -> str:
    if not isinstance(leaf, _Leaf):
        return repr(leaf[1])
    return f"a tensor {leaf} {'with' if leaf.has_gradient else 'without'} a gradient"


def _one_line(tree: Any) -> str:
    return " ".join(str(tree).split())
