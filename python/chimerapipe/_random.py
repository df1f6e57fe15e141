"""Random generators that layers may use: those of torch, Python's `random` and numpy.

Torch's generators belong to the process. Ranks would draw from them in the order of their work, which depends on the
schedule, so a layer that draws finds states of its own in each op (OpGenerators).
"""

from __future__ import annotations

import base64
import contextlib
import contextvars
import inspect
import json
import pickle
import random
import sys
import threading
import types
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from . import _training

State = Any
States = dict[str, State]

_SEEDS = (1 << 62) - 1
_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True)
class _Source:
    """A generator of the process."""

    get: Callable[[], State]
    set: Callable[[State], object]
    seed: Callable[[int], object]


def _numpy_state(numpy: Any) -> State:
    kind, keys, *rest = numpy.random.get_state()
    return (kind, keys.tobytes(), *rest)


def _set_numpy(numpy: Any, state: State) -> None:
    kind, keys, *rest = state
    numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32), *rest))


def _sources(device: torch.device) -> dict[str, _Source]:
    own = torch.default_generator
    found = {
        "torch": _Source(own.get_state, own.set_state, own.manual_seed),
        "random": _Source(random.getstate, random.setstate, random.seed),
    }
    if device.type == "cuda":
        found["cuda"] = _Source(
            lambda: torch.cuda.get_rng_state(device), lambda state: torch.cuda.set_rng_state(state, device),
            lambda seed: torch.cuda.default_generators[device.index or 0].manual_seed(seed),
        )
    if numpy := sys.modules.get("numpy"):
        found["numpy"] = _Source(
            lambda: _numpy_state(numpy), lambda state: _set_numpy(numpy, state),
            lambda seed: numpy.random.seed(seed % (1 << 32)),
        )
    return found


def states(device: torch.device, names: Iterable[str] | None = None) -> States:
    """Returns the states of the process's generators, of those with `names` if given. Takes about 30 us."""
    known = _sources(device)
    return {name: known[name].get() for name in (known if names is None else names)}


def restore(device: torch.device, saved: States) -> None:
    known = _sources(device)
    for name, state in saved.items():
        if name in known:
            known[name].set(state)


def changed(before: States, after: States) -> list[str]:
    """Returns the names of generators with another state than before."""
    return [name for name, state in before.items() if not _equal(state, after[name])]


def _equal(one: State, other: State) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


@contextlib.contextmanager
def untouched_generators(device: torch.device) -> Iterator[None]:
    saved = states(device)
    try:
        yield
    finally:
        restore(device, saved)


def own_generators(module: nn.Module) -> dict[str, Any]:
    """Returns the generators that the module or its parts may draw from, by name: attributes, items of attributes, and
    variables of their functions."""
    found: dict[str, Any] = {}
    for prefix, part in module.named_modules():
        functions = [type(part).forward, *vars(part).values()]
        for name, value in {**_items(vars(part)), **_variables(functions)}.items():
            if own_state(value):
                found[f"{prefix}.{name}" if prefix else name] = value
    return found


def states_of(generators: Mapping[str, Any]) -> States:
    return {name: states[0] for name, each in generators.items() if (states := own_state(each))}


def own_state(value: Any) -> tuple[State, Callable[[State], object]] | None:
    """Returns the state of a generator, and the function that sets it; None for other values."""
    if isinstance(value, torch.Generator):
        return value.get_state(), value.set_state
    if isinstance(value, random.Random):
        return value.getstate(), value.setstate
    if not type(value).__module__.startswith("numpy.random"):
        return None
    bits = getattr(value, "bit_generator", None) or getattr(value, "_bit_generator", value)
    if not hasattr(bits, "random_raw"):
        return None
    return pickle.dumps(bits.state), lambda state: setattr(bits, "state", pickle.loads(state))


