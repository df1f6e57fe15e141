"""Training a user's layers by any synchronous schedule, on the C++ executor."""

from __future__ import annotations

import contextlib
import copy
import itertools
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import torch
from torch import Tensor, nn

from ._schedule import Schedule
from ._torch_version import require_same_torch

require_same_torch()
from . import _training  # noqa: E402

LayerOrFactory: TypeAlias = nn.Module | Callable[[], nn.Module]
ConfigError = _training.ConfigError


@dataclass(frozen=True)
class Step:
    """What a step did, the same on every rank."""

    loss: float
    """Mean over all that the loss counted in the step, on all ranks."""
    gradient_norm: float
    """Of all gradients of the model, before clipping."""


_MEETINGS = itertools.count()  # of this process's pipelines, which all processes make in one order


class PeerLost(SystemExit):
    """Another rank has failed, and has said why. Ends the process without a traceback of its own."""


class Pipeline:
    """A list of layers, cut into the stages of a schedule.

    Under torchrun (or another launcher that sets RANK and WORLD_SIZE) every process is a rank, over Gloo; without one
    all ranks are threads of this process, for notebooks and tests. Each layer maps one tensor to one tensor and must
    not write to its input. docs/python.md says what else holds, and what is refused.
    """

    def __init__(
        self,
        layers: nn.Sequential | Sequence[LayerOrFactory],
        loss: Callable[[Tensor, Tensor], Tensor],
        schedule: Schedule,
        *,
        micro_batch_size: int = 1,
        partition: Sequence[int] = (),
        data_parallel: int = 1,
        recompute: bool = False,
        count: Callable[[Tensor], int] = Tensor.numel,
    ) -> None:
        """All ranks make theirs with the same arguments.

        `loss`: from the last layer's output and the target the *sum* of losses. `count`: how many there are in a
        target, so that a step's loss is their mean. `micro_batch_size`: samples of one micro-batch. `partition`: layers
        of each stage; left out: even. `data_parallel`: W, groups that run the schedule side by side. `recompute`:
        stages keep their inputs alone and run forward again. Layers may be factories, called for the layers of this
        rank alone.
        """
        self._layers = list(layers)
        self._plan = _training.Plan(
            schedule.to_json(), len(self._layers), list(partition), data_parallel, micro_batch_size, recompute
        )
        self._world = int(os.environ.get("WORLD_SIZE", "1"))
        self._rank = int(os.environ.get("RANK", "0")) if self._world > 1 else 0
        if self._world not in (1, self._plan.num_ranks):
            raise ConfigError(
                f"{self._plan.num_ranks} ranks are needed, {len(schedule.workers)} workers in {data_parallel} groups, "
                f"but {self._world} processes were started"
            )
        self._width = data_parallel
        self._samples = micro_batch_size * schedule.micro_batches
        self._recompute = recompute
        self._started = False
        ranks = [self._rank] if self._world > 1 else range(self._plan.num_ranks)
        self._held = [self._layers_of(rank) for rank in ranks]
        _refuse_shared_parameters(self._held)
        self._run = _training.Run(
            self._plan, [self._as_given(held) for held in self._held], self._rank, _checked_loss(loss), count
        )
        if self._world > 1:
            self._guarded(self._join)

    @property
    def rank(self) -> int:
        """Of this process; 0 where all ranks are threads."""
        return self._rank

    @property
    def width(self) -> int:
        """Shares of a mini-batch that processes load: W under a launcher, 1 for threads, which take all of it."""
        return self._width if self._world > 1 else 1

    @property
    def group(self) -> int:
        """Which of the `width` shares this process loads."""
        return int(self._plan.group(self._rank)) if self._world > 1 else 0

    @property
    def batch_size(self) -> int:
        """Samples that `step` takes on this process."""
        return self._samples * (self._width if self._world == 1 else 1)

    def step(
        self,
        inputs: Tensor,
        targets: Tensor,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        clip: float = 0.0,
    ) -> Step:
        """Forwards and backwards of a mini-batch, then the optimizer's step.

        `inputs` and `targets`: `batch_size` samples along their first dimension, the same on all ranks of a group (the
        first stage reads the inputs, the last one the targets). Gradients are those of the mean loss, summed over all
        copies; they are scaled where their global norm is above `clip` (0: never) and stay in `.grad`. `optimizer` is
        over `parameters()`; without one the caller updates.
        """
        self._start(inputs, targets)
        loss, norm = self._guarded(lambda: self._run.step(inputs, targets, clip))
        if optimizer is not None:
            optimizer.step()
        return Step(loss, norm)

    def validate(self, inputs: Tensor, targets: Tensor) -> float:
        """The mean loss of a mini-batch by forwards alone, with the modules in eval mode; the same on every rank."""
        self._start(inputs, targets)
        training = [(module, module.training) for layer in self._all() for module in layer.module.modules()]
        try:
            for layer in self._all():
                layer.module.eval()
            return float(self._guarded(lambda: self._run.validate(inputs, targets)))
        finally:
            for module, mode in training:
                module.training = mode

    def parameters(self) -> Iterator[nn.Parameter]:
        """Those of this process's stages, for an optimizer. With threads also the copies that other ranks train."""
        for _, parameter in self._named_copies():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Of this process's stages, each once, by global names: `3.weight`, as nn.Sequential has them."""
        yield from dict(self._named_copies()).items()

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and buffers of this process's stages by global names: of all layers with threads.

        torch.distributed.checkpoint merges those of several processes.
        """
        state: dict[str, Tensor] = {}
        for layer in self._all():
            for name, value in layer.module.state_dict().items():
                state.setdefault(f"{layer.index}.{name}", value)
        return state

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Copies values into this process's stages; `state` may hold other layers too."""
        for layer in self._all():
            prefix = f"{layer.index}."
            layer.module.load_state_dict({n.removeprefix(prefix): v for n, v in state.items() if n.startswith(prefix)})

    def gather(self) -> None:
        """Copies what other processes have trained into the layers given to this one; collective.

        Threads train the given layers themselves, of each stage one rank. Layers of factories stay where they are.
        """
        if self._world == 1:
            return
        group = self._process_group()
        for stage, (first, end) in enumerate(self._plan.stage_layers):
            for layer in self._layers[first:end]:
                if isinstance(layer, nn.Module):
                    for value in [*layer.parameters(), *layer.buffers()]:
                        torch.distributed.broadcast(value.detach(), self._plan.owner(stage), group=group)

    def _process_group(self) -> Any:
        """The caller's default group, or one of our own in its place."""
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", store=self._store, rank=self._rank, world_size=self._world)
        return torch.distributed.group.WORLD

    def _all(self) -> list[HeldLayer]:
        return [layer for held in self._held for layer in held]

    def _named_copies(self) -> Iterator[tuple[str, nn.Parameter]]:
        for layer in reversed(self._all()):  # so that owners' come last: they win in a dict
            for name, parameter in layer.module.named_parameters():
                if parameter.requires_grad:
                    yield f"{layer.index}.{name}", parameter

    def _layers_of(self, rank: int) -> list[HeldLayer]:
        held = []
        for stage in self._plan.stages_of(rank):
            first, end = self._plan.stage_layers[stage]
            repeats = self._plan.is_copied(stage) or self._recompute
            for index in range(first, end):
                own = self._world > 1 or self._plan.owner(stage) == rank
                held.append(HeldLayer(index, _made(self._layers[index], index, own), repeats))
        return held

    @staticmethod
    def _as_given(held: list[HeldLayer]) -> dict[int, Any]:
        return {
            layer.index: _training.Layer(type(layer.module).__name__, layer, list(layer.module.named_parameters()))
            for layer in held
        }

    def _start(self, inputs: Tensor, targets: Tensor) -> None:
        for name, tensor in (("inputs", inputs), ("targets", targets)):
            if len(tensor) != self.batch_size:
                wanted = self.batch_size
                raise ConfigError(f"{name}: {len(tensor)} samples, where a step of this process takes {wanted}")
        if torch.is_autocast_enabled("cpu") and self._world == 1:
            raise ConfigError("autocast around step() does not reach rank threads; put it into the layers' forward")
        if self._started:
            return
        self._started = True
        with _untouched_generator(), contextlib.ExitStack() as probes:
            for layer in self._all():
                probes.enter_context(layer.probing())
            self._guarded(lambda: self._run.start(inputs, targets))

    def _join(self) -> None:
        if torch.distributed.is_initialized():
            store = torch.distributed.distributed_c10d._get_default_store()
        else:
            store, _, _ = next(torch.distributed.rendezvous("env://"))
            store = self._store = torch.distributed.PrefixStore("chimerapipe", store)
        key = f"chimerapipe/meeting {next(_MEETINGS)}"
        if os.environ.get("LOCAL_WORLD_SIZE", str(self._world)) == str(self._world):
            if self._rank == 0:
                handle, path = tempfile.mkstemp(prefix="chimerapipe-")
                os.close(handle)
                store.set(key, path)
            path = store.get(key).decode()
            try:
                self._run.join_in_file(path, self._world)
            finally:
                if self._rank == 0:
                    os.unlink(path)
            return
        host = os.environ["MASTER_ADDR"]
        if self._rank == 0:
            store.set(key, str(_free_port()))
        self._run.join_at_server(host, int(store.get(key)), self._world)

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Ends this process quietly where another rank has the reason; else what failed is raised as it is."""
        try:
            return call()
        except _training.PeerLostError as error:
            if self._world == 1:
                raise
            print(f"rank {self._rank}: ended, as another rank failed ({error})", file=sys.stderr, flush=True)
            _end_process(PeerLost(3))
        except BaseException:
            if self._world > 1:
                self._fail_visibly()
            raise

    def _fail_visibly(self) -> None:
        """The others notice when this process ends: what the C++ side has under way must not hold it up."""
        hook = sys.excepthook

        def print_and_end(kind: Any, error: Any, trace: Any) -> None:
            hook(kind, error, trace)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

        sys.excepthook = print_and_end


class HeldLayer:
    """A layer as a rank calls it."""

    def __init__(self, index: int, module: nn.Module, repeats: bool) -> None:
        self.index = index
        self.module = module
        self.repeats = repeats  # copies of it are trained, or its forward runs twice
        self._probing = False

    def __call__(self, tensor: Tensor) -> Tensor:
        output = self._probe(tensor) if self._probing else self.module(tensor)
        if not isinstance(output, Tensor):
            raise TypeError(
                f"{self._name()} gives a {type(output).__name__}; a layer maps one tensor to one tensor: wrap it in a "
                "module that does"
            )
        return output

    @contextlib.contextmanager
    def probing(self) -> Iterator[None]:
        """The first forward, by which shapes are found: it finds too what copies would do differently."""
        saved = [(buffer, buffer.clone()) for buffer in self.module.buffers()]
        for parameter in self.module.parameters():
            parameter.grad = None
        self._probing = True
        try:
            yield
        finally:
            self._probing = False
            with torch.no_grad():
                for buffer, value in saved:
                    buffer.copy_(value)

    def _probe(self, tensor: Tensor) -> Any:
        before = torch.get_rng_state()
        versions = {name: (id(buffer), buffer._version) for name, buffer in self.module.named_buffers()}
        output = self.module(tensor)
        if not self.repeats:
            return output
        for name, buffer in self.module.named_buffers():
            if versions.get(name) != (id(buffer), buffer._version):
                raise ConfigError(
                    f"{self._name()} writes to its buffer '{name}', which copies of it, or a recomputed forward, would "
                    "do differently; use a module that keeps none (GroupNorm, LayerNorm), or another schedule"
                )
        if not torch.equal(before, torch.get_rng_state()):
            raise ConfigError(
                f"{self._name()} draws random numbers, which copies of it, or a recomputed forward, would draw "
                "differently; set its dropout to 0, or choose another schedule"
            )
        return output

    def _name(self) -> str:
        return f"layer {self.index} ({type(self.module).__name__})"


def _made(layer: LayerOrFactory, index: int, own: bool) -> nn.Module:
    """The layer itself for the rank that owns it, a copy for others."""
    if isinstance(layer, nn.Module):
        if isinstance(layer, nn.parallel.DistributedDataParallel):
            raise ConfigError(f"layer {index} is wrapped in DistributedDataParallel; use data_parallel= instead")
        return layer if own else copy.deepcopy(layer)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(index)  # the same values in every copy
        made = layer()
    if not isinstance(made, nn.Module):
        raise ConfigError(f"layer {index}: the factory gave a {type(made).__name__}, no nn.Module")
    return made


def _refuse_shared_parameters(held: list[list[HeldLayer]]) -> None:
    for layers in held:
        seen: dict[int, tuple[int, str]] = {}
        for layer in layers:
            for name, parameter in layer.module.named_parameters():
                other, other_name = seen.setdefault(id(parameter), (layer.index, name))
                if other != layer.index:
                    raise ConfigError(
                        f"layers {other} and {layer.index} share a parameter ({other_name}, {name}); give each its own"
                    )


def _checked_loss(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    def checked(output: Tensor, target: Tensor) -> Tensor:
        value = loss(output, target)
        if not isinstance(value, Tensor):
            raise TypeError(f"the loss gives a {type(value).__name__}; it must be a tensor, the sum of the losses")
        return value

    return checked


@contextlib.contextmanager
def _untouched_generator() -> Iterator[None]:
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        return int(free.getsockname()[1])


def _end_process(reason: PeerLost) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(str(reason.code)))
