"""Layers of a pipeline, as ranks call them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import operator
import pickle
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from . import _training
from ._agreement import in_short, is_lazy
from ._messages import Layout, flattened, is_plain, mapped
from ._modes import noting_forward_mode
from ._placed import Meshes, is_distributed, local_of, placed_as
from ._random import RankGenerators, States, changed, states, states_of_own
from ._step_data import StepData

LayerOrFactory: TypeAlias = nn.Module | Callable[[], nn.Module]
Recompute: TypeAlias = bool | str | Iterable[int] | Callable[[int], bool]
ConfigError = _training.ConfigError


class Autocast:
    """The caller's autocast mode, which torch keeps per thread, for rank threads."""

    def __init__(self, device: torch.device) -> None:
        self._type = device.type
        self._dtype: torch.dtype | None = None

    def take_over(self) -> None:
        """Saves the caller's mode."""
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
    """Returns the value of carrier_of()."""
    return getattr(carrier, _VALUE, carrier)


class HeldLayer:

    def __init__(
        self,
        index: int,
        stage: int,
        module: nn.Module,
        copied: bool,
        recomputed: bool,
        own: bool,
        autocast: Autocast,
        device: torch.device,
        data: StepData,
    ) -> None:
        self.index = index
        self.stage = stage
        self.module = module
        self._device = device
        self.copied = copied  # Replicated
        self.repeats = copied or recomputed
        self.shares_buffers = False  # With another stage
        self.own = own  # This rank is the owner among its replicas
        self.of_stage = [self]  # All layers of the stage
        self.sends = False  # To another stage
        self.gives_loss = False  # It is the last layer
        self._has_scope = False  # A call needs more than the module
        self.boundaries = Boundaries(None)
        self._autocast = autocast
        self._data = data
        self._probing = False
        self._probed = torch.empty(0, device="cpu")  # Message to the first layer of a stage
        self.draws: set[str] = set()  # Names of generators that the first forward drew from
        self.generators: RankGenerators | None = None  # Of rank threads
        self.shares_process = False  # With layers of other ranks
        self.meshes = Meshes()  # Of this rank

    def __call__(self, tensor: Tensor) -> Tensor:
        value = self._received(tensor) if self is self.of_stage[0] else value_of(tensor)
        output = self._call_in_scope(value) if self._has_scope else self._autocast.call(self.module, value)
        return self._message(output) if self.sends else carrier_of(output)

    def prepare(self) -> None:
        """Decides for a step which calls need more than the module."""
        generators = self.generators
        self._has_scope = self._probing or (
            generators is not None and (self.gives_loss or bool(self.draws) or generators.has_context)
        )

    def _call_in_scope(self, value: Any) -> Any:
        call = self._probe if self._probing else self.module
        if self.generators is None:
            return self._autocast.call(call, value)
        if self.gives_loss:
            self.generators.use_on_this_thread()
        with self.generators.drawing() if self.draws and not self._probing else contextlib.nullcontext():
            return self.generators.run(self._autocast.call, call, value)

    def _received(self, message: Tensor) -> Any:
        if self._probing:
            self._probed = message
        if self.stage == 0:
            return self._data.inputs_of(message)
        layout = self.boundaries.after(self.stage - 1)
        return message if layout is None else layout.unpack(message, self.meshes)

    def _message(self, output: Any) -> Tensor:
        again = self._output_with_graph() if self._probing and not is_plain(output) else None
        try:
            if self._probing:
                self.boundaries.announce(self.stage, None if is_plain(output) else Layout.of(again))
            layout = self.boundaries.after(self.stage)
            if layout is None and not is_plain(output):
                raise TypeError("at first it was a tensor of floating-point numbers")
            message: Tensor = output if layout is None else layout.pack(output)
            return message
        except TypeError as error:
            raise TypeError(f"{self._name()} returns a {type(output).__name__}: {error}") from None

    def _output_with_graph(self) -> Any:
        """Returns the stage's output for its first message, to find the tensors with gradients."""
        with torch.enable_grad(), contextlib.ExitStack() as kept:
            first = self.of_stage[0]
            value = first._received(first._probed.detach().requires_grad_(self.stage > 0))
            for layer in self.of_stage:
                kept.enter_context(layer.untouched_buffers())
                value = self._autocast.call(layer.module, value)
            return value

    @contextlib.contextmanager
    def untouched_buffers(self) -> Iterator[None]:
        saved = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in saved:
                    buffer.copy_(value)

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """Checks calls for effects that replicas would not repeat. Clears gradients; calls keep buffers unchanged."""
        for parameter in self.module.parameters():
            parameter.grad = None
        self._probing, self.draws = True, set()
        self.prepare()
        try:
            yield
        finally:
            self._probing = False

    def _probe(self, value: Any) -> Any:
        """Runs the first forward. A layer that replicas or a recomputation repeat runs twice, and both results must be
        equal: this costs one forward, once."""
        again = mapped(Tensor.clone, value) if self.repeats else None
        with self.untouched_buffers():
            before, before_own = states(self._device), states_of_own(self.module)
            buffers = {name: (id(buffer), buffer._version) for name, buffer in self.module.named_buffers()}
            parameters = [(name, each, each._version) for name, each in self.module.named_parameters()]
            uses_forward_mode: list[bool] = []
            with noting_forward_mode(uses_forward_mode):
                output = self._first_call(value)
            self.draws = set(changed(before, states(self._device)))
            self._require_kept_buffers(buffers)
            if uses_forward_mode and self.shares_process:
                raise ConfigError(
                    f"{self._name()} uses forward-mode differentiation, which torch has once per process, so rank "
                    "threads would disturb each other; start a process per rank (torchrun), or use reverse mode"
                )
            if self.copied:
                self._require_kept(parameters)
            if self.repeats:
                self._require_no_draws(before_own)
                self._require_equal(output, self.module(again))
            return output

    def _first_call(self, value: Any) -> Any:
        try:
            return self.module(value)
        except TypeError as error:
            names = _required_arguments(self.module.forward)
            if len(names) < 2:
                raise
            raise ConfigError(
                f"{self._name()}: forward takes {len(names)} values ({', '.join(names)}), but a layer gets one value: "
                "the inputs of step, or what the layer before returns. Unpack a tuple in forward, or wrap the layer: "
                f"cp.KeyedLayer(layer, takes={names}, gives=...), with a dict as inputs"
            ) from error

    def _require_kept_buffers(self, versions: dict[str, tuple[int, int]]) -> None:
        if not self.repeats and not self.shares_buffers:
            return
        for name, buffer in self.module.named_buffers():
            if versions.get(name) != (id(buffer), buffer._version):
                if not self.repeats:
                    words = f"writes to its buffer '{name}', which it shares with another stage"
                    raise ConfigError(f"{self._name()} {words}")
                raise ConfigError(
                    f"{self._name()} writes to its buffer '{name}', and replicas or a recomputed forward would write "
                    "other values; use a module without buffers (GroupNorm, LayerNorm), or another schedule"
                )

    def _require_kept(self, versions: list[tuple[str, nn.Parameter, int]]) -> None:
        for name, parameter, version in versions:
            if parameter._version != version:
                raise ConfigError(
                    f"{self._name()} writes to its parameter '{name}' in forward, as Embedding(max_norm=) does, and "
                    "replicas would write other values; leave that out, or choose a schedule without replicas"
                )

    def _require_no_draws(self, before_own: States) -> None:
        places = {"torch": "", "cuda": "", "random": " from Python's random", "numpy": " from numpy"}
        drawn = [places[name] for name in places if name in self.draws]
        drawn += [f" from its generator '{name}'" for name in changed(before_own, states_of_own(self.module))]
        if drawn:
            raise ConfigError(
                f"{self._name()} draws random numbers{drawn[0]}, which differ in replicas or a recomputed forward; set "
                "its dropout to 0, or choose another schedule"
            )

    def _require_equal(self, output: Any, second: Any) -> None:
        """GPU kernels may add in any order, so only their results may differ slightly."""
        pairs = zip(flattened(output)[0], flattened(second)[0], strict=True)
        if not all(are_equal(one, other) for one, other in pairs):
            raise ConfigError(
                f"{self._name()} gives another result in a second forward of the same input: it draws random numbers, "
                "or depends on earlier calls. Replicas or a recomputed forward would differ; choose another schedule"
            )

    def _name(self) -> str:
        return in_words(self.index, self.module)


