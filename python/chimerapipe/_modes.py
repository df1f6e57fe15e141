"""Modes and hooks of torch that a pipeline cannot serve."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack


def has_flop_counter() -> bool:
    """Returns whether a FlopCounterMode is active on this thread."""
    return any(type(mode).__name__ == "_FlopCounterMode" for mode in _get_current_dispatch_mode_stack())


@contextlib.contextmanager
def noting_forward_mode(uses: list[bool]) -> Iterator[None]:
    """Adds to `uses` if the scope enters forward-mode differentiation, whose level torch has once per process."""
    enter = forward_ad.enter_dual_level

    def noting() -> int:
        uses.append(True)
        return int(enter())

    forward_ad.enter_dual_level = noting
    try:
        yield
    finally:
        forward_ad.enter_dual_level = enter
