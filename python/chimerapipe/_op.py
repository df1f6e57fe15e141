"""One box of the figure: what a worker does to one micro-batch at one stage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_CELL = re.compile(r"(\d+)([FBIW])(\d+)(?:r(\d+))?(?:v(\d+))?")


class Op(NamedTuple):
    """An op. Its text is that of PyTorch: stage, letter, micro-batch, `2F5`."""

    kind: str
    """F forward; B whole backward; I input gradient and W weight gradient, the halves of a split backward."""
    stage: int
    """0 is nearest the input."""
    micro_batch: int
    """Unique across replicas."""
    replica: int = 0
    """The copy of the model that it trains: Chimera has 0 (down) and 1 (up)."""
    weight_version: int | None = None
    """Updates that its weights have seen; None throughout a synchronous schedule."""

    @staticmethod
    def parse(text: str) -> Op:
        """Reads `2F5`, `2F5r1` (of replica 1) or `2F5r1v4` (with weight version 4)."""
        match = _CELL.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no op; write stage, F, B, I or W, micro-batch, as in '2F5' or '2F5r1'")
        stage, kind, micro_batch, replica, version = match.groups()
        return Op(kind, int(stage), int(micro_batch), int(replica or 0), None if version is None else int(version))

    @staticmethod
    def of_fields(fields: Mapping[str, Any]) -> Op:
        """An op as JSON has it."""
        return Op(
            fields["op"], fields["stage"], fields["micro_batch"], fields["replica"], fields.get("weight_version")
        )

    def fields(self) -> dict[str, Any]:
        """The op as JSON has it."""
        fields = {"op": self.kind, "stage": self.stage, "replica": self.replica, "micro_batch": self.micro_batch}
        if self.weight_version is not None:
            fields["weight_version"] = self.weight_version
        return fields

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.micro_batch}"
