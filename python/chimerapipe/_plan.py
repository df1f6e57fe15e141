"""How to train a model on some workers: the planner (docs/planner.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from ._costs import Costs
from ._engine import ScheduleError, ask
from ._generate import schedule
from ._profile import Profile
from ._schedule import Schedule
from ._tables import html_table
from ._timeline import Timeline

_MACHINES = Path(__file__).parent / "machines"


@dataclass(frozen=True)
class Candidate:
    """One way to train, and what it is predicted to take."""

    name: str
    """Of its schedule."""
    parameters: Mapping[str, int | str]
    """Of the schedule, beside D and N."""
    data_parallel: int
    """W, groups side by side."""
    stages: int
    """D, workers of a group."""
    micro_batches: int
    """N, of a group."""
    micro_batch_size: int
    """b, in samples."""
    partition: tuple[int, ...]
    """[stage]: its layers."""
    recompute: tuple[int, ...]
    """Stages that run their forward again."""
    step_seconds: float
    samples_per_second: float
    bubble_ratio: float
    peak_memory_bytes: float
    """On the worker that holds most."""
    worker_memory_bytes: tuple[float, ...]
    """[worker of a group]: its peak."""
    least_seconds: float
    """No order of its ops takes less."""
    costs: Costs
    """Of its ops, messages, sums and updates."""
    words: str
    """All of it in a few words."""
    train: tuple[str, ...]
    """The flags of `chimera train` that train a preset model so; none for layers of one's own."""

    @cached_property
    def schedule(self) -> Schedule:
        """Its schedule, of one group."""
        return schedule(self.name, self.stages, self.micro_batches, **self.parameters)

    def simulate(self) -> Timeline:
        """Its step, op by op; workers have cores of their own in it."""
        return self.schedule.simulate(self.costs, data_parallel=self.data_parallel)

    def pipeline_options(self) -> dict[str, Any]:
        """The arguments with which `Pipeline` trains so, beside layers, loss and schedule."""
        return {
            "micro_batch_size": self.micro_batch_size,
            "partition": self.partition,
            "data_parallel": self.data_parallel,
            "recompute": self.recompute,
        }

    def row(self) -> dict[str, object]:
        """Its numbers, for a table."""
        return {
            "schedule": self.name,
            **self.parameters,
            "data_parallel": self.data_parallel,
            "stages": self.stages,
            "micro_batches": self.micro_batches,
            "micro_batch_size": self.micro_batch_size,
            "partition": ",".join(map(str, self.partition)),
            "recompute": ",".join(map(str, self.recompute)) or "none",
            "step_seconds": self.step_seconds,
            "samples_per_second": self.samples_per_second,
            "bubble_ratio": self.bubble_ratio,
            "peak_memory_bytes": self.peak_memory_bytes,
        }


@dataclass(frozen=True)
class Plan(Sequence[Candidate]):
    """Ways to train that fit, the fastest first: a sequence of candidates."""

    candidates: tuple[Candidate, ...]
    considered: int
    """Candidates in all."""
    too_large: int
    """That do not fit, whatever they recompute."""
    machine: str
    """The name of the machine's profile."""
    memory: float
    """Bytes of a worker."""

    @property
    def best(self) -> Candidate:
        """The fastest."""
        return self.candidates[0]

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Candidate]: ...
    def __getitem__(self, index: int | slice) -> Candidate | Sequence[Candidate]:
        return self.candidates[index]

    def __len__(self) -> int:
        return len(self.candidates)

    def rows(self) -> list[dict[str, object]]:
        """A dict for each candidate, for `pandas.DataFrame`."""
        return [candidate.row() for candidate in self.candidates]

    def __repr__(self) -> str:
        return f"<Plan: {len(self)} of {self.considered} candidates, best: {self.best.words}>"

    def _repr_html_(self) -> str:
        return html_table(self.rows(), f"{len(self)} of {self.considered} candidates, the fastest first")

    def __str__(self) -> str:
        lines = ["     s/step   samples/s  bubble      GiB  recompute"]
        for place, each in enumerate(self.candidates, 1):
            stages = f"{len(each.recompute)} stages" if each.recompute else "none"
            numbers = f"{each.step_seconds:>8.4g}  {each.samples_per_second:>10.4g}  {each.bubble_ratio:>6.3f}"
            lines.append(f"{place:>2} {numbers}  {each.peak_memory_bytes / 2**30:>7.3f}  {stages:<9}  {each.words}")
        return "\n".join(lines)


def machines() -> list[str]:
    """The machine profiles that come with the package; docs/machine_profile.md says where their figures are from."""
    return sorted(path.stem for path in _MACHINES.glob("*.json"))


