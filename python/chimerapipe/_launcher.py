"""This process's place in its job, from torch.distributed or from the variables of a launcher. Needs no torch."""

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from . import _scheduling

_TORCHS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_REMEDY = (
    "start the job with torchrun, set all of RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, or call "
    "torch.distributed.init_process_group first"
)
Answer = TypeVar("Answer")


class LauncherError(Exception):
    """Variables from which the place does not follow: one line that names them."""


class Place(NamedTuple):
    """A process's place in a job that a launcher other than torchrun has started."""

    rank: int
    world: int
    local_rank: int
    local_size: int


def default_group() -> Any:
    """Returns torch.distributed if its default group exists, else None."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


def place(variables: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Returns rank and number of processes: those of the default group if it exists, else RANK and WORLD_SIZE, else the
    variables of Open MPI, SLURM or PMI. Returns (0, 1) outside of a job.

    Raises LauncherError if a launcher's variables are incomplete: the process would train alone.
    """
    if group := default_group():
        return int(group.get_rank()), int(group.get_world_size())
    given = {name: variables[name] for name in _TORCHS if name in variables}
    world = _number(given, "WORLD_SIZE")
    if world is None and given:
        raise LauncherError(_incomplete(given, [name for name in _TORCHS[:2] if name not in given]))
    if world is None:
        if known := _found(variables):
            return known.rank, known.world
        _require_not_spawned()
    if world is None or world == 1:
        return 0, 1
    needed = [*_TORCHS[:2], "MASTER_ADDR", "MASTER_PORT"]
    if missing := [name for name in needed if name not in variables]:
        raise LauncherError(_incomplete(given, missing))
    rank = _number(given, "RANK") or 0
    if rank >= world:
        raise LauncherError(f"RANK={rank} is not below WORLD_SIZE={world}; correct the variables of the launcher")
    return rank, world


def known_place(variables: Mapping[str, str] = os.environ) -> Place | None:
    """Returns the place that Open MPI, SLURM or PMI tell; None without their variables, or for a single process."""
    if "WORLD_SIZE" not in variables:
        with contextlib.suppress(LauncherError):  # place() has raised it, or a default group makes up for it
            return _found(variables)
    return None


def local_rank(variables: Mapping[str, str] = os.environ) -> int | None:
    """Returns the process's number on its host, None if no launcher tells it."""
    if "LOCAL_RANK" in variables:
        return _number(variables, "LOCAL_RANK")
    known = known_place(variables)
    return None if known is None else known.local_rank


def is_on_one_host(variables: Mapping[str, str] = os.environ) -> bool | None:
    """Returns whether all processes of the job run on this host; None if no launcher tells it."""
    if "LOCAL_WORLD_SIZE" in variables and "WORLD_SIZE" in variables:
        return variables["LOCAL_WORLD_SIZE"] == variables["WORLD_SIZE"]
    known = known_place(variables)
    return True if known and known.local_size == known.world else None


def server(variables: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Returns host and port where the ranks meet: MASTER_ADDR and MASTER_PORT, or those that SLURM's variables imply.
    None if there are none."""
    if "MASTER_ADDR" in variables and "MASTER_PORT" in variables:
        return variables["MASTER_ADDR"], _number(variables, "MASTER_PORT") or 0
    if known_place(variables):
        with contextlib.suppress(LauncherError):
            _, host, port = _asked(_scheduling.meeting_of, variables)
            return (host, port) if host else None
    return None


def meeting(known: Place, variables: Mapping[str, str] = os.environ) -> str:
    """Returns the URL where the ranks of such a job meet: a server, or a file if all run on this host."""
    file, host, port = _asked(_scheduling.meeting_of, variables)
    # `chimera train` under the same launcher would use the same file
    at = f"file://{file}-python" if file else f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    return f"{at}?rank={known.rank}&world_size={known.world}"


def _found(variables: Mapping[str, str]) -> Place | None:
    found = _asked(_scheduling.place_of, variables)
    return Place(*found) if found and found[1] > 1 else None


def _asked(function: Callable[[dict[str, str]], Answer], variables: Mapping[str, str]) -> Answer:
    """Returns what `chimera train` reads from the variables. Raises LauncherError with Python's remedy."""
    others = {name: value for name, value in variables.items() if name not in _TORCHS and (name + value).isprintable()}
    try:
        return function({name: value for name, value in others.items() if not name.startswith("CHIMERA_")})
    except RuntimeError as error:
        raise LauncherError(f"{str(error).partition('; use torchrun')[0]}; {_REMEDY}") from None


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or (name == "WORLD_SIZE" and int(text) == 0):
        raise LauncherError(f"{name} is '{text}'; expected a whole number")
    return int(text)


def _incomplete(given: Mapping[str, str], missing: list[str]) -> str:
    have = ", ".join(f"{name}={value}" for name, value in given.items())
    return f"{have} {'is' if len(given) == 1 else 'are'} set, but not {' and '.join(missing)}; {_REMEDY}"


def _require_not_spawned() -> None:
    target = getattr(multiprocessing.current_process(), "_target", None)
    if getattr(target, "__module__", "") == "torch.multiprocessing.spawn":
        raise LauncherError(
            "torch.multiprocessing.spawn started this process, but it has no process group, so each would train alone; "
            "call torch.distributed.init_process_group(backend, rank=rank, world_size=size) first"
        )
