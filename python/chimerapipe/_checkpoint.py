"""Checkpoints in the format of `chimera train` (docs/checkpoints.md).

Files hold tensors of eight types. Tensors of other types and values of `get_extra_state` are stored as bytes, and the
manifest describes them.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from . import _training
from ._calls import Agreement
from ._held_layer import HeldLayer
from ._layers import Layers
from ._placed import local_of
from ._processes import CollectiveTask, OtherRankError, Processes
from ._random import OpGenerators, as_text, from_text, restore as restore_generators, states as states_of_generators
from ._run import Run
from ._shape import Shape
from ._training import CheckpointError, ConfigError

_SAVED_AS = {"exp_avg": "first_moment", "exp_avg_sq": "second_moment"}
_LOADED_AS = {saved: name for name, saved in _SAVED_AS.items()}


@dataclass(frozen=True)
class LoadedCheckpoint:
    """The checkpoint that a run resumed from."""

    path: str
    step: int
    """Completed optimizer steps."""
    extra: dict[str, Any]
    """The `extra` values given to `save_checkpoint`."""
    refused: list[str] = field(default_factory=list)
    """Reasons why newer checkpoints were skipped, one line each."""


@dataclass
class OptimizerPart:

    tensors: list[tuple[str, Tensor]]
    """By name in the file, such as `3.weight.first_moment`."""
    numbers: dict[str, dict[str, Any]]
    """Other values, by parameter name and key."""
    record: dict[str, Any]
    """Class, and hyperparameters of the groups."""


NamedTensors = list[tuple[str, Tensor]]
Descriptions = dict[str, dict[str, Any]]

_EXTRA_STATE = nn.modules.module._EXTRA_STATE_KEY_SUFFIX
_TYPES_OF_FILES = frozenset(
    (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool)
)


@dataclass(frozen=True)
class Parts:
    """This rank's part of a checkpoint."""

    folder: str
    step: int
    rank: int
    ranks: int
    run: str
    """JSON for the manifest."""
    weights: NamedTensors
    state: NamedTensors
    keep: int
    """Number of newest checkpoints to keep; 0 keeps all."""

    def copied(self) -> Parts:
        """Copies the tensors, so that training can continue during the write."""
        return replace(self, weights=_copies(self.weights), state=_copies(self.state))

    def write(self, together: CollectiveTask) -> None:
        """Writes a checkpoint on all ranks; all raise if one fails."""
        try:
            own = (self.rank, self.ranks, self.weights, self.state)
            together.all_or_none(lambda: _training.write_part(self.folder, self.step, *own))
            together.all_or_none(self._commit)
        except Exception:
            if self.rank == 0:
                _training.abandon(self.folder, self.step)
            raise
        if self.keep > 0 and self.rank == 0:
            _training.remove_superfluous(self.folder, self.step, self.keep)

    def _commit(self) -> None:
        if self.rank == 0:
            _training.commit(self.folder, self.step, self.ranks, self.run)


def as_stored(values: Iterable[tuple[str, Any]]) -> tuple[NamedTensors, Descriptions]:
    """Returns tensors for files, and descriptions of those that are bytes of another value.

    Raises ConfigError for a value that could not be read back: other objects than tensors, numbers, texts, bytes, and
    lists, tuples, sets and dicts of them.
    """
    stored: NamedTensors = []
    described: Descriptions = {}
    for name, value in values:
        if isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized:
            plain = value.detach().resolve_conj().resolve_neg()
            if plain.dtype not in _TYPES_OF_FILES:
                described[name] = {"dtype": str(plain.dtype).removeprefix("torch."), "shape": list(plain.shape)}
                plain = as_bytes(plain.contiguous())
            stored.append((name, plain))
        else:
            described[name] = {"object": type(value).__name__}
            stored.append((name, _bytes_of(name, value)))
    return stored, described