def _items(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values by name, and items of lists, tuples and dicts."""
    found = dict(values)
    for name, value in values.items():
        if name.startswith("_"):  # Parameters, modules and hooks of torch
            continue
        if isinstance(value, dict):
            found |= {f"{name}[{key!r}]": each for key, each in value.items()}
        elif isinstance(value, list | tuple):
            found |= {f"{name}[{index}]": each for index, each in enumerate(value)}
    return found


def _variables(functions: Iterable[Any]) -> dict[str, Any]:
    """Returns global and enclosed variables that the functions name."""
    found: dict[str, Any] = {}
    for function in functions:
        if isinstance(function, types.FunctionType):
            with contextlib.suppress(ValueError):  # A variable without a value yet
                variables = inspect.getclosurevars(function)
                found |= {**variables.globals, **variables.nonlocals}
    return found


class OpGenerators:
    """States of the process's generators in layers and losses that draw: functions of seed, step, first sample of the
    micro-batch, and layer. All schedules, threads and processes draw alike, and so does a second forward."""

    def __init__(self, device: torch.device, layers: Sequence[Any]) -> None:
        """`layers`: of the pipeline; those that are modules may share generators of their own."""
        self._device, self._layers = device, layers
        self._holders: dict[int, set[int]] = {}  # Layers that share a generator that one has drawn from, by its id
        self._sources: dict[str, _Source] = {}
        self._late: dict[int, list[tuple[_Source, State]]] = {}  # By thread
        self._loaded: tuple[int, int] | None = None  # The caller's seed at a load, and the loaded one
        self.seed = 0
        """Equal on all ranks."""

    def note_own(self, layer: int, drawn: Mapping[str, Any]) -> None:
        """Warns once if a layer has drawn from a generator that other layers have too."""
        has_warned = any(len(holders) > 1 for holders in self._holders.values())
        for name, generator in drawn.items():
            modules = [(i, each) for i, each in enumerate(self._layers) if isinstance(each, nn.Module)]
            known = {i for i, each in modules if any(own is generator for own in own_generators(each).values())}
            holders = self._holders.setdefault(id(generator), known)
            holders.add(layer)
            if len(holders) > 1 and not has_warned:
                has_warned = True
                warnings.warn(
                    f"layers {', '.join(map(str, sorted(holders)))} draw from one generator, '{name}', in the order of "
                    "the schedule, so other schedules give other results; draw from torch's generator, or give each "
                    "layer its own",
                    stacklevel=2,
                )

    def own_seed(self) -> int:
        """Returns the seed that the caller gave to `torch.manual_seed`, or the one of a loaded checkpoint after it."""
        given = torch.initial_seed() & _SEEDS
        return self._loaded[1] if self._loaded is not None and self._loaded[0] == given else given

    def load_seed(self, seed: int) -> None:
        """Takes over the seed of a checkpoint, until the caller gives another."""
        self._loaded = torch.initial_seed() & _SEEDS, seed

    def run(self, names: set[str], layer: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the function's result in an op, in which the generators with `names` have the states of the layer.
        One thread at a time, because torch has one generator for all threads."""
        before = self._begin(names, layer)
        if "torch" in names or self._device.type in names:
            _training.end_watch()
        try:
            return function(*arguments)
        finally:
            self._end(before)

    def begin_late(self, draws: set[str], layer: int) -> None:
        """Does the same for torch's generators at a draw that the first forwards, which found `draws`, did not make."""
        self._late[threading.get_ident()] = self._begin({"torch", self._device.type} - draws, layer)
        draws.update({"torch", self._device.type} & self._sources.keys())

    def end_late(self) -> None:
        if before := self._late.pop(threading.get_ident(), None):
            self._end(before)

    def _begin(self, names: set[str], layer: int) -> list[tuple[_Source, State]]:
        if not self._sources:
            self._sources = _sources(self._device)
        sources = [self._sources[name] for name in names if name in self._sources]
        bits = _training.random_bits_in_op(self.seed, layer) & _SEEDS
        _ONE_AT_A_TIME.acquire()
        before = [(source, source.get()) for source in sources]
        for source in sources:
            source.seed(bits)
        return before

    def _end(self, before: list[tuple[_Source, State]]) -> None:
        for source, state in before:
            source.set(state)
        _ONE_AT_A_TIME.release()


@contextlib.contextmanager
def saved_states_in_turn() -> Iterator[None]:
    """Scope in which activation checkpointing by torch works in layers: what saves torch's state gets that of the op,
    and forwards that run again in a backward wait for layers that draw."""
    get, fork = torch.get_rng_state, torch.random.fork_rng

    def noted() -> Tensor:
        _training.note_draw()
        return get()

    @contextlib.contextmanager
    def in_turn(*arguments: Any, **named: Any) -> Iterator[None]:
        with _ONE_AT_A_TIME, fork(*arguments, **named):
            yield

    torch.get_rng_state, torch.random.fork_rng = noted, in_turn
    try:
        yield
    finally:
        torch.get_rng_state, torch.random.fork_rng = get, fork


class RankContext:
    """The caller's context variables on a rank thread."""

    def __init__(self, rank: int = 0, users: dict[int, RankContext] | None = None) -> None:
        """`users`: contexts by thread, of all ranks. A threading.local would lose its values, because Python knows a
        rank's thread only during a call. None if ranks are no threads."""
        self._rank, self._users = rank, users
        self._context: contextvars.Context | None = None

    def take_over(self) -> None:
        """Makes run() see the caller's context variables. Rank 0 works on the caller's thread and has them already."""
        context = contextvars.copy_context() if self._rank > 0 else None
        self._context = context or None

    @property
    def has_variables(self) -> bool:
        return self._context is not None

    @property
    def is_of_thread(self) -> bool:
        return self._users is not None

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns the function's result, called on the rank's thread."""
        return function(*arguments) if self._context is None else self._context.run(function, *arguments)

    def use_on_this_thread(self) -> None:
        """Notes that this thread works for the rank."""
        if self._users is not None:
            self._users[threading.get_ident()] = self


def as_text(saved: States) -> str:
    """Returns states as one text of about 10 kB."""
    values = json.dumps({name: _in_json(state) for name, state in saved.items()})
    return base64.b85encode(zlib.compress(values.encode())).decode()


def from_text(text: str) -> States:
    values = json.loads(zlib.decompress(base64.b85decode(text)))
    return {name: _from_json(value) for name, value in values.items()}


def _in_json(state: State) -> Any:
    if isinstance(state, Tensor):
        return {"tensor": base64.b64encode(bytes(state.tolist())).decode()}
    if isinstance(state, bytes):
        return {"bytes": base64.b64encode(state).decode()}
    return [_in_json(each) for each in state] if isinstance(state, tuple) else state


def _from_json(value: Any) -> State:
    if isinstance(value, dict):
        data = base64.b64decode(str(value.get("tensor", value.get("bytes"))))
        return torch.frombuffer(bytearray(data), dtype=torch.uint8) if "tensor" in value else data
    return tuple(map(_from_json, value)) if isinstance(value, list) else value
