"""The planner (docs/planner.md)."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from ._costs import Costs
from ._engine import ScheduleError, ask
from ._generate import schedule
from ._job import rank_0s
from ._profile import Profile
from ._schedule import Schedule
from ._tables import html_table
from ._timeline import Timeline

_MACHINES = Path(__file__).parent / "machines"


@dataclass(frozen=True)
class Candidate:
    """A way to train, with its predicted cost."""

    name: str
    """The schedule."""
    parameters: Mapping[str, int | str]
    """In addition to D and N."""
    data_parallel: int
    """W, number of groups."""
    stages: int
    """D, workers per group."""
    micro_batches: int
    """N, micro-batches per group."""
    micro_batch_size: int
    """b, in samples."""
    partition: tuple[int, ...]
    """Layers of each stage."""
    recompute: tuple[int, ...] | str
    """Stages with activation checkpointing; of a preset also levels of its blocks, such as `cheap:4+full:2`."""
    step_seconds: float
    samples_per_second: float
    bubble_ratio: float
    peak_memory_bytes: float
    """Largest of all workers."""
    worker_memory_bytes: tuple[float, ...]
    """Peak of each worker of a group."""
    least_seconds: float
    """Lower bound for any order of the ops."""
    costs: Costs
    words: str
    """One-line description."""
    train: tuple[str, ...]
    """Flags of `chimera train`; empty for measured layers."""

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of one group."""
        return schedule(self.name, self.stages, self.micro_batches, **self.parameters)

    def simulate(self) -> Timeline:
        """Simulates a step, with separate cores for each worker."""
        return self.schedule.simulate(self.costs, data_parallel=self.data_parallel)

    def pipeline_options(self) -> dict[str, Any]:
        """Returns arguments for `Pipeline`."""
        names = ("micro_batch_size", "partition", "data_parallel", "recompute")
        return {name: getattr(self, name) for name in names}

    def row(self) -> dict[str, object]:
        """Returns a table row."""
        sizes = ("data_parallel", "stages", "micro_batches", "micro_batch_size")
        layout = {name: getattr(self, name) for name in sizes}
        layers = {"partition": ",".join(map(str, self.partition))}
        stages = self.recompute if isinstance(self.recompute, str) else ",".join(map(str, self.recompute))
        layers["recompute"] = stages or "none"
        costs = ("step_seconds", "samples_per_second", "bubble_ratio", "peak_memory_bytes")
        numbers = {name: getattr(self, name) for name in costs}
        return {"schedule": self.name, **self.parameters, **layout, **layers, **numbers}


@dataclass(frozen=True)
class Plan(Sequence[Candidate]):
    """Candidates that fit: those within 3 % of the fastest, the least memory first, then the others, fastest first."""

    candidates: tuple[Candidate, ...]
    considered: int
    too_large: int
    """Candidates that do not fit, even if all stages are recomputed."""
    machine: str
    """Name of the profile."""
    memory: float
    """Bytes per worker."""

    @property
    def best(self) -> Candidate:
        """The first candidate."""
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
        """Returns a dict per candidate, for `pandas.DataFrame`."""
        return [candidate.row() for candidate in self.candidates]

    def __repr__(self) -> str:
        return f"<Plan: {len(self)} of {self.considered} candidates, best: {self.best.words}>"

    def _repr_html_(self) -> str:
        return html_table(self.rows(), f"{len(self)} of {self.considered} candidates, the fastest first")

    def __str__(self) -> str:
        lines = ["     s/step   samples/s  bubble      GiB  recompute"]
        for place, each in enumerate(self.candidates, 1):
            levels = isinstance(each.recompute, str)
            stages = "blocks" if levels else f"{len(each.recompute)} stages" if each.recompute else "none"
            numbers = f"{each.step_seconds:>8.4g}  {each.samples_per_second:>10.4g}  {each.bubble_ratio:>6.3f}"
            lines.append(f"{place:>2} {numbers}  {each.peak_memory_bytes / 2**30:>7.3f}  {stages:<9}  {each.words}")
        return "\n".join(lines)


def machines() -> list[str]:
    """Names the included machine profiles (docs/machine_profile.md)."""
    return sorted(path.stem for path in _MACHINES.glob("*.json"))


