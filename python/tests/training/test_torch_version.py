"""The training half accepts only the minor version of torch that it was built for."""

import pytest

from chimerapipe import _built_for, _torch_version


def test_another_torch_is_refused_with_what_would_be_right(monkeypatch):
    _torch_version.require_same_torch()
    monkeypatch.setattr(_built_for, "TORCH", "1.13")
    wanted = r"built for torch 1\.13, but torch 2.* is installed; install torch 1\.13, or"
    with pytest.raises(ImportError, match=wanted) as refusal:
        _torch_version.require_same_torch()
    assert "\n" not in str(refusal.value)
