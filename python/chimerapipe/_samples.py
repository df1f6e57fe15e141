"""Comparison of the samples that processes pass to a step."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from . import _training
from ._messages import flattened

ConfigError = _training.ConfigError


def digest_of_values(value: Any) -> int:
    """Returns a positive number that differs for different tensors, numbers and texts. Copies from a GPU; reads about a
    gigabyte per second."""
    digest = hashlib.blake2b(digest_size=8)
    for leaf in flattened(value)[0]:
        if isinstance(leaf, Tensor):
            digest.update(f"{leaf.dtype}{list(leaf.shape)}".encode())
            flat = leaf.detach().resolve_conj().resolve_neg().cpu().contiguous()
            if flat.nbytes:
                digest.update((ctypes.c_char * flat.nbytes).from_address(flat.data_ptr()))
        else:
            digest.update(repr(leaf).encode())
    return 1 + (int.from_bytes(digest.digest(), "little") >> 2)


def require_samples(digests: Sequence[Sequence[int]], groups: Sequence[int], *, must_differ: bool) -> None:
    """Raises ConfigError unless all ranks of a group pass the same samples, and different groups different ones.

    `digests`: of inputs and targets by rank; 0 for a rank without a comparison. `groups`: by rank. `must_differ`:
    compare groups too.
    """
    first: dict[int, int] = {}
    for rank, group in enumerate(groups):
        other = first.setdefault(group, rank)
        for name, own, others in zip(("inputs", "targets"), digests[rank], digests[other], strict=True):
            if own != others and own and others:
                raise ConfigError(
                    f"{name}: ranks {other} and {rank} pass different samples, but work on the same ones; load them by "
                    "group, as in DistributedSampler(dataset, pipeline.width, pipeline.group), not by rank. "
                    "check_data=False turns this comparison off"
                )
    if not must_differ:
        return
    found: dict[tuple[int, ...], int] = {}
    for rank in first.values():
        other = found.setdefault(tuple(digests[rank]), rank)
        if other != rank and all(digests[rank]):
            raise ConfigError(
                f"inputs: ranks {other} and {rank} of data-parallel groups {groups[other]} and {groups[rank]} pass "
                "equal samples; each group takes its own share, as in DistributedSampler(dataset, pipeline.width, "
                "pipeline.group). check_data=False turns this comparison off"
            )
