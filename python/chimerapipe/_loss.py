"""The loss of a pipeline. It must be a sum over samples, because gradients of micro-batches are added."""

import contextlib
import functools
import math
import operator
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ._agreement import in_short, reduction_of, trained_in
from ._given_layers import are_equal
from ._held_layer import Autocast, value_of
from ._messages import mapped, tensors_of
from ._modules import unchanged
from ._placed import whole
from ._random import OpGenerators, RankContext, changed, restore, states
from ._step_data import StepData
from ._training import ConfigError

LossFunction = Callable[..., Tensor]

_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-3}  # Relative; of narrower types below
_TOLERANCE = 5e-2
_MAX_CHECKS = 16  # Micro-batches; a loss of zero decides nothing


class CheckedLoss:
    """The user's loss, as ranks of the last stage call it."""

    def __init__(
        self, loss: LossFunction, autocast: Autocast, device: torch.device, contexts: Mapping[int, RankContext],
        data: StepData, generators: OpGenerators, layers: int, *, checks_sum: bool, is_repeated: bool,
    ) -> None:
        """`contexts`: of rank threads, by thread. `layers`: their number, the index of the loss among them.
        `checks_sum`: refuse a mean. `is_repeated`: a recomputation calls the loss again."""
        self._is_repeated = is_repeated
        self._loss, self._autocast, self._device, self._contexts = loss, autocast, device, contexts
        self._data = data
        self._generators, self._layers = generators, layers
        self._with_arguments: Callable[..., Tensor] = loss
        self.predicts = False
        """Only outputs are wanted; there are no targets."""
        self._checks_left = _MAX_CHECKS if checks_sum else 0
        self.scale = 1.0
        """Factor of the loss in training, for gradients of narrow types."""
        self.draws: set[str] | None = None
        """Names of generators that the first call drew from; None before it."""

    def take_over(self, draws: set[str] | None) -> None:
        """Takes over what the first call on another rank has found."""
        if draws is not None:
            self.draws = draws | (self.draws or set())

    def unchanged(self) -> contextlib.AbstractContextManager[None]:
        """Scope of the first forwards, which leave the loss as it was."""
        return unchanged(self._loss)

    def use_arguments(self, arguments: Mapping[str, Any] | None) -> None:
        """Passes these keyword arguments to the loss in the next calls."""
        self._with_arguments = functools.partial(self._loss, **arguments) if arguments else self._loss

    def __call__(self, output: Tensor, given: Tensor) -> Tensor:
        value = value_of(output)
        if self.predicts:
            found = torch.zeros((), device=self._device)
            self._data.note(given, value, found)
            return found
        target = self._data.targets_of(given)
        found = self._checked(value, target)
        if self._data.keeps:
            self._data.note(given, value, found)
        return found if self.scale == 1.0 else found * self.scale

    def begin_draws(self) -> None:
        """Called before torch's first draw in a call."""
        if self.draws is not None and self.draws.isdisjoint(("torch", self._device.type)):
            self._generators.begin_late(self.draws, self._layers)

    def end_draws(self) -> None:
        """Called after a call that drew."""
        self._generators.end_late()

    def _checked(self, value: Any, target: Any) -> Tensor:
        """Returns the loss, which its first calls compare with that of parts."""
        if self.draws is None:
            before = states(self._device)
            found = self._call(value, target)
            self.draws = set(changed(before, states(self._device)))
            if self._is_repeated:
                restore(self._device, before)
                with unchanged(self._loss):
                    self._require_repeatable(value, target, found)
        elif self.draws:
            found = self._generators.run(self.draws, self._layers, self._call, value, target)
        else:
            found = self._call(value, target)
        if self._checks_left and found.numel() == 1:
            self._checks_left -= 1
            with torch.no_grad(), unchanged(self._loss):
                if self._require_sum(mapped(Tensor.detach, value), target, float(found.detach())):
                    self._checks_left = 0
        return found

    def _warn(self, reason: str) -> bool:
        """Warns of a loss that no comparison can decide. Returns True."""
        warnings.warn(
            f"loss: {in_short(self._loss)} was not compared with the sum over its samples, because {reason}; it must "
            "return this sum (reduction='sum'), not a mean. check_loss=False turns this warning off",
            stacklevel=2,
        )
        return True

    def _require_repeatable(self, value: Any, target: Any, found: Tensor) -> None:
        """Raises ConfigError for a loss that a recomputation of the last stage would not repeat. Costs one call."""
        if not are_equal(found, self._call(value, target)):
            raise ConfigError(
                f"loss: {in_short(self._loss)} gives another result in a second call, but a recomputed last stage "
                "calls it again; leave the last stage out of recompute="
            )

    def _call(self, value: Any, target: Any) -> Tensor:
        call = self._autocast.call
        own = self._contexts.get(threading.get_ident()) if self._contexts else None
        loss = self._with_arguments
        found = call(loss, value, target) if own is None else own.run(call, loss, value, target)
        if type(found) is not Tensor:
            found = whole(found)
        if not isinstance(found, Tensor):
            raise TypeError(f"the loss returns a {type(found).__name__}; it must return the sum as a tensor")
        return found

    def _require_sum(self, value: Any, target: Any, whole: float) -> bool:
        """Raises ConfigError unless the loss of a micro-batch is the sum of the losses of its parts: two parts of its
        samples, or one sample twice. Returns whether the values decide it, or a warning says that none do. Costs about
        one call of the loss."""
        if self.draws:
            return self._warn("it draws random numbers, which parts would not repeat")
        samples = next((len(each) for each in tensors_of(target) if each.dim()), 0)
        tensors = tensors_of(value)

        def is_cut(each: Tensor) -> bool:
            return each.dim() > 0 and len(each) == samples

        def of(cut: Callable[[Tensor], Tensor]) -> float:
            """Without terms of the whole micro-batch, such as auxiliary losses."""
            part = mapped(lambda each: cut(each) if is_cut(each) else torch.zeros_like(each), value)
            return float(self._call(part, mapped(lambda each: cut(each) if is_cut(each) else each, target)))

        if not any(map(is_cut, tensors)):
            return self._warn("its output has another first dimension than the targets")
        if not math.isfinite(whole):
            return False
        half = samples // 2
        try:
            if not all(map(is_cut, tensors)):
                whole = of(lambda each: each)
            if samples == 1:
                whole, parts = of(lambda each: torch.cat([each, each])), [whole, whole]
            else:
                parts = [of(lambda each: each[:half]), of(lambda each: each[half:])]
        except Exception as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            return self._warn(f"it fails for a part of a micro-batch ({reason})")
        size = max(abs(whole), sum(map(abs, parts)))
        if size == 0 or not math.isfinite(whole):
            return False
        kinds = [each.dtype for each in tensors if each.is_floating_point()]
        tolerance = max((_TOLERANCES.get(kind, _TOLERANCE) for kind in kinds), default=_TOLERANCE)
        if abs(whole - sum(parts)) <= max(tolerance, _TOLERANCE if self._autocast.is_on else 0) * size:
            return True
        if samples == 1:
            words = f"{parts[0]:.6g} for a sample and {whole:.6g} for the sample twice"
        else:
            words = f"{whole:.6g} for {samples} samples and {sum(parts):.6g} as the sum of two parts of them"
        raise ConfigError(
            f"loss: {in_short(self._loss)} is {words}; return the sum over samples (reduction='sum'), not a mean, or "
            "give check_loss=False if your loss is no sum over samples"
        )


