"""What ops, messages and sums cost."""

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
    """Costs of each stage, in any unit of time (docs/schedule_format.md, "Costs").

    Times are those of a stage's own ops on a full micro-batch, one number for each stage of the model.
    """

    forward: Sequence[float]
    """Time of F, one entry a stage."""
    input_gradient: Sequence[float]
    """Time of I, one entry a stage."""
    weight_gradient: Sequence[float]
    """Time of W, one entry a stage. B takes I + W unless `backward` says otherwise."""
    backward: Sequence[float] | None = None
    """Time of B where it is not I + W."""
    latency: float = 0.0
    """From the end of an op until its result has arrived at another worker."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the file, by their names there: `links`, `all_reduce`, `optimizer`, `recompute`, `memory`
    (bytes), `buffers`."""

    @staticmethod
    def from_json(text: str) -> Costs:
        """Reads what `chimera train --op-times` writes: costs as a run measured them, in seconds."""
        try:
            return Costs._of_file(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"costs: {error!r}; docs/schedule_format.md says what a file of costs has") from None

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
            backward=None if None in whole else whole,
            latency=file.pop("latency"),
            more=file,
        )

    @staticmethod
    def read(path: str | os.PathLike[str]) -> Costs:
        """Reads a file of costs, such as one that `chimera train --op-times FILE` wrote."""
        return Costs.from_json(Path(path).read_text(encoding="utf-8"))

    def to_json(self) -> str:
        """The text of a file that `chimera simulate --costs` reads."""
        rows = zip(self.forward, self.input_gradient, self.weight_gradient, strict=True)
        stages = [{"forward": f, "input_gradient": i, "weight_gradient": w} for f, i, w in rows]
        if self.backward is not None:
            for stage, backward in zip(stages, self.backward, strict=True):
                stage["backward"] = backward
        return json.dumps({"latency": self.latency, "stages": stages, **self.more})
