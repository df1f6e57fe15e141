"""Layers as a user gives them, and what a pipeline requires of them."""

import operator
import warnings
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ._agreement import in_short, is_lazy
from ._placed import local_of
from ._training import ConfigError

LayerOrFactory: TypeAlias = nn.Module | Callable[[], nn.Module]
Recompute: TypeAlias = bool | str | Iterable[int] | Callable[[int], bool]


def are_equal(one: Any, other: Any) -> bool:
    """Compares bits; on a GPU, whose kernels may add in any order, numbers within a hundredth."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and repr(one) == repr(other)
    one, other = local_of(one), local_of(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_cuda and (one.is_floating_point() or one.is_complex()):
        size = float(one.abs().nan_to_num(posinf=0).mean()) if one.numel() else 0.0
        return bool(torch.allclose(one, other, rtol=1e-2, atol=1e-2 * size, equal_nan=True))
    return bool(((one == other) | ((one != one) & (other != other))).all())


def in_words(index: int, module: nn.Module) -> str:
    return f"layer {index} ({type(module).__name__})"


def made_layer(layer: LayerOrFactory, index: int) -> nn.Module:
    """Returns the given module, or the result of the function. Raises ConfigError if it cannot be trained."""
    if isinstance(layer, nn.Module):
        for part in layer.modules():
            if type(part).__name__ == "FullyShardedDataParallel":
                raise ConfigError(f"layer {index} is wrapped in {type(part).__name__}; use fully_shard instead")
        return layer
    if not callable(layer):
        raise ConfigError(f"layer {index} is a {type(layer).__name__}; give an nn.Module, or a function that makes one")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(index)  # Equal values in every replica
        try:
            made = layer()
        except TypeError as error:
            name, reason = getattr(layer, "__name__", in_short(layer)), str(error).splitlines()[0]
            raise ConfigError(
                f"layer {index}: {name}() fails: {reason}; give an nn.Module, or a function without arguments that "
                "makes one"
            ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"layer {index}: the factory returned a {type(made).__name__}, not an nn.Module")
    return made


def require_values(index: int, module: nn.Module) -> None:
    """Raises ConfigError for sharded tensors and for tensors without a shape."""
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(value):
            raise ConfigError(
                f"{in_words(index, module)}: '{name}' has no shape yet; call the layer once on a sample before"
            )


def require_trainable(index: int, module: nn.Module) -> None:
    """Raises ConfigError for parameters that no pipeline can train. Warns of sparse gradients."""
    require_values(index, module)
    for name, part in module.named_modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse and part.weight.requires_grad:
            kind = f"{in_words(index, module)}{f', {name}' if name else ''}"
            warnings.warn(f"{kind}: its sparse gradients become dense in a pipeline", stacklevel=2)
    for name, parameter in module.named_parameters():
        dtype = str(parameter.dtype).removeprefix("torch.")
        wrong = "was made under inference_mode" if parameter.is_inference() else f"is {dtype}"
        is_plain = parameter.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        if parameter.is_inference() or (parameter.requires_grad and not is_plain):
            raise ConfigError(
                f"{in_words(index, module)}: parameter '{name}' {wrong}; a pipeline trains float32, float64, float16 "
                "and bfloat16"
            )


def require_dense_buffers(index: int, module: nn.Module) -> None:
    """Raises ConfigError for sparse buffers, which replicas cannot compare."""
    for name, buffer in module.named_buffers():
        if buffer.layout != torch.strided:
            raise ConfigError(
                f"{in_words(index, module)}: buffer '{name}' is sparse, but its stage has replicas; register "
                "buffer.to_dense(), or choose a schedule without replicas"
            )


def recomputed_stages(choice: Recompute, stages: int) -> list[int]:
    """Returns sorted stage numbers. Raises ConfigError for an unknown choice or stage."""
    every = range(stages)
    words = {"full": True, "none": False}
    if isinstance(choice, str) and choice in words:
        choice = words[choice]
    if isinstance(choice, bool):
        return [stage for stage in every if choice]
    if callable(choice):
        return [stage for stage in every if choice(stage)]
    if isinstance(choice, Iterable) and not isinstance(choice, str):
        given = set(choice)
        if given <= set(every):
            return sorted(map(operator.index, given))
    hints = {
        "auto": "; cp.plan(cp.profile(layers, x), ..., memory=...) finds the stages that memory requires",
        "attention": "; only GPT-2, BERT and Llama models of `chimera train` have 'attention'",
    }
    raise ConfigError(
        f"recompute={choice!r}: expected True, False, 'full', 'none', stage numbers from 0 to {stages - 1}, or a "
        f"function of the stage{hints.get(choice, '') if isinstance(choice, str) else ''}"
    )
