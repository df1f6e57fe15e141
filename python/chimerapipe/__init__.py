"""Pipeline parallelism with bidirectional, zero-bubble and other schedules: generated, proven, timed, drawn, trained.

Schedules need no torch: `schedule`, `search`, `Schedule.check`, `Schedule.simulate`. docs/python.md shows all at work.
"""

from ._engine import ScheduleError
from ._costs import Costs
from ._generate import ScheduleEntry, SearchResult, schedule, schedules, search, search_placements
from ._op import Op
from ._schedule import Schedule, Updates, Violation
from ._timeline import Bubble, Timeline

__all__ = [
    "Bubble",
    "Costs",
    "Op",
    "Schedule",
    "ScheduleEntry",
    "ScheduleError",
    "SearchResult",
    "Timeline",
    "Updates",
    "Violation",
    "schedule",
    "schedules",
    "search",
    "search_placements",
]
