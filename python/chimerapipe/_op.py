"""Ops of a schedule."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_CELL = re.compile(r"(\d+)([FBIW])(\d+)(?:r(\d+))?(?:v(\d+))?")


class Op(NamedTuple):
    """The work of one worker on one micro-batch at one stage. Printed as in PyTorch: `2F5`."""

    kind: str
    """F (forward), B (backward), or its halves I (input gradient) and W (weight gradient)."""
    stage: int
    """Stage, from 0 at the input."""
    micro_batch: int
    """Micro-batch, unique across replicas."""
    replica: int = 0
    """Replica of the model; Chimera has 0 (down) and 1 (up)."""
    weight_version: int | None = None
    """Number of updates of its weights; None in a synchronous schedule."""

    @staticmethod
    def parse(text: str) -> Op:
        """Parses `2F5` (stage, kind, micro-batch), `2F5r1` (replica 1) or `2F5r1v4` (weight version 4).

        Raises ValueError for other texts.
        """
        match = _CELL.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an op; write stage, F, B, I or W, micro-batch, such as '2F5' or '2F5r1'")
        stage, kind, micro_batch, replica, version = match.groups()
        return Op(kind, int(stage), int(micro_batch), int(replica or 0), None if version is None else int(version))

    @staticmethod
    def of_fields(fields: Mapping[str, Any]) -> Op:
        """Returns the op of a JSON object."""
        return Op(fields["op"], fields["stage"], fields["micro_batch"], fields["replica"], fields.get("weight_version"))

    def fields(self) -> dict[str, Any]:
        """Returns the JSON object."""
        fields = {"op": self.kind, "stage": self.stage, "replica": self.replica, "micro_batch": self.micro_batch}
        if self.weight_version is not None:
            fields["weight_version"] = self.weight_version
        return fields

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"