def _required_arguments(function: Callable[..., Any]) -> list[str]:
    """Returns the names of positional arguments without a default."""
    try:
        wanted = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [each.name for each in wanted if each.kind in kinds and each.default is each.empty]


def are_equal(one: Any, other: Any) -> bool:
    """Compares bits; on a GPU, whose kernels may add in any order, numbers within a hundredth."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return type(one) is type(other) and repr(one) == repr(other)
    one, other = local_of(one), local_of(other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_cuda and (one.is_floating_point() or one.is_complex()):
        size = float(one.abs().nan_to_num(posinf=0).mean()) if one.numel() else 0.0
        return bool(torch.allclose(one, other, rtol=1e-2, atol=1e-2 * size, equal_nan=True))
    return bool(((one == other) | ((one != one) & (other != other))).all())


def in_words(index: int, module: nn.Module) -> str:
    return f"layer {index} ({type(module).__name__})"


def made_layer(layer: LayerOrFactory, index: int) -> nn.Module:
    """Returns the given module, or the result of the function. Raises ConfigError if it cannot be trained."""
    if isinstance(layer, nn.Module):
        for part in layer.modules():
            if type(part).__name__ == "FullyShardedDataParallel":
                raise ConfigError(f"layer {index} is wrapped in {type(part).__name__}; use fully_shard instead")
        return layer
    if not callable(layer):
        raise ConfigError(f"layer {index} is a {type(layer).__name__}; give an nn.Module, or a function that makes one")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(index)  # Equal values in every replica
        try:
            made = layer()
        except TypeError as error:
            name, reason = getattr(layer, "__name__", in_short(layer)), str(error).splitlines()[0]
            raise ConfigError(
                f"layer {index}: {name}() fails: {reason}; give an nn.Module, or a function without arguments that "
                "makes one"
            ) from error
    if not isinstance(made, nn.Module):
        raise ConfigError(f"layer {index}: the factory returned a {type(made).__name__}, not an nn.Module")
    return made


def require_values(index: int, module: nn.Module) -> None:
    """Raises ConfigError for sharded tensors and for tensors without a shape."""
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if is_lazy(value):
            raise ConfigError(
                f"{in_words(index, module)}: '{name}' has no shape yet; call the layer once on a sample before"
            )


def require_trainable(index: int, module: nn.Module) -> None:
    """Raises ConfigError for parameters that no pipeline can train. Warns of sparse gradients."""
    require_values(index, module)
    for name, part in module.named_modules():
        if isinstance(part, nn.Embedding | nn.EmbeddingBag) and part.sparse and part.weight.requires_grad:
            kind = f"{in_words(index, module)}{f', {name}' if name else ''}"
            warnings.warn(f"{kind}: its sparse gradients become dense in a pipeline", stacklevel=2)
    for name, parameter in module.named_parameters():
        dtype = str(parameter.dtype).removeprefix("torch.")
        wrong = "was made under inference_mode" if parameter.is_inference() else f"is {dtype}"
        is_plain = parameter.dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16)
        if parameter.is_inference() or (parameter.requires_grad and not is_plain):
            raise ConfigError(
                f"{in_words(index, module)}: parameter '{name}' {wrong}; a pipeline trains float32, float64, float16 "
                "and bfloat16"
            )


def require_dense_buffers(index: int, module: nn.Module) -> None:
    """Raises ConfigError for sparse buffers, which replicas cannot compare."""
    for name, buffer in module.named_buffers():
        if buffer.layout != torch.strided:
            raise ConfigError(
                f"{in_words(index, module)}: buffer '{name}' is sparse, but its stage has replicas; register "
                "buffer.to_dense(), or choose a schedule without replicas"
            )


def twin_of(parameter: nn.Parameter) -> nn.Parameter:
    """Returns another leaf with the same memory, hooks and attributes."""
    if is_distributed(parameter):
        value = placed_as(parameter, local_of(parameter).detach())
    else:
        value = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
    twin = nn.Parameter(value, parameter.requires_grad)
    share_memory(twin, parameter)
    twin.__dict__.update(parameter.__dict__)
    share_hooks(twin, parameter)
    return twin


def share_hooks(twin: nn.Parameter, parameter: nn.Parameter) -> None:
    """Gives the twin the parameter's own dicts of hooks, which torch makes for the first hook."""
    for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        if getattr(twin, name) is not getattr(parameter, name):
            setattr(twin, name, getattr(parameter, name))


