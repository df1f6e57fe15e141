"""Layers of a pipeline, as ranks call them."""

import contextlib
import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from ._given_layers import are_equal, in_words
from ._messages import Layout, flattened, is_plain, mapped, tensors_of
from ._modules import SavedTensor, unchanged
from ._placed import Meshes, is_distributed, settled
from ._random import OpGenerators, RankContext, changed, own_generators, restore, states, states_of
from ._step_data import StepData
from ._training import ConfigError


@contextlib.contextmanager
def noting_forward_mode(uses: list[bool]) -> Iterator[None]:
    """Adds to `uses` if the scope enters forward-mode differentiation, whose level torch has once per process."""
    enter = forward_ad.enter_dual_level

    def noting() -> int:
        uses.append(True)
        return int(enter())

    forward_ad.enter_dual_level = noting
    try:
        yield
    finally:
        forward_ad.enter_dual_level = enter


class Autocast:
    """The caller's autocast mode, which torch keeps per thread, for rank threads."""

    def __init__(self, device: torch.device) -> None:
        self._type = device.type
        self._dtype: torch.dtype | None = None

    def take_over(self) -> None:
        self._dtype = torch.get_autocast_dtype(self._type) if torch.is_autocast_enabled(self._type) else None

    def in_words(self) -> str:
        return str(self._dtype)

    @property
    def is_on(self) -> bool:
        return self._dtype is not None

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        if self._dtype is None:
            return function(*arguments)
        with torch.autocast(self._type, dtype=self._dtype):
            return function(*arguments)


