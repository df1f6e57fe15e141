"""The compiled half works with the minor version of torch that it was built for."""

from __future__ import annotations

import os

_BUILD = "CHIMERA_WITH_TORCH=1 pip install . --no-build-isolation"  # in the sources; docs/python.md


def require_same_torch() -> None:
    """Imports torch and compares. Raises ImportError with what would be right."""
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "0")  # its recorder crashes where threads start collectives at once
    import torch

    try:
        from ._built_for import TORCH
    except ImportError:
        raise ImportError(
            f"this chimerapipe was built without torch and has schedules alone; in its sources build the rest: {_BUILD}"
        ) from None
    have = ".".join(torch.__version__.split(".")[:2])
    if have != TORCH:
        raise ImportError(
            f"chimerapipe was built for torch {TORCH}, but torch {torch.__version__} is installed; install torch "
            f"{TORCH}, or in the sources of chimerapipe build it for this one: {_BUILD}"
        )