def share_memory(twin: nn.Parameter, parameter: nn.Parameter) -> None:
    local_of(twin).data = local_of(parameter).data


def copied(module: nn.Module, memo: dict[int, Any], own: Container[int], name: str) -> nn.Module:
    """Returns a copy of the module that shares its buffers and the memory of its parameters.

    `memo`: as of copy.deepcopy. `own`: ids of parameters that the copy takes over, instead of twins. Raises ConfigError
    for a module that cannot be copied.
    """
    for parameter in module.parameters():
        if id(parameter) not in memo:
            memo[id(parameter)] = parameter if id(parameter) in own else twin_of(parameter)
    memo.update({id(buffer): buffer for buffer in module.buffers()})
    remedy = "give a function that makes the layer, or start a process per rank (torchrun)"
    return deep_copy(module, memo, f"{name} cannot be copied for another rank thread", remedy)


def deep_copy(module: nn.Module, memo: dict[int, Any], words: str, remedy: str) -> nn.Module:
    """Returns copy.deepcopy of the module. Raises ConfigError with the attribute that cannot be copied."""
    given = dict(memo)  # A failed copy leaves unfinished parts in its memo
    try:
        made: nn.Module = copy.deepcopy(module, memo)
        return made
    except Exception as error:
        part, reason = _first_without_copy(module, given) or (type(module).__name__, str(error) or repr(error))
        if "(graph leaves)" in reason:
            reason = "has tensors computed from others, as prune, weight_norm and ensure_weight_tying of PEFT make"
        raise ConfigError(f"{words}: {part}: {reason.splitlines()[0]}; {remedy}") from error


