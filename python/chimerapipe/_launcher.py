"""This process's place in its job, from torch.distributed or from the variables of a launcher. Needs no torch."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping
from typing import Any

_TORCHS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
# Variables of launchers that set no RANK: the rank, and the number of processes; "": it sets none.
_OTHERS = (
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # SLURM_NTASKS is also set in batch scripts
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    ("PALS_RANKID", ""),
    ("PMIX_RANK", ""),
)


class LauncherError(Exception):
    """Variables from which the place does not follow: one line that names them."""


def default_group() -> Any:
    """Returns torch.distributed if its default group exists, else None."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


def place(variables: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Returns rank and number of processes: those of the default group if it exists, else RANK and WORLD_SIZE. Returns
    (0, 1) outside of a job.

    Raises LauncherError if a launcher's variables are incomplete: the process would train alone.
    """
    if group := default_group():
        return int(group.get_rank()), int(group.get_world_size())
    given = {name: variables[name] for name in _TORCHS if name in variables}
    world = _number(given, "WORLD_SIZE")
    if world is None and given:
        raise LauncherError(_incomplete(given, [name for name in _TORCHS[:2] if name not in given]))
    if world == 1:
        return 0, 1
    if world is None:
        _require_alone(variables)
        return 0, 1
    needed = [*_TORCHS[:2], "MASTER_ADDR", "MASTER_PORT"]
    if missing := [name for name in needed if name not in variables]:
        raise LauncherError(_incomplete(given, missing))
    rank = _number(given, "RANK") or 0
    if rank >= world:
        raise LauncherError(f"RANK={rank} is not below WORLD_SIZE={world}; correct the variables of the launcher")
    return rank, world


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or (name == "WORLD_SIZE" and int(text) == 0):
        raise LauncherError(f"{name} is '{text}'; expected a whole number")
    return int(text)


def _incomplete(given: Mapping[str, str], missing: list[str]) -> str:
    have = ", ".join(f"{name}={value}" for name, value in given.items())
    return (
        f"{have} {'is' if len(given) == 1 else 'are'} set, but not {' and '.join(missing)}; start the job with "
        "torchrun, set all of RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or call "
        "torch.distributed.init_process_group first"
    )


def _require_alone(variables: Mapping[str, str]) -> None:
    """Raises LauncherError if another launcher started several processes, or torch.multiprocessing.spawn did."""
    for rank, size in _OTHERS:
        if rank not in variables or (size and variables.get(size, "1") == "1"):
            continue
        if not size and any(variables.get(each) == "1" for _, each in _OTHERS if each):
            continue  # Another launcher's variables tell that it is alone
        known = f"{rank}={variables[rank]}" + (f" of {size}={variables[size]}" if size else "")
        raise LauncherError(
            f"{known}: a launcher started several processes, but RANK and WORLD_SIZE are not set, so each would train "
            "alone; set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT from the launcher's variables, start "
            "the job with torchrun, or call torch.distributed.init_process_group first"
        )
    target = getattr(multiprocessing.current_process(), "_target", None)
    if getattr(target, "__module__", "") == "torch.multiprocessing.spawn":
        raise LauncherError(
            "torch.multiprocessing.spawn started this process, but it has no process group, so each would train alone; "
            "call torch.distributed.init_process_group(backend, rank=rank, world_size=size) first"
        )
