"""Layers that are themselves distributed: DTensor parameters, fully_shard, replicate and DistributedDataParallel.

The executor adds gradients of local tensors. For a DTensor it gets a leaf on the memory of the local tensor, and
`.grad` of the DTensor lies in the leaf's gradient.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._placed import is_distributed, local_of, placed_as


class ShardedParameter:
    """A DTensor parameter of a layer, and the leaf that the executor knows."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter = parameter
        self.leaf = nn.Parameter(local_of(parameter).detach(), parameter.requires_grad)
        self._gradient: Tensor | None = None

    def follow(self) -> None:
        """Takes over changes before a run is made."""
        self.leaf.grad = None  # A run makes its own
        self.leaf.data = local_of(self.parameter).detach()
        self.leaf.requires_grad_(self.parameter.requires_grad)
        self._gradient = None

    def attach(self) -> None:
        """Makes backwards add to the executor's gradient."""
        if self._gradient is None and self.leaf.grad is not None:
            self._gradient = placed_as(self.parameter, self.leaf.grad)
        self.parameter.grad = self._gradient


class OnLocals:
    """An optimizer with local gradients, for a GradScaler: it refuses DTensors beside plain tensors."""

    def __init__(self, optimizer: torch.optim.Optimizer, sharded: Mapping[int, ShardedParameter]) -> None:
        """`sharded`: by id of the parameter."""
        self.step = optimizer.step
        self.param_groups = [
            {"params": [sharded[id(p)].leaf if id(p) in sharded else p for p in group["params"]]}
            for group in optimizer.param_groups
        ]


class StageParts:
    """The modules in the layers of a stage that fully_shard, replicate and DistributedDataParallel have wrapped. Their
    gradients are summed once a step, after the last backward."""

    def __init__(self, layers: Iterable[nn.Module], *, splits: bool) -> None:
        """`splits`: backwards are split, and the second part finds the weights as the first did."""
        self._sharded: list[Any] = []
        self._replicated: list[Any] = []
        for layer in layers:
            _find_parts(layer, self._sharded, self._replicated)
        for part in self._sharded if splits else ():
            if all(kind.__name__ != "ReplicateModule" for kind in type(part).__mro__):  # It gathers nothing
                part.set_reshard_after_forward(False)
        for part in self._replicated:
            if _is_ddp(part):
                part.require_backward_grad_sync = False
            else:
                part.set_requires_gradient_sync(False)
                state = _loaded("torch.distributed._composable").replicate.state(part)
                if state._init_args:
                    state.lazy_init()  # Sends the first rank's values; later, that would look like a write by a forward

    def __bool__(self) -> bool:
        return bool(self._sharded or self._replicated)

    def begin(self) -> None:
        """Prepares for backwards that sum nothing over ranks. torch.distributed.pipelining does the same."""
        for part in self._sharded:
            part.set_is_last_backward(False)
            part.set_reshard_after_backward(False)
            part.set_requires_gradient_sync(False)

    def complete(self) -> None:
        for part in self._sharded:
            part.set_is_last_backward(True)
            part.set_reshard_after_backward(True)
            part.set_requires_gradient_sync(True)
            root = part._get_fsdp_state()  # Torch has no public call; see perform_reduce_grad of its own stages
            for state in root._state_ctx.all_states:
                if state._fsdp_param_group:
                    state._fsdp_param_group.post_backward()
            root._root_post_backward_final_callback()
        for part in self._replicated:
            ddp = part if _is_ddp(part) else _loaded("torch.distributed._composable").replicate.state(part)._ddp
            _average([p.grad for p in ddp.parameters() if p.grad is not None], ddp.process_group)

    def release(self) -> None:
        """Frees gathered weights, after forwards without backwards."""
        for part in self._sharded:
            for module in part.modules():
                if is_sharded(module):
                    module.reshard()


def _average(gradients: Sequence[Tensor], group: Any) -> None:
    if not gradients:  # All are frozen
        return
    flat = torch.cat([local_of(each).flatten() for each in gradients])
    torch.distributed.all_reduce(flat, group=group)
    flat /= torch.distributed.get_world_size(group)
    for gradient, part in zip(gradients, flat.split([local_of(each).numel() for each in gradients]), strict=True):
        local_of(gradient).copy_(part.view_as(local_of(gradient)))