def _first_without_copy(module: nn.Module, memo: Mapping[int, Any]) -> tuple[str, str] | None:
    """Returns the name of an attribute that copy.deepcopy refuses, and why."""
    for prefix, part in module.named_modules():
        for name, value in vars(part).items():
            if name in ("_modules", "_parameters"):
                continue
            try:
                copy.deepcopy(value, dict(memo))
            except Exception as error:
                return f"attribute '{prefix}.{name}'" if prefix else f"attribute '{name}'", str(error) or repr(error)
    return None


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_FLAGS_OF_HOOKS = ("_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs")


def called_modules(layer: nn.Module) -> Iterator[nn.Module]:
    """Yields the layer's modules, and those that stand-ins of `layers_of` call."""
    for module in layer.modules():
        yield module
        yield from (target for target in vars(module).get("_target", ()) if isinstance(target, nn.Module))


def hooks_of(module: nn.Module) -> list[int]:
    """Returns the ids of the module's hooks."""
    return [key for name in _HOOKS for key in getattr(module, name)]


def follow_hooks(made: nn.Module, module: nn.Module) -> None:
    """Adds the module's later hooks to a copy, and removes those that the module has lost."""
    for name in _HOOKS + _FLAGS_OF_HOOKS:
        own, hooks = getattr(made, name), getattr(module, name)
        for key in own.keys() - hooks.keys():
            del own[key]
        own.update({key: hook for key, hook in hooks.items() if key not in own})
    made._is_full_backward_hook = module._is_full_backward_hook


def recomputed_stages(choice: Recompute, stages: int) -> list[int]:
    """Returns sorted stage numbers. Raises ConfigError for an unknown choice or stage."""
    every = range(stages)
    words = {"full": True, "none": False}
    if isinstance(choice, str) and choice in words:
        choice = words[choice]
    if isinstance(choice, bool):
        return [stage for stage in every if choice]
    if callable(choice):
        return [stage for stage in every if choice(stage)]
    if isinstance(choice, Iterable) and not isinstance(choice, str):
        given = set(choice)
        if given <= set(every):
            return sorted(map(operator.index, given))
    hints = {
        "auto": "; cp.plan(cp.profile(layers, x), ..., memory=...) finds the stages that memory requires",
        "attention": "; only GPT-2, BERT and Llama models of `chimera train` have 'attention'",
    }
    raise ConfigError(
        f"recompute={choice!r}: expected True, False, 'full', 'none', stage numbers from 0 to {stages - 1}, or a "
        f"function of the stage{hints.get(choice, '') if isinstance(choice, str) else ''}"
    )
