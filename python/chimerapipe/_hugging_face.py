"""Models of transformers as lists of layers.

Each layer runs the model's own forward, in which stand-ins replace all modules of other layers. Those of earlier layers
return what the value from the layer before holds, or placeholders if nothing depends on their results; the first block
of a later layer ends the forward. So masks, positions and control flow are the model's own.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from ._messages import as_inputs, mapped, tensors_of
from ._random import untouched_generators
from ._torch_version import require_same_torch

require_same_torch()
from ._distributed import is_sharded  # noqa: E402
from ._modules import deep_copy, eval_mode  # noqa: E402
from ._training import ConfigError  # noqa: E402


def layers_of(model: nn.Module, example: Any = None) -> list[nn.Module]:
    """Returns the layers of a model of transformers, or of a PEFT model around one, for `Pipeline`.

    The first layer runs what precedes the blocks, the last what follows them; each block is a layer. Inputs are those
    of the model: token ids, or a dict or BatchEncoding. The result is the logits; a dict by the model's names if it has
    several, as `start_logits` and `end_logits`, an auxiliary loss, `aux_loss`, or without a head a `pooler_output`.
    Layers share the model's parameters, so after `Pipeline.gather`, `model.save_pretrained` writes the trained values.

    `example`: inputs, for models whose inputs are neither token ids nor images.

    Runs the model and the layers on a few tokens, the layers also in training mode. Raises ConfigError if they differ,
    or the model has no blocks.
    """
    given, name = model, type(model).__name__
    if hasattr(model, "get_base_model"):  # PEFT
        if getattr(model.active_peft_config, "is_prompt_learning", False):
            raise ConfigError(f"layers_of: {name} adds prompts to the inputs; use an adapter of layers, such as LoRA")
        model = model.get_base_model()
    if not all(hasattr(model, part) for part in ("config", "main_input_name", "base_model")):
        raise ConfigError(f"layers_of: expected a model of transformers, not {name}; give other models as a list")
    if any(is_sharded(part) for part in model.modules()):
        raise ConfigError(
            f"layers_of: fully_shard has wrapped parts of {name}, which cannot be cut any more; call layers_of first, "
            "and fully_shard for parts of the model afterwards"
        )
    with eval_mode([model]), torch.no_grad():
        inputs = _as_dict(model.main_input_name, as_inputs(_example_of(model, name) if example is None else example))
        try:
            cut = _cut(model, inputs)
            layers = [TransformersLayer(model, cut, number) for number in range(len(cut.blocks) + 2)]
            _carry_only_what_is_used(layers, cut, inputs)
            _require_equal(model, layers, inputs)
            _require_runs_in_training(model, layers, inputs)
        except Exception as error:
            reason = _known_reason(model) or str(error).partition("\n")[0]
            if not isinstance(error, ConfigError):
                reason += (
                    "; its forward joins values of several layers. Give its parts as a list of layers instead, as in "
                    "docs/bring_your_model.md, 'Several tensors'"
                )
            raise ConfigError(f"layers_of: {name} cannot be cut into layers: {reason}") from error
    for layer in layers:
        layer.user_model = weakref.ref(given)
    return list(layers)


def _example_of(model: Any, name: str) -> dict[str, Tensor]:
    """Returns two short texts, the second padded, or two images."""
    config, device, words = model.config, next(model.parameters()).device, None
    with contextlib.suppress(NotImplementedError):
        words = model.get_input_embeddings()
    if model.main_input_name == "input_ids" and isinstance(words, nn.Module):
        ids = torch.arange(8, device=device).view(2, 4) % words.weight.shape[0]
        inputs = {"input_ids": ids}
        if "attention_mask" in inspect.signature(model.forward).parameters:
            inputs["attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]], device=device)
        if getattr(config, "is_encoder_decoder", False):
            inputs["decoder_input_ids"] = ids[:, 1:]
        return inputs
    if model.main_input_name == "pixel_values" and hasattr(config, "image_size"):
        size = config.image_size if isinstance(config.image_size, list | tuple) else [config.image_size] * 2
        numbers = torch.linspace(-1, 1, 2 * config.num_channels * size[0] * size[1], device=device, dtype=model.dtype)
        return {"pixel_values": numbers.view(2, config.num_channels, *size)}
    raise ConfigError(f"layers_of: {name} takes {model.main_input_name}; give an example: layers_of(model, example)")


def _as_dict(main: str, inputs: Any, keeps_labels: bool = False) -> dict[str, Any]:
    """Returns the arguments of the model's forward. Pipelines get labels as targets."""
    if isinstance(inputs, Tensor):
        return {main: inputs}
    if not isinstance(inputs, Mapping) or not isinstance(inputs.get(main), Tensor):
        raise ConfigError(f"inputs: expected a tensor, or a dict of the model's arguments with the tensor '{main}'")
    return {key: value for key, value in inputs.items() if keeps_labels or key != "labels"}


