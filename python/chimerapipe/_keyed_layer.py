"""Layers on dicts of tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn


class KeyedLayer(nn.Module):
    """Calls a module with some values of a dict. The other values pass on to later layers, through the stages between,
    as a mask or a skip connection does."""

    def __init__(
        self, module: nn.Module, takes: str | Sequence[str], gives: str | Sequence[str], drops: Sequence[str] = ()
    ) -> None:
        """`takes`: keys of the module's arguments, in their order.

        `gives`: key of its result, or keys of several results.
        `drops`: keys that no later layer takes.
        """
        super().__init__()
        self.module = module
        self._takes = [takes] if isinstance(takes, str) else list(takes)
        self._gives, self._drops = gives, set(drops)

    def forward(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns `values` with the module's results, without those to drop."""
        result = self.module(*[values[key] for key in self._takes])
        given = {self._gives: result} if isinstance(self._gives, str) else dict(zip(self._gives, result, strict=True))
        return {key: value for key, value in {**values, **given}.items() if key not in self._drops}