def plan(
    model: str | Profile, *, workers: int, mini_batch: int, memory: float | None = None,
    machine: str | os.PathLike[str] | None = None, schedules: Sequence[str] = (), stages: Sequence[int] = (),
    data_parallel: Sequence[int] = (), micro_batch_sizes: Sequence[int] = (), partition: str = "balanced",
    shard_optimizer: bool = False, sync: str = "eager-opt", top: int = 10, mesh: Any = None, **workload: Any,
) -> Plan:
    """Ranks the ways to train on P = `workers`: W, D, b, schedule, partition and activation checkpointing.

    `model`: name of a preset, or a Profile.
    `mini_batch`: samples per step over all workers.
    `memory`: bytes per worker; by default the machine's, or unlimited for a Profile without a machine.
    `machine`: name or file of a machine profile, required for a preset. Without it messages take no time.
    `schedules`: names to consider; by default all synchronous ones.
    `stages`, `data_parallel`, `micro_batch_sizes`: values of D, W and b to consider.
    `partition`: `even`, `balanced`, or layers of each stage, such as `8,9,9,6`.
    `sync`: as in `Schedule.simulate`. `top`: number of candidates to return.
    `workload`, for a preset: `sequence`, `dtype`, `optimizer`, `dropout`, `layers`, `hidden`, `heads`,
    `key_value_heads`, `vocabulary`, `tied`; and `rule`, `pipelines`, `tensor_parallel`, `slices`, `replica_layout`.

    In a job, all ranks get rank 0's plan; with `mesh`, as of Pipeline, its ranks get that of its first rank. Workers
    recompute no more stages than memory requires. Raises ScheduleError, with the smallest sufficient memory, if nothing
    fits.
    """
    request: dict[str, Any] = {"do": "plan", "workers": workers, "mini_batch": mini_batch, "top": top, "sync": sync}
    request |= {"partition": partition, "shard_optimizer": shard_optimizer}
    given = {"stages": stages, "data_parallel": data_parallel, "micro_batch_sizes": micro_batch_sizes}
    request |= {name: list(values) for name, values in {"schedules": schedules, **given}.items() if values}
    if machine is not None:
        request["machine"] = _machine_text(machine)
    if isinstance(model, Profile):
        if workload:
            raise ScheduleError(f"{', '.join(workload)}: only for preset models, not for measured layers")
        request["layers"] = _measured(model)
        if machine is None and memory is None:
            memory = 1e18
    else:
        if not isinstance(model, str):
            raise ScheduleError(
                f"plan: needs a preset's name or a profile, not a {type(model).__name__}; cp.profile(layers, x) "
                "makes a profile"
            )
        request |= {"model": model, "tensor_parallel": 1, **_workload(workload)}
        if machine is None:
            raise ScheduleError(f"machine is missing; give a machine profile's file, or one of {', '.join(machines())}")
    if memory is not None:
        request["memory_bytes"] = memory
    arguments = {name: value for name, value in request.items() if name not in ("layers", "machine", "do")}
    answer = rank_0s("plan", arguments, lambda: ask(request), mesh)
    report = answer["report"]
    opened = zip(report["candidates"], answer["open"], strict=True)
    return Plan(
        tuple(_candidate(found, each, isinstance(model, str)) for found, each in opened), report["considered"],
        report["too_large"], answer["machine"], answer["memory_bytes"],
    )


def footprint(model: str, **fields: Any) -> dict[str, Any]:
    """Returns parameters, FLOPs and bytes of a preset's layers and stages, as `chimera model --format json` does.

    `fields`: of the request (docs/playground.md), such as `micro_batch_size`, or `overrides` and `schedule`, dicts.
    """
    report: dict[str, Any] = ask({"do": "model", "model": model, **fields})["model"]
    return report


_TIMES = ("forward", "input_gradient", "weight_gradient")
_SIZES = ("layers", "hidden", "heads", "key_value_heads", "vocabulary", "tied")
_OF_WORKLOAD = ("sequence", "dtype", "optimizer", "dropout")
_RESTRICTIONS = ("rule", "pipelines", "tensor_parallel", "slices", "replica_layout")


def _workload(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in (*_SIZES, *_OF_WORKLOAD, *_RESTRICTIONS):
            accepted = ", ".join((*_OF_WORKLOAD, *_SIZES, *_RESTRICTIONS))
            raise ScheduleError(f"plan has no argument '{name}'; a preset accepts {accepted}")
    request = {name: given[name] for name in (*_OF_WORKLOAD, *_RESTRICTIONS) if name in given}
    overrides = {name: given[name] for name in _SIZES if name in given}
    return {**request, "overrides": overrides} if overrides else request


def _machine_text(machine: str | os.PathLike[str]) -> str:
    path = Path(machine)
    longer = [name for name in machines() if name.startswith(str(machine)) and not path.exists()]
    if machine in machines() or len(longer) == 1:
        path = _MACHINES / f"{machine if machine in machines() else longer[0]}.json"
    elif path.parent.name == "machines" and path.stem in machines() and not path.exists():
        path = _MACHINES / path.name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ScheduleError(
            f"machine '{machine}': {error.strerror}; give a machine profile's file, or one of {', '.join(machines())}"
        ) from None


def _measured(profile: Profile) -> list[dict[str, Any]]:
    """Returns times at all sizes; activations and outputs are bytes per sample."""
    samples = profile.micro_batch_size
    return [
        {
            "times": [
                {"micro_batch_size": size, **{name: getattr(costs[index], name) for name in _TIMES}}
                for size, costs in sorted(profile.sizes.items())
            ],
            "weights": layer.weights, "state": layer.state,
            "activations": layer.activations / samples, "output": layer.output / samples,
        }
        for index, layer in enumerate(profile.layers)
    ]


def _candidate(found: Mapping[str, Any], opened: Mapping[str, Any], is_preset: bool) -> Candidate:
    layers = tuple(opened["layers"])
    recompute = found["recompute"]
    every = {"none": (), "full": tuple(range(len(layers)))}
    stages = recompute if ":" in recompute else every.get(recompute)
    if stages is None:
        stages = tuple(map(int, recompute.split(",")))
    return Candidate(
        name=found["schedule"], parameters=opened["schedule"]["parameters"], data_parallel=found["data_parallel"],
        stages=found["stages"], micro_batches=found["micro_batches"], micro_batch_size=found["micro_batch_size"],
        partition=layers, recompute=stages,
        step_seconds=found["step_seconds"], samples_per_second=found["sequences_per_second"],
        bubble_ratio=found["bubble_ratio"], peak_memory_bytes=found["peak_memory_bytes"],
        worker_memory_bytes=tuple(found["worker_memory_bytes"]), least_seconds=opened["least_seconds"],
        costs=Costs.from_json(opened["costs"]["file"]), words=opened["words"],
        train=tuple(opened["train"]) if is_preset else (),
    )
