"""Requests to the compiled scheduling half (docs/playground.md)."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from . import _scheduling

Progress = Callable[[Mapping[str, Any]], object]


class ScheduleError(ValueError):
    """An impossible request. The message is one line: what is wrong, where, and what would be right."""


def ask(request: Mapping[str, object], progress: Progress | None = None) -> dict[str, Any]:
    """Raises ScheduleError if the request is refused."""
    report = None if progress is None else lambda text: progress(json.loads(text))
    answer: dict[str, Any] = json.loads(_scheduling.answer(json.dumps(request), report))
    if "error" in answer:
        inner, names = "schedule.parameters: unknown field", "schedule: unknown parameter"
        raise ScheduleError(answer["error"].replace(inner, names))
    return answer
