"""Measures the time and memory of a user's layers."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ._distributed import is_wrapped
from ._job import rank_0s
from ._messages import Layout, as_inputs, is_plain, mapped, part_of, samples_of, tensors_of
from ._profile import LayerCost, Profile


def measure(
    layers: Sequence[nn.Module], example: Any, *, repeats: int = 5, optimizer_bytes: float = 2.0
) -> list[LayerCost]:
    """Measures seconds and bytes of each layer for one micro-batch, `example`: inputs as of `Pipeline.step`.

    Times are medians of `repeats` runs after a warm-up. I is the gradient of the input; W is the rest of the backward.
    Activations are the tensors that autograd saves, without parameters and buffers; the example is copied, so that it
    counts as a message of its own size, even if it is a part of a larger tensor. `optimizer_bytes`: optimizer state per
    byte of parameters, 2 for Adam. Gradients stay unchanged.
    """
    costs = []
    with torch.inference_mode(False):
        alone = mapped(lambda tensor: tensor.clone(memory_format=torch.contiguous_format), as_inputs(example))
        hidden = mapped(lambda tensor: _leaf(tensor, tensor.is_floating_point()), alone)
    for index, layer in enumerate(layers):
        kept = [parameter.grad for parameter in layer.parameters()]
        with torch.inference_mode(False), torch.enable_grad():
            cost, hidden = _measured(layer, hidden, repeats, optimizer_bytes, f"{index} {type(layer).__name__}")
        for parameter, gradient in zip(layer.parameters(), kept, strict=True):
            parameter.grad = gradient
        costs.append(cost)
    return costs


def profile(
    model: nn.Module | Sequence[nn.Module], example: Any, *, sizes: Sequence[int] = (), repeats: int = 5,
    optimizer_bytes: float = 2.0, mesh: Any = None,
) -> Profile:
    """Measures layers for several micro-batch sizes.

    `model`: an nn.Sequential, a list of layers, or a model that `layers_of` supports.
    `example`: inputs of the largest micro-batch.
    `sizes`: in samples, by default 1 and the example's. `plan` interpolates linearly.

    In a job, rank 0 measures and all ranks get its profile. `mesh`: as of Pipeline; its first rank measures for its
    ranks. See `measure` for the rest. Raises ValueError for no layers, an impossible size or a distributed layer.
    """
    layers, example = listed(model, example), as_inputs(example)
    samples = samples_of(example)
    wanted = sorted(set(sizes or (1, samples)))
    if not layers or wanted[0] < 1 or wanted[-1] > samples:
        raise ValueError(f"profile: needs layers, and sizes from 1 to the example's {samples} samples")
    for index, layer in enumerate(layers):
        if isinstance(layer, nn.Module) and is_wrapped(layer):
            raise ValueError(
                f"profile: layer {index} ({type(layer).__name__}) is distributed, and one rank alone would run it; "
                "profile the layers before parallelize_module or fully_shard"
            )

    def measured() -> Profile:
        def costs(size: int) -> tuple[LayerCost, ...]:
            part = part_of(example, 0, size)
            return tuple(measure(layers, part, repeats=repeats, optimizer_bytes=optimizer_bytes))

        return Profile({size: costs(size) for size in wanted})

    shapes = [list(tensor.shape) for tensor in tensors_of(example)]
    arguments = [[type(layer).__name__ for layer in layers], shapes, wanted, repeats]
    return rank_0s("profile", arguments, measured, mesh)


def listed(model: Any, example: Any = None) -> list[Any]:
    """Returns the layers of a list, or of a model that `layers_of` supports."""
    if isinstance(model, nn.Sequential | nn.ModuleList) or not isinstance(model, nn.Module):
        return list(model)
    from ._hugging_face import layers_of  # Imports the compiled training half

    return list(layers_of(model, example))


def _leaf(tensor: Tensor, has_gradient: bool) -> Tensor:
    leaf: Tensor = tensor.detach().requires_grad_(has_gradient)
    return leaf


def _measured(layer: nn.Module, example: Any, repeats: int, optimizer_bytes: float, name: str) -> tuple[LayerCost, Any]:
    """Returns also the layer's output, as an example for the next layer."""
    wanted = [tensor for tensor in tensors_of(example) if tensor.requires_grad]
    on = tensors_of(example)[0]
    forward, whole, input_alone = [], [], []
    for run in range(repeats + 1):
        seconds, output = _timed(on, lambda: layer(example))
        outputs = [tensor for tensor in tensors_of(output) if tensor.requires_grad]
        ones = [torch.ones_like(tensor) for tensor in outputs]
        inner, _ = _timed(on, lambda: _input_gradient(outputs, wanted, ones) if outputs and wanted else None)
        both, _ = _timed(on, lambda: torch.autograd.backward(outputs, ones) if outputs else None)
        if run > 0:
            forward.append(seconds)
            whole.append(both)
            input_alone.append(inner if wanted else 0.0)
    weights = float(sum(p.nbytes for p in layer.parameters()))
    backward = statistics.median(whole)
    inner = min(statistics.median(input_alone), backward)
    cost = LayerCost(
        forward=statistics.median(forward), input_gradient=inner, weight_gradient=backward - inner, weights=weights,
        state=weights * (1 + optimizer_bytes), activations=_saved_bytes(layer, example),
        output=float(output.nbytes if is_plain(output) else Layout.of(output).nbytes), name=name,
    )
    return cost, mapped(lambda tensor: _leaf(tensor, tensor.requires_grad or is_plain(output)), output)


def _timed(example: Tensor, call: Callable[[], Any]) -> tuple[float, Any]:
    """Returns seconds, including work on the example's GPU, and the result."""
    start = time.perf_counter()
    result = call()
    if example.is_cuda:
        torch.cuda.synchronize(example.device)
    return time.perf_counter() - start, result


def _input_gradient(outputs: list[Tensor], inputs: list[Tensor], gradients: list[Tensor]) -> None:
    torch.autograd.grad(outputs, inputs, gradients, retain_graph=True, allow_unused=True)


def _saved_bytes(layer: nn.Module, example: Any) -> float:
    """Returns the bytes that each micro-batch adds. Memory that two forwards share, but not as inputs, is constant."""
    own = {each.untyped_storage().data_ptr() for each in (*layer.parameters(), *layer.buffers())}
    given = {each.untyped_storage().data_ptr() for each in tensors_of(example)}
    runs = [_saved_storages(layer, example) for _ in range(2)]
    constant = own | (runs[0][0].keys() & runs[1][0].keys()) - given
    return float(sum(size for place, size in runs[0][0].items() if place not in constant))


def _saved_storages(layer: nn.Module, example: Any) -> tuple[dict[int, int], Any]:
    """Returns bytes by address of what autograd saves, and the output, which keeps it alive."""
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    torch.clear_autocast_cache()  # It would share casts of inputs
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        return saved, layer(example)