def plan(
    model: str | Profile,
    *,
    workers: int,
    mini_batch: int,
    memory: float | None = None,
    machine: str | os.PathLike[str] | None = None,
    schedules: Sequence[str] = (),
    stages: Sequence[int] = (),
    data_parallel: Sequence[int] = (),
    micro_batch_sizes: Sequence[int] = (),
    partition: str = "balanced",
    shard_optimizer: bool = False,
    sync: str = "eager-opt",
    top: int = 10,
    **workload: Any,
) -> Plan:
    """Ranks the ways to train a model on P = `workers`: W, D, b, schedule, partition and recomputation.

    `model`: a preset by its name, or layers of your own that `profile` measured. `mini_batch`: samples of a step over
    all workers. `memory`: bytes of a worker; left out: what the machine says, and for own layers without one, any
    number. `machine`: a profile by name (`machines`) or file, as `chimera profile` writes it. A preset needs one; with
    own layers only its links, sums, updates, cores and memory count, and without one these take no time. `schedules`:
    names to consider; left out: all synchronous ones. `stages`, `data_parallel`, `micro_batch_sizes`: the values of D,
    W and b to consider; left out: any. `partition`: `even`, `balanced`, or layers of each stage as in `8,9,9,6`. A
    worker that lacks memory recomputes as many of its stages as it must. `workload`, of a preset:
    `sequence`, `dtype`, `optimizer`, `dropout`, and sizes in place of its own: `layers`, `hidden`, `heads`,
    `key_value_heads`, `vocabulary`, `tied`. Raises ScheduleError where nothing fits, with the least memory that would
    do.
    """
    request: dict[str, Any] = {"do": "plan", "workers": workers, "mini_batch": mini_batch, "top": top, "sync": sync}
    request |= {"partition": partition, "shard_optimizer": shard_optimizer}
    given = {"stages": stages, "data_parallel": data_parallel, "micro_batch_sizes": micro_batch_sizes}
    request |= {name: list(values) for name, values in {"schedules": schedules, **given}.items() if values}
    if machine is not None:
        request["machine"] = _machine_text(machine)
    if isinstance(model, Profile):
        if workload:
            raise ScheduleError(f"{', '.join(workload)}: of preset models alone; own layers are as they were measured")
        request["layers"] = _measured(model)
        if machine is None and memory is None:
            memory = 1e18
    else:
        if not isinstance(model, str):
            raise ScheduleError(
                f"plan: needs a preset's name or a profile, not a {type(model).__name__}; cp.profile(layers, x) "
                "measures one"
            )
        request |= {"model": model, **_workload(workload)}
        if machine is None:
            raise ScheduleError(f"machine is missing; give a profile's file, or one of {', '.join(machines())}")
    if memory is not None:
        request["memory_bytes"] = memory
    answer = ask(request)
    report = answer["report"]
    opened = zip(report["candidates"], answer["open"], strict=True)
    return Plan(
        tuple(_candidate(found, each, isinstance(model, str)) for found, each in opened),
        report["considered"],
        report["too_large"],
        answer["machine"],
        answer["memory_bytes"],
    )


_SIZES = ("layers", "hidden", "heads", "key_value_heads", "vocabulary", "tied")
_OF_WORKLOAD = ("sequence", "dtype", "optimizer", "dropout")


def _workload(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in (*_SIZES, *_OF_WORKLOAD):
            raise ScheduleError(f"plan takes no '{name}'; a preset takes {', '.join((*_OF_WORKLOAD, *_SIZES))}")
    request = {name: given[name] for name in _OF_WORKLOAD if name in given}
    overrides = {name: given[name] for name in _SIZES if name in given}
    return {**request, "overrides": overrides} if overrides else request


def _machine_text(machine: str | os.PathLike[str]) -> str:
    path = _MACHINES / f"{machine}.json" if machine in machines() else Path(machine)
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScheduleError(
            f"machine '{machine}': {error.strerror}; give a profile's file, or one of {', '.join(machines())}"
        ) from None


def _measured(profile: Profile) -> list[dict[str, Any]]:
    """Each layer with its times at all sizes; its bytes are those of the largest, for each sample."""
    samples = profile.micro_batch_size
    return [
        {
            "times": [
                {
                    "micro_batch_size": size,
                    "forward": costs[index].forward,
                    "input_gradient": costs[index].input_gradient,
                    "weight_gradient": costs[index].weight_gradient,
                }
                for size, costs in sorted(profile.sizes.items())
            ],
            "weights": layer.weights,
            "state": layer.state,
            "activations": layer.activations / samples,
            "output": layer.output / samples,
        }
        for index, layer in enumerate(profile.layers)
    ]


def _candidate(found: Mapping[str, Any], opened: Mapping[str, Any], is_preset: bool) -> Candidate:
    layers = tuple(opened["layers"])
    recompute = found["recompute"]
    every = {"none": (), "full": tuple(range(len(layers)))}
    return Candidate(
        name=found["schedule"],
        parameters=opened["schedule"]["parameters"],
        data_parallel=found["data_parallel"],
        stages=found["stages"],
        micro_batches=found["micro_batches"],
        micro_batch_size=found["micro_batch_size"],
        partition=layers,
        recompute=every[recompute] if recompute in every else tuple(map(int, recompute.split(","))),
        step_seconds=found["step_seconds"],
        samples_per_second=found["sequences_per_second"],
        bubble_ratio=found["bubble_ratio"],
        peak_memory_bytes=found["peak_memory_bytes"],
        worker_memory_bytes=tuple(found["worker_memory_bytes"]),
        least_seconds=opened["least_seconds"],
        costs=Costs.from_json(opened["costs"]["file"]),
        words=opened["words"],
        train=tuple(opened["train"]) if is_preset else (),
    )