def as_bytes(tensor: Tensor) -> Tensor:
    """Returns the bytes of a contiguous tensor, in its memory."""
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.reshape(-1).view(torch.uint8)


def modules_with_extra_state(layer: nn.Module) -> list[nn.Module]:
    return [each for each in layer.modules() if type(each).get_extra_state is not nn.Module.get_extra_state]


def _bytes_of(name: str, value: Any) -> Tensor:
    try:
        file = io.BytesIO()
        torch.save(value, file)
        file.seek(0)
        torch.load(file, weights_only=True)
    except Exception:
        raise ConfigError(
            f"save_checkpoint: {name} is a {type(value).__name__} that cannot be read back; give tensors, numbers, "
            "texts, bytes, lists and dicts of Python and torch"
        ) from None
    return torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)


def as_saved(stored: Tensor, description: Mapping[str, Any] | None) -> Any:
    """Returns the value that as_stored() got."""
    if description is None:
        return stored
    if "object" in description:
        return torch.load(io.BytesIO(bytes(stored.tolist())), weights_only=True, map_location="cpu")
    dtype, shape = getattr(torch, description["dtype"]), description["shape"]
    if dtype.is_complex:
        return torch.view_as_complex(stored.view(dtype.to_real()).reshape(*shape, 2))
    return stored.view(dtype).reshape(shape)


