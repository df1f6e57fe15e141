"""Requests to the compiled scheduling half, by the one door that the playground has (docs/playground.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from . import _scheduling

Progress = Callable[[Mapping[str, Any]], object]


class ScheduleError(ValueError):
    """What was asked for is not possible. The message says in one line what, where, and what would be right."""


def ask(request: Mapping[str, object], progress: Progress | None = None) -> dict[str, Any]:
    """The answer to a request. Raises ScheduleError where it is refused."""
    report = None if progress is None else lambda text: progress(json.loads(text))
    answer: dict[str, Any] = json.loads(_scheduling.answer(json.dumps(request), report))
    if "error" in answer:
        raise ScheduleError(answer["error"])
    return answer
