"""Generates, checks, simulates, searches and draws pipeline schedules, and trains torch modules with them.

Only training and measuring need torch. See docs/python.md.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._engine import ScheduleError
from ._costs import Costs
from ._generate import ScheduleEntry, SearchResult, schedule, schedules, search, search_placements, sweep
from ._op import Op
from ._partition import Partition, partition
from ._plan import Candidate, Plan, footprint, machines, plan
from ._profile import LayerCost, Profile
from ._schedule import Schedule, Updates, Violation
from ._version import VERSION as __version__
from ._timeline import Bubble, Timeline
from ._traces import FasterSchedule, Trace, TracedTimeline, read_traces

if TYPE_CHECKING:
    from ._hugging_face import layers_of
    from ._keyed_layer import KeyedLayer
    from ._measure import measure, profile
    from ._muon import Muon
    from ._pipeline import CheckpointError, ConfigError, LoadedCheckpoint, PeerLostError, Pipeline, Saving, Step
    from ._step_data import MicroBatches

__all__ = [
    "__version__", "Bubble", "Candidate", "CheckpointError", "ConfigError", "Costs", "FasterSchedule", "KeyedLayer",
    "LayerCost", "LoadedCheckpoint", "MicroBatches", "Muon", "Op", "Partition", "PeerLostError", "Pipeline", "Plan",
    "Profile", "Saving", "Schedule", "ScheduleEntry", "ScheduleError", "SearchResult", "Step", "Timeline", "Trace",
    "TracedTimeline", "Updates", "Violation", "footprint", "layers_of", "machines", "measure", "partition", "plan",
    "profile", "read_traces", "schedule", "schedules", "search", "search_placements", "sweep",
]


_OF_TORCH = dict.fromkeys(
    ("CheckpointError", "ConfigError", "LoadedCheckpoint", "PeerLostError", "Pipeline", "Saving", "Step"), "_pipeline"
)
_OF_TORCH |= {"KeyedLayer": "_keyed_layer", "MicroBatches": "_step_data", "Muon": "_muon", "layers_of": "_hugging_face"}
_OF_TORCH |= {"measure": "_measure", "profile": "_measure"}


def __getattr__(name: str) -> Any:
    """Imports names that need torch at their first use."""
    if name not in _OF_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_OF_TORCH[name]}", __name__), name)