class Reader:
    """An open checkpoint."""

    def __init__(self, file: _training.OpenCheckpoint) -> None:
        self.path, self.step, self._file = file.path, file.step, file
        self.run: dict[str, Any] = json.loads(file.run)
        self._described: Descriptions = self.run.get("stored_as_bytes", {})

    def names(self) -> list[str]:
        return self._file.names()

    def read(self, name: str) -> Any:
        """Returns a saved value. Raises CheckpointError if it is missing."""
        return as_saved(self._file.read(name), self._described.get(name))

    def values_like(self, values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
        """Returns the saved values of a module. Raises ConfigError if one is missing, or has another type or shape."""
        return {name: self._like(prefix + name, value) for name, value in values.items()}

    def _like(self, name: str, value: Any) -> Any:
        try:
            saved = self.read(name)
        except CheckpointError as missing:
            raise ConfigError(f"{missing}; it belongs to another model") from None
        if not name.endswith(_EXTRA_STATE):
            was, now = (
                f"{each.dtype} {list(each.shape)}" if isinstance(each, Tensor) else f"a {type(each).__name__}"
                for each in (saved, value)
            )
            if was != now:
                raise ConfigError(f"{self.path}: {name} is {was}, but in this model {now}")
        return saved


def _copies(tensors: NamedTensors) -> NamedTensors:
    return [(name, tensor.detach().to("cpu", copy=True)) for name, tensor in tensors]


class Saving:
    """A checkpoint that a thread writes. The process does not exit before the write ends."""

    def __init__(self, path: str, step: int, written: Future[None]) -> None:
        self.path, self.step, self._written = path, step, written

    def done(self) -> bool:
        """Returns whether the write has succeeded or failed."""
        return self._written.done()

    def wait(self) -> str:
        """Returns the path after all ranks have written the checkpoint. Raises the error of a failed write."""
        self._written.result()
        return self.path

    def __repr__(self) -> str:
        return f"<Saving {self.path}: {'done' if self.done() else 'running'}>"


class Saver:
    """Writes the checkpoints of one process in order, on one thread."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._thread: ThreadPoolExecutor | None = None
        self._last: Saving | None = None

    def await_last(self) -> None:
        """Waits for the last write. The thread has already printed its error."""
        if self._last is not None:
            self._last._written.exception()
            self._last = None

    def start(self, path: str, step: int, write: Callable[[CollectiveTask], None]) -> Saving:
        task = self._processes.task()
        rank = self._processes.rank

        def save() -> None:
            try:
                write(task)
            except OtherRankError:
                raise
            except Exception as error:
                what = f"the checkpoint of step {step} is not saved: {error}; training continues"
                print(f"chimerapipe: rank {rank}: {what}", file=sys.stderr, flush=True)
                raise
            finally:
                task.leave()

        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._last = Saving(path, step, self._thread.submit(save))
        return self._last


def optimizer_part(
    optimizer: torch.optim.Optimizer | None, parameters: Iterable[tuple[str, nn.Parameter]]
) -> OptimizerPart:
    """Raises ConfigError for state that is neither tensor nor number."""
    part = OptimizerPart([], {}, {})
    if optimizer is None:
        return part
    part.record = {
        "kind": type(optimizer).__name__,
        "groups": [_hyperparameters(group) for group in optimizer.param_groups],
    }
    for name, parameter in parameters:
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                part.tensors.append((f"{name}.{_SAVED_AS.get(key, key)}", value))
            elif value is None or isinstance(value, bool | int | float | str):
                part.numbers.setdefault(name, {})[key] = value
            else:
                kind = type(value).__name__
                raise ConfigError(f"optimizer: state '{key}' of {name} is a {kind}, not a tensor or number")
    return part


def _hyperparameters(group: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in group.items() if name not in ("params", "param_names")}
    return {name: value.item() if isinstance(value, Tensor) else value for name, value in kept.items()}


def restore_optimizer(
    optimizer: torch.optim.Optimizer, record: Mapping[str, Any], reader: Reader,
    parameters: Iterable[tuple[str, nn.Parameter]],
) -> None:
    """Loads state and hyperparameters. Replicas of a stage share their names."""
    kind = type(optimizer).__name__
    if record.get("kind") != kind:
        raise ConfigError(f"{reader.path} contains the state of {record.get('kind', 'no optimizer')}, not of {kind}")
    groups = record["groups"]
    if len(groups) != len(optimizer.param_groups):
        raise ConfigError(
            f"{reader.path} has {len(groups)} parameter groups, this optimizer {len(optimizer.param_groups)}"
        )
    for group, saved in zip(optimizer.param_groups, groups, strict=True):
        for name, value in saved.items():
            _set_hyperparameter(group, name, value)
    names = _state_names(reader.names())
    placed = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    numbers = record.get("numbers", {})
    for name, parameter in parameters:
        group = placed.get(id(parameter), {})
        state = {
            _LOADED_AS.get(key, key): _placed(reader.read(f"{name}.{key}"), parameter, group)
            for key in names.get(name, ())
        }
        optimizer.state[parameter] = {**state, **numbers.get(name, {})}


def _placed(value: Tensor, parameter: nn.Parameter, group: Mapping[str, Any]) -> Tensor:
    """Torch keeps step counts on the CPU, except for fused kernels."""
    beside = value.dim() > 0 or group.get("fused") or group.get("capturable")
    return value.to(parameter.device) if beside else value


def _set_hyperparameter(group: dict[str, Any], name: str, value: Any) -> None:
    now = group.get(name)
    if isinstance(now, Tensor):
        now.fill_(value)
    else:
        group[name] = tuple(value) if isinstance(now, tuple) else value


def _state_names(tensors: Iterable[str]) -> dict[str, list[str]]:
    """Returns the state keys of each parameter: a tensor `NAME.KEY` is state if `NAME` is a tensor too."""
    known = set(tensors)
    found: dict[str, list[str]] = {}
    for tensor in known:
        name = tensor.rpartition(".")[0]
        while name and name not in known:  # A key may have dots
            name = name.rpartition(".")[0]
        if name:
            found.setdefault(name, []).append(tensor[len(name) + 1 :])
    return found


def as_json(record: Mapping[str, Any], what: str) -> str:
    """Bytes that are not UTF-8 become U+FFFD. Raises ConfigError for values that JSON cannot represent."""
    try:
        return re.sub("[\ud800-\udfff]", "\ufffd", json.dumps(record, allow_nan=False, ensure_ascii=False))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{what}: {error}; give numbers, strings, lists and dicts") from None


_ITEMS, _TUPLE, _NUMBER = "chimerapipe.items", "chimerapipe.tuple", "chimerapipe.number"
_INTEGERS = range(-(1 << 63), 1 << 63)  # In files


def portable(value: Any) -> Any:
    """Returns a JSON value from which from_portable() makes an equal one: JSON has no tuples, no keys but texts, and no
    infinite or long numbers."""
    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and value.keys() not in ({_ITEMS}, {_TUPLE}, {_NUMBER}):
            return {key: portable(each) for key, each in value.items()}
        return {_ITEMS: [[portable(key), portable(each)] for key, each in value.items()]}
    if isinstance(value, tuple):
        return {_TUPLE: [portable(each) for each in value]}
    if isinstance(value, list):
        return [portable(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else {_NUMBER: repr(value)}
    return {_NUMBER: repr(value)} if isinstance(value, int) and value not in _INTEGERS else value


def from_portable(value: Any) -> Any:
    if isinstance(value, list):
        return [from_portable(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_ITEMS}:
        return {from_portable(key): from_portable(each) for key, each in value[_ITEMS]}
    if value.keys() == {_TUPLE}:
        return tuple(from_portable(each) for each in value[_TUPLE])
    if value.keys() == {_NUMBER}:
        text = str(value[_NUMBER])
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    return {key: from_portable(each) for key, each in value.items()}


class Checkpoints:
    """Saves, loads and gathers the state of all processes together."""

    def __init__(
        self, processes: Processes, shape: Shape, layers: Layers, run: Run, agreement: Agreement,
        generators: OpGenerators, layout: Mapping[str, Any],
    ) -> None:
        """`layout`: for the manifest."""
        self._processes, self._shape, self._layers, self._run = processes, shape, layers, run
        self._agreement, self._generators, self._layout = agreement, generators, layout
        self._saver = Saver(processes)
        self.last: Any = None
        """The Step before."""

    def together(self, call: str, check: Callable[[], None] = lambda: None, **arguments: str) -> None:
        """Raises on all ranks unless all make this call with these arguments, and the check passes."""
        self._run.require_usable()
        self._agreement.on_call(call, **arguments)
        self._processes.all_or_none(check)

    def gather(self) -> None:
        if self._shape.world == 1:
            return
        self.together("gather", self._layers.freshness.require)
        for stage, (first, end) in enumerate(self._shape.plan.stage_layers):
            for layer in self._layers.given[first:end]:
                if isinstance(layer, nn.Module):
                    owner = int(self._shape.plan.owner(stage))
                    for value in map(local_of, [*layer.parameters(), *layer.buffers()]):
                        moved = value.detach().cpu().contiguous()  # Shares memory if it can
                        self._processes.send_from(owner, as_bytes(moved))
                        value.detach().copy_(moved)
                    for module in modules_with_extra_state(layer):
                        state = self._processes.told(module.get_extra_state() if self._shape.rank == owner else None)
                        if self._shape.rank != owner:
                            module.set_extra_state(state[owner])
        self._layers.freshness.note()

    def save(self, folder: Any, optimizer: Any, extra: Mapping[str, Any] | None, keep: int, wait: bool) -> str | Saving:
        self._require_whole("save_checkpoint")
        path, step, together = os.fspath(folder), int(self._run.steps), self._processes
        saved_as = os.path.join(path, f"step-{step:08}")
        call, kind = "save_checkpoint" + ("" if wait else " with wait=False"), type(optimizer).__name__
        self.together(call, self._layers.freshness.require, folder=os.path.abspath(path), optimizer=kind)
        self._saver.await_last()
        together.all_or_none(lambda: together.claim(saved_as))
        own = [layer for layer in self._layers.every if layer.own]
        weights, described = together.all_or_none(lambda: as_stored(self._values(own)))
        written = {f"{n.index}.{name}" for n in own for name, _ in n.module.named_parameters()}
        trained = [(name, value) for name, value in self._layers.updated if name in written]
        state = together.all_or_none(lambda: optimizer_part(optimizer, trained))
        tensors, of_state = together.all_or_none(lambda: as_stored(state.tensors))
        random = as_text(states_of_generators(self._layers.device))
        told = together.told((state.numbers, {**described, **of_state}, random))
        record = {
            **self._record(step),
            "optimizer": portable({**state.record, "numbers": {k: v for own, _, _ in told for k, v in own.items()}}),
            "extra": portable(extra or {}),
            "stored_as_bytes": {k: v for _, own, _ in told for k, v in own.items()},
            "random": [own for _, _, own in told],
            "seed": self._generators.own_seed(),
        }
        run = together.all_or_none(lambda: as_json(record, "save_checkpoint"))
        parts = Parts(path, step, self._shape.rank, self._shape.world, run, weights, tensors, keep)
        if wait:
            parts.write(together)
            return saved_as
        return self._saver.start(saved_as, step, parts.copied().write)

    def load(self, path: Any, optimizer: torch.optim.Optimizer | None) -> LoadedCheckpoint:
        self._require_whole("load_checkpoint")

        def find() -> tuple[str, list[str]] | None:
            if self._shape.rank > 0:
                return None
            reader = _training.OpenCheckpoint(os.fspath(path), True)
            return reader.path, reader.refused

        self.together("load_checkpoint", optimizer=type(optimizer).__name__)
        good, refused = self._processes.told(self._processes.all_or_none(find))[0]
        if refused and self._shape.rank == 0:
            warnings.warn(f"load_checkpoint: refused {'; '.join(refused)}; uses {good} instead", stacklevel=3)
        reader = Reader(_training.OpenCheckpoint(good, False))
        self._processes.all_or_none(lambda: self._restore(reader, optimizer))
        self._run.steps = reader.step
        random = reader.run.get("random", [])
        if len(random) == self._shape.world:
            restore_generators(self._layers.device, from_text(random[self._shape.rank]))
        if "seed" in reader.run:
            self._generators.load_seed(int(reader.run["seed"]))
        return LoadedCheckpoint(reader.path, reader.step, from_portable(reader.run.get("extra", {})), list(refused))

    def _require_whole(self, call: str) -> None:
        if self._layers.sharded:
            raise ConfigError(
                f"{call}: layers have DTensors, of which each rank holds a part; use torch.distributed.checkpoint with "
                "state_dict() and optimizer_state_dict()"
            )

    def _restore(self, reader: Reader, optimizer: torch.optim.Optimizer | None) -> None:
        layers = reader.run.get("model", {}).get("layers")
        if layers != len(self._layers.given):
            raise ConfigError(f"{reader.path} has {layers} layers, this pipeline {len(self._layers.given)}")
        for layer in self._layers.every:
            layer.module.load_state_dict(reader.values_like(layer.module.state_dict(), f"{layer.index}."))
        if optimizer is not None:
            record = from_portable(reader.run["optimizer"])
            trained = [(name, parameter) for name, parameter in self._layers.updated if parameter.requires_grad]
            restore_optimizer(optimizer, record, reader, trained)

    @staticmethod
    def _values(layers: Sequence[HeldLayer]) -> list[tuple[str, Any]]:
        return [(f"{n.index}.{name}", value) for n in layers for name, value in n.module.state_dict().items()]

    def _record(self, step: int) -> dict[str, Any]:
        last = {} if self.last is None else {"loss": self.last.loss, "grad_norm": self.last.gradient_norm}
        return {
            "model": {"layers": len(self._layers.given)},
            "layout": {**self._layout, "transport": "threads" if self._shape.world == 1 else "processes"},
            "versions": {"torch": str(torch.__version__)},
            "progress": {"step": step, "samples": step * int(self._shape.plan.mini_batch), **last},
        }