def _is_ddp(module: Any) -> bool:
    return isinstance(module, nn.parallel.DistributedDataParallel)


def is_sharded(module: nn.Module) -> bool:
    """Returns whether fully_shard, or replicate on its base, has wrapped this module itself."""
    fsdp = _loaded("torch.distributed.fsdp")
    return fsdp is not None and isinstance(module, fsdp.FSDPModule)


def _is_replicated(module: nn.Module) -> bool:
    composable = _loaded("torch.distributed._composable.contract")
    return composable is not None and "replicate" in (composable._get_registry(module) or {})


def _loaded(module: str) -> Any:
    """Returns a module of torch that the user's program has imported, else None."""
    return sys.modules.get(module)


def _find_parts(module: nn.Module, sharded: list[Any], replicated: list[Any]) -> None:
    """Finds the outermost modules of each kind."""
    if is_sharded(module):
        sharded.append(module)
    elif _is_ddp(module) or _is_replicated(module):
        replicated.append(module)
    else:
        targets = [each for each in vars(module).get("_target", ()) if isinstance(each, nn.Module)]  # Of a stand-in
        for child in targets if getattr(module, "is_own", False) else module.children():
            _find_parts(child, sharded, replicated)


def is_wrapped(module: nn.Module) -> bool:
    """Returns whether a layer has DTensors, or parts that sum gradients over ranks themselves."""
    return has_parts(module) or any(map(is_distributed, (*module.parameters(), *module.buffers())))


def has_parts(module: nn.Module) -> bool:
    """Returns whether fully_shard, replicate or DistributedDataParallel has wrapped a layer or a part of it."""
    parts: tuple[list[Any], list[Any]] = ([], [])
    _find_parts(module, *parts)
    return any(parts)


def group_in(module: nn.Module) -> str | None:
    """Returns the name of an attribute with a process group or mesh of several ranks, as experts have; None without."""
    for prefix, part in module.named_modules():
        if type(part).__module__.startswith("torch."):
            continue
        for name, value in vars(part).items():
            is_group = isinstance(value, torch.distributed.ProcessGroup)
            is_mesh = not is_group and type(value).__name__ == "DeviceMesh"
            if (is_group or is_mesh) and value.size() > 1:
                return f"{prefix}.{name}" if prefix else name
    return None


def ranks_of_parts(module: nn.Module) -> list[tuple[str, list[int]]]:
    """Returns the ranks of the job over which each DTensor or part of a layer is distributed, by name."""
    found = [
        (name, list(map(int, value.device_mesh.mesh.flatten())))
        for name, value in (*module.named_parameters(), *module.named_buffers())
        if is_distributed(value)
    ]
    for name, part in module.named_modules():
        if _is_ddp(part):
            found.append((name or "it", torch.distributed.get_process_group_ranks(part.process_group)))
    return found


def square_norm(parameters: Sequence[nn.Parameter]) -> float:
    """Returns the squared norm of the gradients as whole tensors. All ranks of their meshes call it together."""
    total = 0.0
    sharded: dict[tuple[Any, tuple[int, ...]], Tensor] = {}
    for parameter in parameters:
        if parameter.grad is None:
            continue
        square = torch.linalg.vector_norm(local_of(parameter.grad), dtype=torch.float64).square()
        dimensions = _sharded_dimensions(parameter)
        if not dimensions:
            total += float(square)
            continue
        key = (parameter.device_mesh, dimensions)
        sharded[key] = sharded[key] + square if key in sharded else square
    for (mesh, dimensions), square in sharded.items():
        for dimension in dimensions:
            torch.distributed.all_reduce(square, group=mesh.get_group(dimension))
        total += float(square)
    return total


def _sharded_dimensions(parameter: Tensor) -> tuple[int, ...]:
    if not is_distributed(parameter):
        return ()
    return tuple(number for number, each in enumerate(parameter.placements) if not each.is_replicate())
