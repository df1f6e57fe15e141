"""Tests of the training half, skipped without torch."""

import os

import pytest

collect_ignore_glob: list[str] = []
try:
    import torch
except ImportError as missing:
    if os.environ.get("CHIMERA_NEED_ORACLES"):
        raise
    collect_ignore_glob.append("test_*.py")
    print(f"skipped: torch cannot be imported ({missing}); tools/oracles installs it")
else:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(7)
