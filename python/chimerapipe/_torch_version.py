"""The training half works only with the minor version of torch that it was built for."""

import os

_BUILD = "CHIMERA_WITH_TORCH=1 pip install -v . --no-build-isolation"  # In the sources


def require_same_torch() -> None:
    """Raises ImportError if the training half is missing, or was built for another torch."""
    # The flight recorder crashes if threads start collectives at the same time
    os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "0")
    import torch

    try:
        from ._built_for import TORCH
    except ImportError:
        raise ImportError(
            f"this chimerapipe was built without training; to build it, run in the sources: {_BUILD}"
        ) from None
    have = ".".join(torch.__version__.split(".")[:2])
    if have != TORCH:
        raise ImportError(
            f"chimerapipe was built for torch {TORCH}, but torch {torch.__version__} is installed; install torch "
            f"{TORCH}, or rebuild chimerapipe in its sources: {_BUILD}"
        )
