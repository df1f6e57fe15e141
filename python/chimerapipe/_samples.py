"""Comparison of the samples that processes pass to a step."""

import ctypes
import hashlib
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from ._messages import flattened
from ._training import ConfigError


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


def checked_work(work: Any, micro_batches: int) -> list[float]:
    """Returns the work of the micro-batches. Raises ConfigError unless each has a finite number of at least 0."""
    try:
        numbers = [float(each) for each in work]
    except (TypeError, ValueError):
        raise ConfigError("work: give a number for each micro-batch, as in work=[1, 2, 1, 1]") from None
    if len(numbers) != micro_batches:
        raise ConfigError(f"work: {len(numbers)} numbers for the {micro_batches} micro-batches of this process")
    for index, number in enumerate(numbers):
        if not 0 <= number < math.inf:
            raise ConfigError(f"work: micro-batch {index} has {number}; give a finite number of at least 0")
    return numbers


def require_samples(digests: Sequence[Sequence[int]], groups: Sequence[int], *, must_differ: bool) -> None:
    """Raises ConfigError unless all ranks of a group pass the same samples, and different groups different ones.

    `digests`: of inputs, targets and work by rank; 0 for a rank without a comparison. `groups`: by rank. `must_differ`:
    compare groups too.
    """
    first: dict[int, int] = {}
    for rank, group in enumerate(groups):
        other = first.setdefault(group, rank)
        if digests[rank][2] != digests[other][2]:
            raise ConfigError(f"work: ranks {other} and {rank} give different work, but run the same micro-batches")
        for name, own, others in zip(("inputs", "targets"), digests[rank], digests[other], strict=False):
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
        other = found.setdefault(tuple(digests[rank][:2]), rank)
        if other != rank and all(digests[rank][:2]):
            raise ConfigError(
                f"inputs: ranks {other} and {rank} of data-parallel groups {groups[other]} and {groups[rank]} pass "
                "equal samples; each group takes its own share, as in DistributedSampler(dataset, pipeline.width, "
                "pipeline.group). check_data=False turns this comparison off"
            )
