"""Costs of ops, messages and all-reduces."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._engine import ScheduleError


@dataclass(frozen=True)
class Costs:
    """Costs per stage, in any unit of time (docs/schedule_format.md, "Costs").

    Each list has one entry per stage, for one full micro-batch.
    """

    forward: Sequence[float]
    """Time of F."""
    input_gradient: Sequence[float]
    """Time of I."""
    weight_gradient: Sequence[float]
    """Time of W."""
    backward: Sequence[float] | None = None
    """Time of B, I + W by default."""
    latency: float = 0.0
    """Time from the end of an op until another worker has its result."""
    more: dict[str, Any] = field(default_factory=dict)
    """Other fields of the file: `workers` and `micro_batches` (factors of their ops' times), `links`, `all_reduce`,
    `optimizer`, `recompute`, `memory` (bytes), `buffers`."""

    @staticmethod
    def from_json(text: str) -> Costs:
        """Parses a costs file. Raises ScheduleError if it is malformed."""
        try:
            return Costs._of_file(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"costs: {error!r}; docs/schedule_format.md describes the format") from None

    @staticmethod
    def _of_file(file: dict[str, Any]) -> Costs:
        stages = file.pop("stages")

        def gradient(stage: dict[str, float], name: str) -> float:
            return stage[name] if name in stage else stage["backward"] / 2

        whole = [stage.get("backward") for stage in stages]
        return Costs(
            forward=[stage["forward"] for stage in stages],
            input_gradient=[gradient(stage, "input_gradient") for stage in stages],
            weight_gradient=[gradient(stage, "weight_gradient") for stage in stages],
            backward=None if None in whole else whole, latency=file.pop("latency"), more=file,
        )

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Costs:
        """Reads a costs file, such as the seconds measured by `chimera train --op-times FILE`."""
        return Costs.from_json(Path(path).read_text(encoding="utf-8"))

    def to_json(self) -> str:
        """Returns a file for `chimera simulate --costs`."""
        rows = zip(self.forward, self.input_gradient, self.weight_gradient, strict=True)
        stages = [{"forward": f, "input_gradient": i, "weight_gradient": w} for f, i, w in rows]
        if self.backward is not None:
            for stage, backward in zip(stages, self.backward, strict=True):
                stage["backward"] = backward
        return json.dumps({"latency": self.latency, "stages": stages, **self.more})