class Boundaries:
    """Layouts of messages by the stage that sends them. The first forwards find them, and a store tells other
    processes. None: the stage sends its output as it is."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._known: dict[int, Layout | None] = {}

    def announce(self, stage: int, layout: Layout | None) -> None:
        self._known[stage] = layout
        if self._store is not None:
            self._store.set(str(stage), pickle.dumps(layout))

    def after(self, stage: int) -> Layout | None:
        if stage not in self._known and self._store is not None:
            self._known[stage] = pickle.loads(self._store.get(str(stage)))
        return self._known[stage]


_VALUE = "chimerapipe_value"  # Attribute of a tensor that stands for a value


def carrier_of(value: Any) -> Tensor:
    """Returns a tensor that the executor can pass to the next layer or to the loss of this stage."""
    if type(value) is Tensor or (isinstance(value, Tensor) and not is_distributed(value)):
        return value
    carrier = torch.empty(0, device="cpu")
    setattr(carrier, _VALUE, value)
    return carrier


def value_of(carrier: Tensor) -> Any:
    return getattr(carrier, _VALUE, carrier)


@dataclass(frozen=True)
class Use:
    """How a rank uses a layer."""

    is_copied: bool
    """Other ranks have replicas of it."""
    is_recomputed: bool
    is_owner: bool
    """Its values are those that the replicas start with."""
    shares_buffers: bool
    """With another stage."""
    shares_process: bool
    """With layers of other ranks."""

    @property
    def repeats(self) -> bool:
        return self.is_copied or self.is_recomputed


class Probe:
    """Runs the first forwards of a layer."""

    def __init__(
        self, name: str, module: nn.Module, use: Use, device: torch.device, draws: set[str],
        note_own: Callable[[dict[str, Any]], None],
    ) -> None:
        """`name`: for messages. `draws`: gets the names of the process's generators that the layer draws from.
        `note_own`: called with its own generators that it draws from."""
        self._name, self._module, self._use, self._device, self._draws = name, module, use, device, draws
        self._note_own = note_own

    def forward(self, value: Any) -> Any:
        """Runs a forward and leaves the layer as before. A layer that replicas or a recomputation repeat runs twice,
        with the same random numbers, and both results must be equal: this costs one forward, once."""
        again = mapped(Tensor.clone, value) if self._use.repeats else None
        with unchanged(self._module):
            before, generators = states(self._device), own_generators(self._module)
            before_own = states_of(generators)
            buffers = {name: (id(buffer), SavedTensor(buffer)) for name, buffer in self._module.named_buffers()}
            parameters = [(name, each, each._version) for name, each in self._module.named_parameters()]
            uses_forward_mode: list[bool] = []
            with noting_forward_mode(uses_forward_mode):
                output = self._first_call(value)
            self._draws |= {*changed(before, states(self._device))}
            own = changed(before_own, states_of(generators))
            self._require_kept_buffers(buffers)
            if uses_forward_mode and self._use.shares_process:
                raise ConfigError(
                    f"{self._name} uses forward-mode differentiation, which torch has once per process, so rank "
                    "threads would disturb each other; start a process per rank (torchrun), or use reverse mode"
                )
            if self._use.is_copied:
                self._require_kept(parameters)
            if self._use.repeats:
                self._require_no_own_draws(own)
                restore(self._device, before)
                self._require_equal(output, self._module(again))
            self._note_own({name: generators[name] for name in own})
            return output

    def _first_call(self, value: Any) -> Any:
        try:
            return self._module(value)
        except Exception as error:
            names = _required_arguments(self._module.forward)
            if not isinstance(error, TypeError) or len(names) < 2:
                shapes = [list(each.shape) for each in tensors_of(value)]
                if hasattr(error, "add_note"):  # Python 3.11
                    error.add_note(f"{self._name} failed on its first value, with tensors {shapes}")
                raise
            raise ConfigError(
                f"{self._name}: forward takes {len(names)} values ({', '.join(names)}), but a layer gets one value: "
                "the inputs of step, or what the layer before returns. Unpack a tuple in forward, or wrap the layer: "
                f"cp.KeyedLayer(layer, takes={names}, gives=...), with a dict as inputs"
            ) from error

    def _require_kept_buffers(self, before: dict[str, tuple[int, SavedTensor]]) -> None:
        if not self._use.repeats and not self._use.shares_buffers:
            return
        for name, buffer in self._module.named_buffers():
            same, saved = before.get(name, (0, None))
            if saved is None or same != id(buffer) or saved.is_changed():
                if not self._use.repeats:
                    raise ConfigError(f"{self._name} writes to its buffer '{name}', which it shares with another stage")
                raise ConfigError(
                    f"{self._name} writes to its buffer '{name}', and replicas or a recomputed forward would write "
                    "other values; use a module without buffers (GroupNorm, LayerNorm), or another schedule"
                )

    def _require_kept(self, versions: list[tuple[str, nn.Parameter, int]]) -> None:
        for name, parameter, version in versions:
            if parameter._version != version:
                raise ConfigError(
                    f"{self._name} writes to its parameter '{name}' in forward, as Embedding(max_norm=) does, and "
                    "replicas would write other values; leave that out, or choose a schedule without replicas"
                )

    def _require_no_own_draws(self, drawn: list[str]) -> None:
        if drawn:
            raise ConfigError(
                f"{self._name} draws random numbers from its generator '{drawn[0]}', which differ in replicas or a "
                "recomputed forward; draw from torch's generator, or choose another schedule"
            )

    def _require_equal(self, output: Any, second: Any) -> None:
        """GPU kernels may add in any order, so only their results may differ slightly."""
        pairs = zip(flattened(output)[0], flattened(second)[0], strict=True)
        if not all(are_equal(one, other) for one, other in pairs):
            raise ConfigError(
                f"{self._name} gives another result in a second forward of the same input: it draws random numbers of "
                "its own, or depends on earlier calls. Replicas or a recomputed forward would differ; choose another "
                "schedule"
            )


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    """Returns the names of positional arguments without a default."""
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in wanted if each.kind in kinds and each.default is each.empty]


@dataclass(frozen=True)
class Surroundings:
    """What all layers of a pipeline share."""

    device: torch.device
    autocast: Autocast
    data: StepData
    generators: OpGenerators


class HeldLayer:
    def __init__(
        self, index: int, stage: int, module: nn.Module, use: Use, shared: Surroundings, context: RankContext
    ) -> None:
        self.index, self.stage, self.module, self.use = index, stage, module, use
        self.of_stage = [self]  # All layers of the stage
        self.sends = False  # To another stage
        self.gives_loss = False  # It is the last layer
        self.boundaries = Boundaries(None)
        self.draws: set[str] = set()  # Names of generators that the first forwards drew from
        self.context = context
        self.meshes = Meshes()  # Of this rank
        self._shared = shared
        self._has_scope = False  # A call needs more than the module
        self._probe: Probe | None = None  # During the first forwards
        self._probed = torch.empty(0, device="cpu")  # Message to the first layer of a stage

    @property
    def own(self) -> bool:
        """Whether this rank is the owner among the replicas."""
        return self.use.is_owner

    def __call__(self, tensor: Tensor) -> Tensor:
        value = self._received(tensor) if self is self.of_stage[0] else value_of(tensor)
        output = self._call_in_scope(value) if self._has_scope else self._shared.autocast.call(self.module, value)
        if type(output) is not Tensor:
            output = settled(output)
        return self._message(output) if self.sends else carrier_of(output)

    def prepare(self) -> None:
        """Decides for a step which calls need more than the module."""
        context = self.context
        needs_context = context.is_of_thread and (self.gives_loss or context.has_variables)
        self._has_scope = self._probe is not None or bool(self.draws) or needs_context

    def _call_in_scope(self, value: Any) -> Any:
        if self.gives_loss:
            self.context.use_on_this_thread()
        run, call = self.context.run, self._shared.autocast.call
        if self._probe is not None:
            return run(call, self._probe.forward, value)
        if not self.draws:
            return run(call, self.module, value)
        return self._shared.generators.run(self.draws, self.index, run, call, self.module, value)

    def begin_draws(self) -> None:
        """Called before torch's first draw in a call."""
        if self._probe is None and self.draws.isdisjoint(("torch", self._shared.device.type)):
            self._shared.generators.begin_late(self.draws, self.index)
            self._has_scope = True

    def end_draws(self) -> None:
        """Called after a call that drew."""
        self._shared.generators.end_late()

    def _received(self, message: Tensor) -> Any:
        if self._probe is not None:
            self._probed = message
        if self.stage == 0:
            return self._shared.data.inputs_of(message)
        layout = self.boundaries.after(self.stage - 1)
        return message if layout is None else layout.unpack(message, self.meshes)

    def _message(self, output: Any) -> Tensor:
        is_probing = self._probe is not None
        again = self._output_with_graph() if is_probing and not is_plain(output) else None
        try:
            if is_probing:
                self.boundaries.announce(self.stage, None if is_plain(output) else Layout.of(again))
            layout = self.boundaries.after(self.stage)
            if layout is None and not is_plain(output):
                raise TypeError("at first it was a tensor of floating-point numbers")
            message: Tensor = output if layout is None else layout.pack(output)
            return message
        except TypeError as error:
            words = in_words(self.index, self.module)
            raise TypeError(f"{words} returns a {type(output).__name__}: {error}") from None

    def _output_with_graph(self) -> Any:
        """Returns the stage's output for its first message, to find the tensors with gradients."""
        with torch.enable_grad(), contextlib.ExitStack() as kept:
            first = self.of_stage[0]
            value = first._received(first._probed.detach().requires_grad_(self.stage > 0))
            for layer in self.of_stage:
                kept.enter_context(unchanged(layer.module))
                value = self._shared.autocast.call(layer.module, value)
            return value

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Checks calls for effects that replicas would not repeat. Clears gradients; calls keep the layer unchanged."""
        for parameter in self.module.parameters():
            parameter.grad = None
        self.draws = set()
        note_own = functools.partial(self._shared.generators.note_own, self.index)
        name = in_words(self.index, self.module)
        self._probe = Probe(name, self.module, self.use, self._shared.device, self.draws, note_own)
        self.prepare()
        try:
            yield
        finally:
            self._probe = None
