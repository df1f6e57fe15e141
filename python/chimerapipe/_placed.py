"""DTensors as values between stages: the local tensor travels, and the receiver places it on its own mesh."""

import functools
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def is_distributed(value: Any) -> bool:
    """Returns whether a tensor is a DTensor."""
    if type(value) is Tensor:
        return False
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and bool(isinstance(value, module.DTensor))


def local_of(tensor: Tensor) -> Tensor:
    """Returns the tensor, of a DTensor the local one, which shares its memory."""
    return tensor._local_tensor if is_distributed(tensor) else tensor


def whole(value: Tensor) -> Tensor:
    """Returns the tensor; of a DTensor the full one, with gradients."""
    return settled(value.full_tensor() if is_distributed(value) else value)


def settled(value: Any) -> Any:
    """Returns a value; of the result of a collective that is still under way the plain tensor, with gradients."""
    if type(value) is Tensor:
        return value
    module = sys.modules.get("torch.distributed._functional_collectives")
    if module is None or not isinstance(value, module.AsyncCollectiveTensor):
        return value
    return _awaiting().apply(value)


@functools.cache
def _awaiting() -> Any:
    class Awaits(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, value: Any) -> Tensor:
            plain: Tensor = value.trigger_wait().detach()
            return plain

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0]

    return Awaits


def placed_as(other: Tensor, local: Tensor) -> Tensor:
    """Returns a DTensor with the shape and placements of another DTensor, of which this rank has `local`."""
    return _placed(local, other.device_mesh, other.placements, other.shape, other.stride())


def _placed(local: Tensor, mesh: Any, placements: Any, shape: Any, stride: Any) -> Tensor:
    from torch.distributed.tensor import DTensor

    made: Tensor = DTensor.from_local(local, mesh, placements, run_check=False, shape=shape, stride=stride)
    return made


def spread(value: Any, like: Any) -> Any:
    """Returns a value; of a whole tensor, in place of a DTensor, the DTensor."""
    if not isinstance(value, Tensor) or not is_distributed(like) or is_distributed(value):
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


@dataclass(frozen=True)
class Place:
    """How a DTensor lies on its mesh."""

    names: tuple[str, ...]
    """Of the mesh's dimensions."""
    placements: tuple[Any, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        return f"as {list(self.placements)} on {', '.join(self.names)}"


def place_of(tensor: Tensor) -> Place | None:
    """Returns None for a plain tensor. Sums that are still partial travel whole."""
    if not is_distributed(tensor):
        return None
    names = tensor.device_mesh.mesh_dim_names
    if names is None:
        raise TypeError("it is a DTensor on a mesh without names; give init_device_mesh its mesh_dim_names")
    return Place(tuple(names), _without_partial(tensor), tuple(tensor.shape), tuple(tensor.stride()))


def to_travel(tensor: Tensor) -> Tensor:
    """Returns the local tensor of a DTensor, with gradients."""
    if not is_distributed(tensor):
        plain: Tensor = settled(tensor)
        return plain
    wanted = _without_partial(tensor)
    if wanted != tuple(tensor.placements):
        tensor = tensor.redistribute(placements=wanted)
    local: Tensor = settled(tensor.to_local(grad_placements=wanted))
    return local


def _without_partial(tensor: Tensor) -> tuple[Any, ...]:
    from torch.distributed.tensor import Replicate

    return tuple(Replicate() if each.is_partial() else each for each in tensor.placements)


class Meshes:
    """The meshes of this rank's layers, by the names of their dimensions."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Any] = {}

    def learn(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            if is_distributed(tensor) and tensor.device_mesh.mesh_dim_names:
                self._known.setdefault(tuple(tensor.device_mesh.mesh_dim_names), tensor.device_mesh)

    def placed(self, local: Tensor, place: Place) -> Tensor:
        """Returns the DTensor of which this rank has `local`."""
        if place.names not in self._known:
            raise TypeError(
                f"it gets a DTensor on a mesh {place.names}, but no layer of this rank has a parameter on such a mesh; "
                "return a plain tensor, such as .full_tensor()"
            )
        return _placed(local, self._known[place.names], place.placements, place.sizes, place.strides)