def _result(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output
    if not isinstance(output, Mapping):
        return output[0]
    named = {name: value for name, value in output.items() if isinstance(value, Tensor)}
    has_logits = any("logits" in name for name in named)
    wanted = ("aux_loss",) if has_logits else ("last_hidden_state", "pooler_output")
    results = {name: value for name, value in named.items() if "logits" in name or name in wanted}
    return results if len(results) > 1 else next(iter(results.values()), output[0])


class ModelLoss:
    """Lets the layers of a model end with the model's own loss, a mean or what its arguments make of it."""

    def __init__(self, layers: list[nn.Module]) -> None:
        """`layers`: of `layers_of`. Their inputs may then contain labels, and the result is a dict of all tensors that
        the model returns."""
        self.arguments: Callable[[Mapping[str, Any]], dict[str, Any]] = lambda inputs: {}
        """Returns further arguments of the model's forward for the inputs of a micro-batch."""
        for layer in layers:
            layer.model_loss = self

    def __deepcopy__(self, memo: Any) -> ModelLoss:
        return self  # Replicas on rank threads follow changes

    def of(self, model: Any, inputs: Mapping[str, Any]) -> dict[str, Tensor]:
        """Runs the rest of the model."""
        output = model(**inputs, **self.arguments(inputs))
        return {name: value for name, value in output.items() if isinstance(value, Tensor)}


@dataclass
class _Unit:
    """A module outside of the blocks that one of their ancestors calls."""

    segments: set[int] = field(default_factory=set)  # Numbers of blocks before its calls
    keeps_shape: bool = True  # Its results have the shapes of its first arguments


@dataclass
class _Cut:
    """Order of the calls in a model."""

    blocks: list[str]  # Names in the order of calls
    results: list[int]  # Number of results of each block; 0: a tensor
    ancestors: set[str]  # Of blocks, and lists of other modules
    units: dict[str, _Unit]
    skeletons: dict[str, nn.Module]  # Copies of units, without memory
    names: dict[int, str]  # Names of units by id

    def has_units_between_blocks(self) -> bool:
        return any(0 < segment < len(self.blocks) for unit in self.units.values() for segment in unit.segments)


def _cut(model: nn.Module, inputs: Mapping[str, Any]) -> _Cut:
    """Runs the model and finds its blocks: the modules of outermost ModuleLists, if each runs once."""
    calls: list[tuple[str, bool, Any, Any]] = []  # Name, whether it ends, first argument, result; tensors as shapes

    def note(name: str, ends: bool) -> Any:
        def hook(module: nn.Module, arguments: Any, named: Any, *result: Any) -> None:
            shapes = [_shape(_first_tensor(arguments, named)), *map(_shape, result)]
            calls.append((name, ends, shapes[0], shapes[-1]))

        return hook

    names = {name: module for name, module in model.named_modules() if name}
    with contextlib.ExitStack() as hooks:
        for name, module in names.items():
            for handle in (
                module.register_forward_pre_hook(note(name, False), with_kwargs=True),
                module.register_forward_hook(note(name, True), with_kwargs=True),
            ):
                hooks.callback(handle.remove)
        model(**inputs)
    begun = [name for name, ends, _, _ in calls if not ends]
    lists = [name for name, module in names.items() if isinstance(module, nn.ModuleList) and len(module)]
    outer = [name for name in lists if not any(name.startswith(f"{other}.") for other in lists)]
    blocks: set[str] = set()
    for name in outer:
        children = [f"{name}.{child}" for child, _ in model.get_submodule(name).named_children()]
        if all(begun.count(child) == 1 for child in children):
            blocks |= set(children)
    if not blocks:
        raise ConfigError("it has no ModuleList of blocks that each run once")
    return _ordered(model, names, calls, blocks)


def _first_tensor(arguments: Any, named: Mapping[str, Any]) -> Any:
    return next((value for value in (*arguments, *named.values()) if isinstance(value, Tensor)), None)


def _shape(value: Any) -> Any:
    """Returns the number of results of a tuple, 0 for other values."""
    return value.shape if isinstance(value, Tensor) else len(value) if isinstance(value, tuple) else 0


def _ordered(model: nn.Module, names: Mapping[str, nn.Module], calls: list[Any], blocks: set[str]) -> _Cut:
    ancestors = {""} | {name for name in names if any(block.startswith(f"{name}.") for block in blocks)}
    units: dict[str, _Unit] = {}
    for name, module in names.items():
        if name.rpartition(".")[0] in ancestors and name not in ancestors | blocks:
            if isinstance(module, nn.ModuleList | nn.ModuleDict):
                ancestors.add(name)
            else:
                units[name] = _Unit()
    order, results, open_block = [], [], ""
    for name, ends, argument, result in calls:
        if name in blocks:
            open_block = "" if ends else name
            if ends:
                results.append(result if isinstance(result, int) else 0)
            else:
                order.append(name)
        elif name in units:
            if open_block:
                raise ConfigError(f"its block {open_block} calls {name}, which is outside of the block")
            units[name].segments.add(len(order))
            units[name].keeps_shape &= not ends or argument == result
    skeletons = {name: _skeleton(names[name], name) for name in units}
    return _Cut(order, results, ancestors, units, skeletons, {id(names[name]): name for name in units})


def _skeleton(module: nn.Module, name: str) -> nn.Module:
    """Returns a copy whose tensors have types and shapes only."""
    memo: dict[int, Any] = {}
    for parameter in module.parameters():
        memo[id(parameter)] = nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
    for buffer in module.buffers():
        memo[id(buffer)] = buffer.to("meta")
    return deep_copy(module, memo, f"its module {name} cannot be copied", "leave that out")


class _Stop(Exception):
    """Ends the model's forward at the end of a layer."""


class _Replay:
    """A forward of the model, of which a layer computes only its own modules."""

    def __init__(self, number: int, blocks: int) -> None:
        self.number, self.blocks = number, blocks
        self.used: set[str] | None = None  # Results of units between blocks that later layers use; None: not known yet
        self.begin({})

    def begin(self, value: Mapping[str, Any]) -> None:
        self.position = 0  # Blocks called so far
        self.hidden: Any = value.get("hidden")  # First argument of the layer's block
        self.rest = value.get("rest", ())  # Other results of the block before
        self.kept = dict(value.get("kept", {}))
        self.captured = {key: list(tensors) for key, tensors in value.get("captured", {}).items()}

    @property
    def own_segment(self) -> int:
        """Number of blocks before the layer's units; -1 for the layer of the last block, which has none."""
        if self.number == self.blocks:
            return -1
        return min(self.number, self.blocks)

    def value(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: result for key, result in self.kept.items() if self.used is None or key in self.used}
        return {"inputs": inputs, "hidden": self.hidden, "rest": self.rest, "kept": kept, "captured": self.captured}


class _StandIn(nn.Module):
    """Stands for a module in a layer's copy of the model. It has the parameters of the layer's own modules only."""

    def __init__(self, replay: _Replay, target: Any, is_own: bool) -> None:
        self.__dict__["_target"] = [target]  # A list: no submodule, as names are those of the model
        mode = target.training if is_own else False
        super().__init__()
        self._replay, self.is_own = replay, is_own
        if is_own:
            target.training = mode
            shared = ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set")
            self.__dict__.update({name: target.__dict__[name] for name in shared})

    @property
    def training(self) -> bool:
        return bool(getattr(self._target[0], "training", False))

    @training.setter
    def training(self, mode: bool) -> None:
        self._target[0].training = mode

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "_target" not in self.__dict__:
                raise
            target = self._target[0]
            if isinstance(target, SimpleNamespace) and not hasattr(target, name):
                raise AttributeError(f"its forward reads '{name}' of blocks, which belong to other layers") from None
            return getattr(target, name)


class _Block(_StandIn):
    def __init__(self, replay: _Replay, target: Any, is_own: bool, results: int, ends_list: bool) -> None:
        super().__init__(replay, target, is_own)
        self._results, self._ends_list = results, ends_list

    def forward(self, *arguments: Any, **named: Any) -> Any:
        replay = self._replay
        if replay.position == replay.number:  # The layer's block has run, or it has none
            replay.hidden = arguments[0] if arguments else named["hidden_states"]
            raise _Stop
        if self.is_own and replay.position != replay.number - 1:
            raise ConfigError("the model skips blocks, or runs them in another order; set its layerdrop to 0")
        replay.position += 1
        if not self.is_own:
            return self._of_earlier_layer()
        if arguments:
            arguments = (replay.hidden, *arguments[1:])
        else:
            named["hidden_states"] = replay.hidden
        with _capturing(replay.captured):
            result = self._target[0](*arguments, **named)
        hidden, *rest = result if self._results else (result,)
        replay.rest = () if self._ends_list else tuple(rest)
        if replay.position == replay.blocks:
            replay.hidden = hidden
            raise _Stop
        return result

    def _of_earlier_layer(self) -> Any:
        replay = self._replay
        collected = _collected()
        if collected and replay.number > replay.blocks:
            for key, tensors in replay.captured.items():
                collected[key] += tensors
            replay.captured = {}
        if not self._results:
            return replay.hidden
        missing = self._results - 1 - len(replay.rest)
        return (replay.hidden, *replay.rest, *[None] * missing)


class _UnitCall(_StandIn):
    def __init__(self, replay: _Replay, target: Any, is_own: bool, name: str, keeps_shape: bool) -> None:
        super().__init__(replay, target, is_own)
        self._name, self._keeps_shape = name, keeps_shape

    def forward(self, *arguments: Any, **named: Any) -> Any:
        replay = self._replay
        key = f"{self._name} {replay.position}"
        if replay.position == replay.own_segment:
            result = self._target[0](*arguments, **named)
            if 0 < replay.position < replay.blocks:
                replay.kept[key] = result
            return result
        if key in replay.kept:
            return replay.kept[key]
        first = _first_tensor(arguments, named)
        if isinstance(self._target[0], nn.Embedding) and first is not None:
            return replay.hidden.new_zeros(()).expand(*first.shape, self._target[0].embedding_dim)
        return first if self._keeps_shape and first is not None else replay.hidden


def _collected() -> Any:
    """Returns the outputs that transformers records in this forward, such as logits of routers, by name."""
    try:
        module = importlib.import_module("transformers.utils.output_capturing")
    except ImportError:
        return None
    return module._active_collector.get()


@contextlib.contextmanager
def _capturing(captured: dict[str, list[Any]]) -> Iterator[None]:
    """Adds what transformers records meanwhile."""
    collected = _collected() or {}
    before = {key: len(tensors) for key, tensors in collected.items()}
    yield
    for key, count in before.items():
        captured[key] = captured.get(key, []) + collected[key][count:]


class TransformersLayer(nn.Module):
    def __init__(self, model: Any, cut: _Cut, number: int) -> None:
        super().__init__()
        self._main = model.main_input_name
        self.model_loss: ModelLoss | None = None
        self.replay = _Replay(number, len(cut.blocks))
        self._copies: list[nn.Module] = []  # Of the blocks' ancestors; the first is of the model
        self._own: list[_StandIn] = []
        self.user_model: Any = lambda: None  # Returns the model that the user has given
        self._configs: dict[int, Any] = {}
        self._copy_of(model, "", cut)
        del self._configs
        for name, child in self._copies[0].named_children():
            self.add_module(name, child)

    def forward(self, value: Any) -> Any:
        """Takes the model's inputs in the first layer, and returns its result in the last."""
        replay = self.replay
        if replay.number == 0:
            given = inputs = _as_dict(self._main, value, self.model_loss is not None)
            if inputs[self._main].is_floating_point():  # Later layers need only its shape
                given = {**inputs, self._main: tuple(inputs[self._main].shape)}
            replay.begin({})
        else:
            given = value["inputs"]
            sizes = given[self._main]
            zeros = value["hidden"].new_zeros(())
            inputs = {**given, self._main: sizes if isinstance(sizes, Tensor) else zeros.expand(sizes)}
            replay.begin(value)
        for each in self._copies:
            each.training = any(own.training for own in self._own)
        try:
            if self.model_loss is not None and replay.number > replay.blocks:
                result = self.model_loss.of(self._copies[0], inputs)
            else:
                result = _result(self._copies[0](**inputs))
            if replay.position < replay.blocks:
                raise ConfigError("the model skips blocks; set its layerdrop to 0")
        except _Stop:
            result = replay.value(given)
        finally:
            replay.begin({})
        return result

    def _copy_of(self, module: nn.Module, name: str, cut: _Cut) -> nn.Module:
        """Returns a shallow copy of an ancestor of blocks."""
        kind: Any = type(module)
        made: nn.Module = kind.__new__(kind)
        made.__dict__.update(module.__dict__)
        made.__dict__.pop("forward", None)  # TRL replaces it by a function of the whole model
        if "config" in made.__dict__:
            made.__dict__["config"] = self._config_of(made.__dict__["config"])
        made.__dict__["_modules"] = {}
        self._copies.append(made)
        for child_name, child in module._modules.items():
            full = f"{name}.{child_name}".lstrip(".")
            made._modules[child_name] = child if child is None else self._child(child, full, cut)
        return made

    def _child(self, child: nn.Module, name: str, cut: _Cut) -> nn.Module:
        if name in cut.ancestors:
            return self._copy_of(child, name, cut)
        if name in cut.blocks:
            return self._noted(self._block(child, name, cut))
        name = cut.names[id(child)]
        unit = cut.units[name]
        if unit.segments and not any(True for _ in child.parameters()) and not isinstance(child, nn.Dropout):
            return child  # Every layer computes it, such as rotary positions
        is_own = self.replay.own_segment in unit.segments
        target = child if is_own else cut.skeletons[name]
        return self._noted(_UnitCall(self.replay, target, is_own, name, unit.keeps_shape))

    def _block(self, child: nn.Module, name: str, cut: _Cut) -> _Block:
        place = cut.blocks.index(name)
        following = cut.blocks[place + 1] if place + 1 < len(cut.blocks) else ""
        ends_list = name.rpartition(".")[0] != following.rpartition(".")[0]
        is_own = place == self.replay.number - 1
        plain = {key: value for key, value in vars(child).items() if not key.startswith("_")}
        target = child if is_own else SimpleNamespace(**plain)
        return _Block(self.replay, target, is_own, cut.results[place], ends_list)

    def _noted(self, stand_in: _StandIn) -> _StandIn:
        if stand_in.is_own:
            self._own.append(stand_in)
        return stand_in

    def _config_of(self, config: Any) -> Any:
        """Returns a copy without caches, which other layers do not share."""
        if id(config) not in self._configs:
            made = self._configs[id(config)] = copy.deepcopy(config)
            for name in ("use_cache", "output_hidden_states", "output_attentions"):
                if getattr(made, name, False):
                    setattr(made, name, False)
            if getattr(made, "return_dict", True) is False:
                made.return_dict = True
        return self._configs[id(config)]


def _carry_only_what_is_used(layers: list[TransformersLayer], cut: _Cut, inputs: Any) -> None:
    """Finds the results of units between blocks that later layers use, as an encoder's output, by their gradients."""
    if not cut.has_units_between_blocks():
        return
    used: set[str] = set()
    value = layers[0](inputs)
    with torch.enable_grad():
        for layer in layers[1:]:
            value = mapped(lambda tensor: tensor.detach().requires_grad_(tensor.is_floating_point()), value)
            kept, value = value["kept"], layer(value)
            results = value if layer is layers[-1] else (value["hidden"], value["rest"])
            reached = [tensor for tensor in tensors_of(results) if tensor.requires_grad]
            ones = [torch.ones_like(tensor) for tensor in reached]
            for key, result in kept.items():
                found = torch.autograd.grad(reached, tensors_of(result), ones, retain_graph=True, allow_unused=True)
                if any(gradient is not None for gradient in found):
                    used.add(key)
    for layer in layers:
        layer.replay.used = used


def _require_equal(model: nn.Module, layers: list[TransformersLayer], inputs: Any) -> None:
    """Raises ConfigError if the layers do not compute what the model computes."""
    expected, found = _result(model(**inputs)), inputs
    for layer in layers:
        found = layer(found)
    for wanted, tensor in zip(tensors_of(expected), tensors_of(found), strict=True):
        if wanted.shape != tensor.shape or not (tensor - wanted).abs().max() <= 1e-3 * wanted.abs().max():
            raise ConfigError("they compute something else than the model")


def _require_runs_in_training(model: nn.Module, layers: list[TransformersLayer], inputs: Any) -> None:
    """Runs the layers in training mode, in which some models do more. Keeps buffers and random generators."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.train()
    try:
        with untouched_generators(next(model.parameters()).device):
            found = inputs
            for layer in layers:
                found = layer(found)
    finally:
        for buffer, value in buffers:
            buffer.copy_(value)


_REASONS = {
    "hidden_size_per_layer_input": "its blocks take embeddings of their own besides the hidden states",
    "num_kv_shared_layers": "its blocks share keys and values with earlier blocks",
}


def _known_reason(model: Any) -> str | None:
    """Returns why models of a known kind cannot be cut."""
    if any(parameter.is_meta for parameter in model.parameters()):
        return "its weights are on the device meta, without values; load or make it outside of torch.device('meta')"
    config = model.config.get_text_config()
    return next((words for name, words in _REASONS.items() if getattr(config, name, 0)), None)
