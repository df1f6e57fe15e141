"""Which stages keep their inputs alone and run forward again before backward."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TypeAlias

from . import _training

Recompute: TypeAlias = bool | str | Iterable[int] | Callable[[int], bool]


def recomputed_stages(choice: Recompute, stages: int) -> list[int]:
    """Their numbers, ascending.

    `choice`: True or `full`, all of `stages`; False or `none`, none; their numbers; or a function from the number of a
    stage to whether it is one. Raises ConfigError for anything else, and for a stage that there is not.
    """
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
    planned = "; what memory asks for is found by cp.plan(cp.profile(layers, x), ..., memory=...)"
    raise _training.ConfigError(
        f"recompute={choice!r}: expected True, False, 'full', 'none', stages of 0 to {stages - 1}, or a function of "
        f"the stage{planned if choice == 'auto' else ''}"
    )
