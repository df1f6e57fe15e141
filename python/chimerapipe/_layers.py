"""The layers of a process's ranks, with their parameters, copies and states."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from . import _training
from ._agreement import bits_of, in_words as tensor_in_words
from ._devices import bring_to
from ._distributed import ShardedParameter, StageParts, group_in, has_parts, is_wrapped, ranks_of_parts
from ._given_layers import in_words, made_layer, require_dense_buffers, require_trainable, require_values
from ._held_layer import HeldLayer, Surroundings, Use
from ._modules import called_modules, copied, follow_hooks, hooks_of, share_hooks, share_memory
from ._names import Names, as_module
from ._placed import Meshes, is_distributed, local_of, spread
from ._processes import Processes
from ._random import RankContext
from ._shape import Shape
from ._shared import SharedParameter, SharedParameters, shared_parameters
from ._training import ConfigError
from ._watch import Freshness, Replica, Watch, follow_memory


class Layers:
    """The layers of this process: those of its rank, or of all rank threads."""

    def __init__(
        self, model: Any, given: Sequence[Any], shape: Shape, processes: Processes, surroundings: Surroundings,
        contexts: Mapping[int, RankContext], recomputed: Sequence[int], reduction: str,
    ) -> None:
        """`model`: what the user gave, of which `given` are the layers. Raises ConfigError for layers that cannot be
        trained."""
        self.given, self.shape, self.device = given, shape, surroundings.device
        self._names = Names(model, given)
        of_stages = dict(shared_parameters(given, shape.plan.stage_layers))
        if of_stages and reduction == "canonical":
            name = next(iter(of_stages.values())).name
            raise ConfigError(f"reduction canonical: stages share the parameter {name}; use natural")
        _require_distributable(given, shape, processes, of_stages, reduction)
        self.shared = SharedParameters(processes, shape.plan, list(of_stages.values()))
        for index, layer in enumerate(given):
            if isinstance(layer, nn.Module):
                require_values(index, layer)  # On all ranks, also of other stages
        maker = _Maker(given, shape, surroundings, contexts, of_stages, recomputed)
        self.held = [maker.layers_of(rank) for rank in shape.ranks]
        self.every = [layer for held in self.held for layer in held]
        self.replicas = maker.replicas
        self._take_over_distributed()
        self.twins = _twins(self.every, of_stages)
        self.updated = list(self._find_updated())
        self.parameters = [p for layer in self.every for p in layer.module.parameters()]
        own = {index: given[index] for index in {layer.index for layer in self.every}}
        modules = [(index, layer) for index, layer in own.items() if isinstance(layer, nn.Module)]
        held = [(each.index, each.module) for each in self.every]
        self._watch = Watch([*modules, *held], self.updated, model, given)
        words = [(in_words(i, each), each) for i, each in enumerate(given) if isinstance(each, nn.Module)]
        self.freshness = Freshness({id(p) for p in self.parameters}, words if shape.world > 1 else [])

    def _take_over_distributed(self) -> None:
        """Finds DTensors, and parts of layers that sum gradients over ranks themselves."""
        parameters = {id(p): p for layer in self.every for p in layer.module.parameters() if is_distributed(p)}
        self.sharded = {key: ShardedParameter(parameter) for key, parameter in parameters.items()}
        self.parts: dict[int, StageParts] = {}
        for stage in {layer.stage for layer in self.every}:
            modules = [layer.module for layer in self.every if layer.stage == stage]
            if parts := StageParts(modules, splits=self.shape.splits):
                self.parts[stage] = parts
        meshes = Meshes()
        for layer in self.every:
            meshes.learn((*layer.module.parameters(), *layer.module.buffers()))
            layer.meshes = meshes

    @property
    def is_distributed(self) -> bool:
        return bool(self.sharded or self.parts)

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name, parameter in self.updated:
            if parameter.requires_grad:
                yield self._names.of(name)[0], parameter

    def state(self) -> Iterator[tuple[str, Any]]:
        if self._watch.moved():
            follow_memory(self.twins)
        seen: set[str] = set()
        for layer in self.every:
            for own, value in layer.module.state_dict(keep_vars=True).items():
                for name in self._names.of(f"{layer.index}.{own}"):
                    if name not in seen:
                        seen.add(name)
                        yield name, value

    def module(self) -> nn.Module:
        updated = {name: p for own, p in self.updated for name in self._names.of(own)}
        return as_module({name: updated.get(name, each) for name, each in self.state() if isinstance(each, Tensor)})

    def optimizer_state_dict(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict

        self.require_own(optimizer)
        kept = [(p, p.grad) for _, p in self.updated]
        if not optimizer.state:
            for parameter, _ in kept:
                parameter.grad = None
        flat = StateDictOptions(flatten_optimizer_state_dict=True)
        state: dict[str, Any] = get_optimizer_state_dict(self.module(), optimizer, options=flat)
        for parameter, gradient in kept:
            parameter.grad = gradient
        return state

    def load_optimizer_state_dict(self, optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_optimizer_state_dict

        flat = StateDictOptions(flatten_optimizer_state_dict=True)
        set_optimizer_state_dict(self.module(), optimizer, dict(state), options=flat)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for layer in self.every:
            own = {}
            for name, value in layer.module.state_dict().items():
                for given in self._names.of(f"{layer.index}.{name}"):
                    if given in state:
                        own[name] = spread(state[given], value)
            try:
                layer.module.load_state_dict(own)
            except RuntimeError as error:
                raise RuntimeError(f"{in_words(layer.index, layer.module)}: {error}") from None

    def _find_updated(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yields the parameters that optimizers update, trained or not. A shared one has its first name."""
        first = {id(each.first): each.name for each in self.shared.all}
        seen = {id(twin) for _, twin in self.twins}
        for layer in sorted(self.every, key=lambda layer: layer.index):
            if layer.own or self.shape.world > 1:
                for name, parameter in layer.module.named_parameters():
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        yield first.get(id(parameter), f"{layer.index}.{name}"), parameter

    def optimized(self) -> Iterator[tuple[str, nn.Parameter, nn.Module | None, tuple[int, ...]]]:
        """Yields each trained parameter of this process with its name, its module and the processes that hold it. The
        module is None in the last layer, and for parameters that stages share."""
        layers = {layer.index: layer for layer in self.every}
        shared = {id(leaf) for each in self.shared.all for leaf in each.leaves.values()}
        for name, parameter in self.updated:
            if parameter.requires_grad:
                index, _, own = name.partition(".")
                layer = layers[int(index)]
                is_head = layer.index + 1 == len(self.given) or id(parameter) in shared
                module = None if is_head else layer.module.get_submodule(own.rpartition(".")[0])
                yield self._names.of(name)[0], parameter, module, self.shape.holders(layer.stage)

    def as_given(self, held: list[HeldLayer]) -> dict[int, Any]:
        """Returns the layers with each parameter of a stage once, and with buffers, whose first values are shared. A
        stage without trained parameters gets one that no layer uses."""
        given: dict[int, Any] = {}
        seen: set[tuple[int, int]] = set()
        stages: set[int] = set()
        trained = {layer.stage for layer in held if any(p.requires_grad for p in layer.module.parameters())}
        for layer in held:
            values: list[tuple[str, Tensor]] = []
            for name, value in [*layer.module.named_parameters(), *layer.module.named_buffers()]:
                if (layer.stage, id(value)) not in seen:
                    seen.add((layer.stage, id(value)))
                    sharded = self.sharded.get(id(value))
                    values.append((name, local_of(value) if sharded is None else sharded.leaf))
            if layer.stage not in trained | stages:
                values.append(("untrained", nn.Parameter(torch.zeros(1, device=self.device))))
            stages.add(layer.stage)
            given[layer.index] = _training.Layer(type(layer.module).__name__, layer, values)
        return given

    def follow_changes(self, call: str) -> None:
        """Brings changes of the given layers to replicas. Raises ConfigError for changes that nothing can follow."""
        self._watch.require_same()
        self.freshness.require()
        if self.shape.splits and call == "step" and has_flop_counter():
            raise ConfigError(
                f"FlopCounterMode cannot count a split backward, which {self.shape.schedule} has; count with a "
                "schedule that splits none, such as 1f1b or chimera"
            )
        if self._watch.moved():
            follow_memory(self.twins)
        for replica in self.replicas:
            replica.follow()

    def end_call(self) -> None:
        for replica in self.replicas:
            replica.note()

    def require_clippable(self) -> None:
        """Raises ConfigError for layers whose groups other pipelines share: their ranks would clip by other norms."""
        for layer in self.every:
            if not is_wrapped(layer.module) and (name := group_in(layer.module)):
                raise ConfigError(
                    f"clip: {in_words(layer.index, layer.module)} has a group of its own, '{name}', whose ranks would "
                    "clip by other norms; leave clip out, and clip by the norm over all ranks before optimizer.step"
                )

    def require_own(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises ConfigError unless the optimizer updates every trained parameter of this process, and no other's."""
        groups = getattr(optimizer, "param_groups", None)
        if not isinstance(groups, list):
            raise ConfigError(f"optimizer: got a {type(optimizer).__name__}; give a torch.optim.Optimizer")
        if isinstance(optimizer, torch.optim.SparseAdam):
            raise ConfigError("optimizer: SparseAdam needs sparse gradients, but a pipeline's are dense; use Adam")
        closure = inspect.signature(optimizer.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise ConfigError(
                f"optimizer: {type(optimizer).__name__} calls a closure that computes the loss again, but a step runs "
                "once; use an optimizer whose step() needs no closure"
            )
        given = {id(p) for group in groups for p in group["params"]}
        trained = dict(self.named_parameters())
        missed = [name for name, p in trained.items() if id(p) not in given]
        if missed:
            raise ConfigError(
                f"optimizer: misses {missed[0]} and {len(missed) - 1} more of {len(trained)} trained parameters; make "
                "it over parameters()"
            )
        layers = [layer for layer in self.given if isinstance(layer, nn.Module)]
        own = {id(p) for _, p in self.updated} | {id(p) for layer in layers for p in layer.parameters()}
        foreign = [p for group in groups for p in group["params"] if id(p) not in own and p.numel()]
        if foreign:
            raise ConfigError(
                f"optimizer: holds a parameter {tensor_in_words(foreign[0].shape, foreign[0].dtype)} that is not of "
                "this pipeline; make it over parameters()"
            )

    def counted_parameters(self) -> list[nn.Parameter]:
        """Returns the parameters with gradients that this rank counts, so that each is counted on one rank."""
        shared = {id(leaf): each.ranks[0] for each in self.shared.all for leaf in each.leaves.values()}
        owned = {id(p) for layer in self.every if layer.own for p in layer.module.parameters()}
        with_gradients = [p for _, p in self.updated if p.grad is not None]
        if self.shape.world == 1:
            return with_gradients
        return [p for p in with_gradients if (shared[id(p)] == self.shape.rank if id(p) in shared else id(p) in owned)]

    def follow_replicas(self) -> None:
        """Gives other leaves and copies the flags and hooks of the parameters that are updated."""
        for main, twin in self.twins:
            if twin.requires_grad != main.requires_grad:
                twin.requires_grad_(main.requires_grad)
            share_hooks(twin, main)
        for replica in self.replicas:
            follow_hooks(replica.made, replica.module)

    def key(self) -> tuple[object, ...]:
        """Returns what ranks must agree on anew after a change: flags, hooks and modes."""
        flags = [parameter.requires_grad for parameter in self.parameters]
        hooks = [(p._backward_hooks is None, p._post_accumulate_grad_hooks is None) for p, _ in self.twins]
        of_modules = [key for replica in self.replicas for key in hooks_of(replica.module)]
        return flags, hooks, of_modules, [layer.module.training for layer in self.every]

    def release(self) -> None:
        """Frees gathered weights, after forwards without backwards."""
        for parts in self.parts.values():
            parts.release()

    def clip(self, clip: float, norm: float) -> None:
        """Scales all gradients, whose norm is `norm`, as clip_grad_norm_ of torch does."""
        if (factor := clip_factor(clip, norm)) < 1:
            for parameter in {id(each): each for each in self.parameters}.values():
                if parameter.grad is not None:
                    parameter.grad.mul_(factor)

    def bits(self, stage: int) -> int:
        """Returns a positive sum of all bits of a stage, 0 if this process does not hold it."""
        held = [layer.module for layer in self.every if layer.stage == stage]
        return 1 + bits_of([v for module in held for v in (*module.parameters(), *module.buffers())]) if held else 0


def has_flop_counter() -> bool:
    """Returns whether a FlopCounterMode is active on this thread."""
    return any(type(mode).__name__ == "_FlopCounterMode" for mode in _get_current_dispatch_mode_stack())


def clip_factor(clip: float, norm: float) -> float:
    return min(1.0, clip / (norm + 1e-6)) if clip > 0 else 1.0


class _Maker:
    def __init__(
        self, given: Sequence[Any], shape: Shape, shared: Surroundings, contexts: Mapping[int, RankContext],
        of_stages: Mapping[int, SharedParameter], recomputed: Sequence[int],
    ) -> None:
        """`contexts`: by rank. `of_stages`: parameters that stages share, by id, which get their leaves."""
        self._given, self._shape, self._shared, self._contexts = given, shape, shared, contexts
        self._of_stages, self._recomputed = of_stages, recomputed
        self.replicas: list[Replica] = []
        """Copies that were made."""

    def layers_of(self, rank: int) -> list[HeldLayer]:
        held: list[HeldLayer] = []
        for stage in self._shape.plan.stages_of(rank):
            first, end = self._shape.plan.stage_layers[stage]
            copied_stage, recomputed = self._shape.plan.is_copied(stage), stage in self._recomputed
            is_owner = self._shape.plan.owner(stage) == rank
            memo: dict[int, Any] = {}
            for index in range(first, end):
                made = made_layer(self._given[index], index)
                require_trainable(index, made)
                if copied_stage:
                    require_dense_buffers(index, made)
                bring_to(self._shared.device, made, in_words(index, made))
                for parameter in made.parameters():
                    if not local_of(parameter).is_contiguous():
                        parameter.data = parameter.data.contiguous()  # Before others share its memory
                if isinstance(self._given[index], nn.Module):
                    made = self._own_or_copy(index, made, rank, stage, memo)
                shares_process = self._shape.world == 1 < self._shape.plan.num_ranks
                use = Use(copied_stage, recomputed, is_owner, self._shares_buffers(index, stage), shares_process)
                held.append(HeldLayer(index, stage, made, use, self._shared, self._contexts[rank]))
            for layer in held[first - end :]:
                layer.of_stage = held[first - end :]
            held[-1].sends = stage + 1 < len(self._shape.plan.stage_layers)
            held[-1].gives_loss = not held[-1].sends
        return held

    def _shares_buffers(self, index: int, stage: int) -> bool:
        first, end = self._shape.plan.stage_layers[stage]
        others = [layer for layer in (*self._given[:first], *self._given[end:]) if isinstance(layer, nn.Module)]
        layer = self._given[index]
        own = {id(buffer) for buffer in layer.buffers()} if isinstance(layer, nn.Module) else set()
        return bool(own) and any(id(buffer) in own for other in others for buffer in other.buffers())

    def _own_or_copy(self, index: int, layer: nn.Module, rank: int, stage: int, memo: dict[int, Any]) -> nn.Module:
        """Returns the given layer to the owner of its parameters, else a copy with other leaves on the same memory."""
        keeps = self._shape.world > 1 or self._shape.plan.owner(stage) == rank
        here = set(self._shape.plan.stages_of(rank)) if self._shape.world > 1 else set(range(self._shape.stages))
        uses = {id(parameter): self._of_stages.get(id(parameter)) for parameter in layer.parameters()}
        own = {key for key, use in uses.items() if keeps and (use is None or min(here & {*use.stages}) == stage)}
        if keeps and own == uses.keys():
            made = layer
        else:
            made = copied(layer, memo, own, in_words(index, layer))
            pairs = zip(called_modules(layer), called_modules(made), strict=True)
            self.replicas += [Replica(module, copy, memo) for module, copy in pairs]
        for original, parameter in zip(layer.parameters(), made.parameters(), strict=True):
            if use := self._of_stages.get(id(original)):
                use.leaves[rank, stage] = parameter
        return made


def _twins(
    every: Sequence[HeldLayer], shared: Mapping[int, SharedParameter]
) -> list[tuple[nn.Parameter, nn.Parameter]]:
    """Returns pairs of a parameter that optimizers update and another leaf. Rank threads share their memory."""
    updated: dict[str, nn.Parameter] = {}
    found: list[tuple[nn.Parameter, nn.Parameter]] = []
    for layer in sorted(every, key=lambda layer: not layer.own):
        for name, parameter in layer.module.named_parameters():
            main = updated.setdefault(f"{layer.index}.{name}", parameter)
            if main is not parameter:
                if main.shape != parameter.shape or main.dtype != parameter.dtype:
                    raise ConfigError(
                        f"{in_words(layer.index, layer.module)}: the factory makes '{name}' in several shapes"
                    )
                share_memory(parameter, main)
                found.append((main, parameter))
    replicas = {id(twin) for _, twin in found}
    of_stages = [
        (each.first, leaf)
        for each in shared.values()
        for leaf in each.leaves.values()
        if each.first is not None and leaf is not each.first and id(leaf) not in replicas
    ]
    return [*of_stages, *found]  # Replicas follow the leaves of their stage


def _require_distributable(
    given: Sequence[Any], shape: Shape, processes: Processes, shared: Mapping[int, SharedParameter], reduction: str
) -> None:
    """Raises ConfigError for distributed layers that a pipeline cannot train. All ranks look at all layers."""
    wrapped = [(i, each) for i, each in enumerate(given) if isinstance(each, nn.Module) and is_wrapped(each)]
    if not wrapped:
        return
    index, layer = wrapped[0]
    words = f"{in_words(index, layer)} is distributed (DTensor, fully_shard, replicate, DistributedDataParallel)"
    if shape.world == 1 < shape.plan.num_ranks:
        raise ConfigError(f"{words}, but the ranks of this pipeline are threads; start a process for each")
    own = set(processes.ranks) if shape.world > 1 else set()
    for number, each in wrapped:
        for name, ranks in ranks_of_parts(each):
            if len(own & set(ranks)) > 1:
                raise ConfigError(
                    f"{in_words(number, each)}: '{name}' is distributed over ranks {ranks}, of which several are "
                    "ranks of this pipeline; distribute it over another dimension of the mesh, such as mesh['tp'], "
                    "and give the pipeline mesh['pp']"
                )
    if reduction == "canonical":
        raise ConfigError(f"reduction canonical: {words}, and its sums have no fixed order; use natural")
    for number, each in wrapped:
        of_stages = [shared[id(parameter)] for parameter in each.parameters() if id(parameter) in shared]
        if of_stages and has_parts(each):
            raise ConfigError(
                f"{in_words(number, each)} is wrapped by fully_shard, replicate or DistributedDataParallel, but "
                f"stages share its parameter {of_stages[0].name}; keep its uses in one stage"
            )