class Count:
    """The user's count of losses, as ranks of the last stage call it."""

    def __init__(self, count: Callable[[Any], int], data: StepData) -> None:
        self._count, self._data = count, data
        self.predicts = False
        """There are no targets."""

    def __call__(self, given: Tensor) -> int:
        if self.predicts:
            return 1
        target = self._data.targets_of(given)
        if self._count is Tensor.numel and not isinstance(target, Tensor):
            raise ConfigError(
                f"count: the targets are a {type(target).__name__}; give count=, a function from the targets of a "
                "micro-batch to its number of losses"
            )
        number = self._count(target)
        try:
            return operator.index(number)
        except TypeError:
            raise TypeError(f"count returns a {type(number).__name__}; it must return an int") from None


def require_sum(loss: Any) -> None:
    """Raises ConfigError for losses of torch with a mean, and for losses with trained parameters."""
    if not callable(loss):
        raise ConfigError(f"loss: got a {type(loss).__name__}; give a function of output and target")
    reduction = reduction_of(loss)
    if reduction != "sum":
        raise ConfigError(f"loss: {in_short(loss)} has reduction '{reduction}'; give it reduction='sum'")
    if trained := trained_in(loss):
        raise ConfigError(
            f"loss: {in_short(loss)} has the parameter '{trained[0]}', which a pipeline does not train; move it into "
            "the last layer, or freeze it"
        )
