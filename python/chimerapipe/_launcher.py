"""This process's place in its job, from torch.distributed or from the variables of a launcher. Needs no torch."""

from __future__ import annotations

import multiprocessing
import os
import re
import stat
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import _scheduling

_TORCHS = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
_NAMES: list[list[str]] = _scheduling.names_of_launchers()
_KNOWN = [names for names in _NAMES if names[2]]  # Launchers that tell the whole place
# Rank and number of processes of launchers that set no RANK; SLURM_NTASKS is also set in batch scripts
_OTHERS = list({rank: (rank, size) for rank, size, _, _ in reversed(_NAMES)}.values())[::-1]


class LauncherError(Exception):
    """Variables from which the place does not follow: one line that names them."""


def default_group() -> Any:
    """Returns torch.distributed if its default group exists, else None."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return torch.distributed


@dataclass(frozen=True)
class Place:
    """A process's place in a job that a launcher other than torchrun has started."""

    rank: int
    world: int
    local_rank: int
    is_on_one_host: bool
    variable: str
    """Of the rank."""


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
    if world == 1:
        return 0, 1
    if world is None:
        if known := known_place(variables):
            return known.rank, known.world
        _require_alone(variables)
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
    if "WORLD_SIZE" in variables:
        return None
    for names in _KNOWN:
        if not all(variables.get(name, "").isdecimal() for name in names[:3]):
            continue
        rank, world, local = (int(variables[name]) for name in names[:3])
        if world <= 1 or rank >= world:
            return None
        own = variables.get(names[3], "") if names[3] else ""
        is_on_one_host = own == str(world) or (not names[3] and variables.get("SLURM_STEP_NUM_NODES") == "1")
        return Place(rank, world, local, is_on_one_host, names[0])
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
    return True if known and known.is_on_one_host else None


def server(variables: Mapping[str, str] = os.environ) -> tuple[str, int] | None:
    """Returns host and port where the ranks meet: MASTER_ADDR and MASTER_PORT, or those that SLURM's variables imply,
    as in `chimera train`. None if there are none."""
    if "MASTER_ADDR" in variables and "MASTER_PORT" in variables:
        return variables["MASTER_ADDR"], _number(variables, "MASTER_PORT") or 0
    known = known_place(variables)
    first = re.match(r"([^,\[]+)(?:\[(\d+))?", variables.get("SLURM_STEP_NODELIST", ""))
    if known is None or known.variable != "SLURM_PROCID" or first is None:
        return None
    step = 17 * int(variables.get("SLURM_JOB_ID", "0")) + int(variables.get("SLURM_STEP_ID", "0"))
    return first[1] + (first[2] or ""), 20000 + step % 10000


def meeting(known: Place, variables: Mapping[str, str] = os.environ) -> str:
    """Returns the URL where the ranks of such a job meet: a server, or a file if all run on this host."""
    at = server(variables)
    if at is not None and not (known.is_on_one_host and "MASTER_ADDR" not in variables):
        return f"tcp://{at[0]}:{at[1]}?rank={known.rank}&world_size={known.world}"
    if not known.is_on_one_host:
        raise LauncherError(
            f"{known.variable}={known.rank} of {known.world} processes on several hosts, but no place to meet is set; "
            "set MASTER_ADDR to an address of rank 0's host and MASTER_PORT to a free port of that host"
        )
    return f"file://{_own_folder()}/{_launcher_key(known.variable)}?rank={known.rank}&world_size={known.world}"


def _own_folder() -> Path:
    """Returns a folder of this user for files where ranks meet."""
    folder = Path(tempfile.gettempdir(), f"chimerapipe-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
        raise LauncherError(f"{folder} belongs to another user; set TMPDIR, or MASTER_ADDR and MASTER_PORT")
    return folder


def _launcher_key(variable: str) -> str:
    """Returns number and start of the launcher's process: the first ancestor without the rank's variable."""
    process = os.getppid()
    while process > 1:
        try:
            names = {each.partition(b"=")[0] for each in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")}
        except OSError:  # Of root, as SLURM's are
            break
        if variable.encode() not in names:
            break
        process = int(_status(process)[1])
    return f"{process}-{_status(process)[19]}"


def _status(process: int) -> list[str]:
    """Returns the fields of /proc/PROCESS/stat behind the name."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


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
        world = variables.get(size)
        if rank not in variables or world == "1":
            continue
        if world is None and (rank, variables[rank]) == ("SLURM_PROCID", "0"):
            continue  # As in batch scripts
        if world is None and any(variables.get(each) == "1" for _, each in _OTHERS if each):
            continue  # Another launcher's variables tell that it is alone
        known = f"{rank}={variables[rank]}" + (f" of {size}={world}" if world else "")
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
