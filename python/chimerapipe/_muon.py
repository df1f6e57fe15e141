"""Muon for pipelines: ranks with a copy of a stage share its iterations."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim._muon import _zeropower_via_newtonschulz
from torch.optim.adamw import adamw

from ._pipeline import Pipeline
from ._placed import is_distributed
from ._training import ConfigError

_COEFFICIENTS = 3.4445, -4.7750, 2.0315
_STEPS, _EPSILON = 5, 1e-7

Matrices = Callable[[nn.Module, str, Tensor], Sequence[Tensor]]


def matrices_of(module: nn.Module, name: str, tensor: Tensor) -> Sequence[Tensor]:
    """Returns the matrices in a parameter of `module`, as views out x in; none: AdamW updates it. `tensor` has the
    parameter's shape.

    A matrix is a parameter of two dimensions, except embeddings. Transformers' Conv1D is transposed, and its `c_attn`
    holds three matrices; so does `qkv_proj` if it has equal parts, and `gate_up_proj` holds two.
    """
    if tensor.ndim != 2 or isinstance(module, nn.Embedding):
        return []
    matrix = tensor.t() if type(module).__name__ == "Conv1D" else tensor
    parts = {"c_attn": 3, "qkv_proj": 3, "gate_up_proj": 2}
    for word, count in parts.items():
        if word in name.split(".") and matrix.shape[0] % count == 0:
            return list(matrix.chunk(count))
    return [matrix]


def orthogonalized(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the result of the iterations of torch.optim.Muon in `dtype`, transposed if `matrix` is taller than
    wide."""
    wide = matrix.t() if matrix.shape[0] > matrix.shape[1] else matrix
    if dtype == torch.bfloat16:
        return _zeropower_via_newtonschulz(wide.to(dtype, copy=True).contiguous(), _COEFFICIENTS, _STEPS, _EPSILON)
    a, b, c = _COEFFICIENTS
    x = wide.to(dtype, copy=True).contiguous()
    x.div_(x.norm().clamp(min=_EPSILON))
    for _ in range(_STEPS):
        gram = x @ x.t()
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def flops_of(matrix: Tensor) -> float:
    m, n = sorted(map(float, matrix.shape))
    return _STEPS * (4 * m * m * n + 2 * m * m * m)


def share_out(costs: Sequence[float], members: int) -> list[int]:
    """Returns the member for each cost: largest cost first, each to the member with the least so far."""
    loads, member_of = [0.0] * members, [0] * len(costs)
    for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
        member_of[i] = loads.index(min(loads))
        loads[member_of[i]] += costs[i]
    return member_of


class Muon(torch.optim.Optimizer):
    """Muon for the matrices of a pipeline, AdamW for its other parameters.

    The ranks with a copy of a stage each run a part of the iterations and gather the results. Rank threads share their
    memory, so each matrix is updated once. Definition: torch.optim.Muon, with `match_rms_adamw` by default.
    """

    def __init__(
        self, model: Pipeline, lr: float = 1e-3, *, weight_decay: float = 0.1, momentum: float = 0.95,
        adjust_lr_fn: str = "match_rms_adamw", betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8,
        matrices: Matrices = matrices_of, dtype: torch.dtype | None = None,
    ) -> None:
        """All ranks create it together.

        `weight_decay`: decoupled, of parameters with two or more dimensions.
        `adjust_lr_fn`: `match_rms_adamw` or `original`, as in torch.optim.Muon.
        `betas`, `eps`: of AdamW.
        `matrices`: function from a module, a parameter's name and a tensor of its shape to the matrices in it; see
        `matrices_of`. Parameters of the last layer are not asked for: it is the head.
        `dtype`: type of the iterations, by default the parameter's; torch.optim.Muon uses torch.bfloat16.

        Raises ConfigError for DTensors, and for impossible arguments.
        """
        if not isinstance(model, Pipeline):
            raise ConfigError(f"Muon: got a {type(model).__name__}; give the Pipeline whose parameters it updates")
        if adjust_lr_fn not in ("match_rms_adamw", "original"):
            raise ConfigError(f"adjust_lr_fn: got {adjust_lr_fn!r}; use match_rms_adamw or original")
        if not (lr >= 0 and weight_decay >= 0 and 0 <= momentum < 1):
            raise ConfigError("Muon: lr and weight_decay must be at least 0, and momentum at least 0 and below 1")
        self._adjust, self._dtype = adjust_lr_fn, dtype
        kinds: dict[str, list[Any]] = {"muon": [], "decayed": [], "others": []}
        self._views: dict[int, Callable[[Tensor], Sequence[Tensor]]] = {}  # By id of the parameter
        self._ranks: dict[int, tuple[int, ...]] = {}
        for name, parameter, module, holders in model._layers.optimized():
            if is_distributed(parameter):
                raise ConfigError(f"Muon: {name} is a DTensor, whose matrix no rank has; use torch.optim.Muon")
            found = matrices(module, name, parameter.detach()) if module is not None else []
            if found:
                self._views[id(parameter)] = functools.partial(matrices, module, name)
                self._ranks[id(parameter)] = holders
            kinds["muon" if found else "decayed" if parameter.ndim >= 2 else "others"].append(parameter)
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "betas": betas, "eps": eps}
        groups = [
            {"params": params, "weight_decay": 0.0 if kind == "others" else weight_decay, "muon": kind == "muon"}
            for kind, params in kinds.items()
            if params
        ]
        super().__init__(groups, defaults)
        model._checkpoints.together("cp.Muon")
        self._processes, self._rank, self._model = model._processes, model.rank, model
        self._groups = {ranks: self._processes.group_of(ranks) for ranks in model._shape.copied_holders()}

    def step(self, closure: Any = None) -> Any:
        """Updates all parameters that have gradients. Collective under a launcher."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._groups and not self._model._run.is_busy:  # Else a step of all ranks calls it
            self._model._run.require_usable()
            self._model._agreement.on_call("cp.Muon.step")
        with torch.no_grad():
            for group in self.param_groups:
                params = [p for p in group["params"] if p.grad is not None]
                self._update_matrices(group, params) if group["muon"] else self._update_others(group, params)
        return loss

    def _update_matrices(self, group: dict[str, Any], params: Sequence[Tensor]) -> None:
        for parameter in params:
            state = self.state[parameter]
            if "momentum_buffer" not in state:
                state["momentum_buffer"] = torch.zeros_like(parameter)
            state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
        results = self._shared(group, params)
        for parameter in params:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            for i, matrix in enumerate(self._views[id(parameter)](parameter)):
                out, columns = matrix.shape
                result = results.get((id(parameter), i))
                if result is None:
                    result = self._iterated(group, parameter, i)
                larger = 0.2 * math.sqrt(max(out, columns))
                scale = larger if self._adjust == "match_rms_adamw" else math.sqrt(max(1, out / columns))
                matrix.add_(result.t() if out > columns else result, alpha=-group["lr"] * scale)

    def _iterated(self, group: dict[str, Any], parameter: Tensor, index: int) -> Tensor:
        """Returns the iterations on a matrix, whose momentum has been updated."""
        views = self._views[id(parameter)]
        momentum = views(self.state[parameter]["momentum_buffer"])[index]
        gradient = views(parameter.grad)[index]
        return orthogonalized(gradient.lerp(momentum, group["momentum"]), self._dtype or parameter.dtype)

    def _shared(self, group: dict[str, Any], params: Sequence[Tensor]) -> dict[tuple[int, int], Tensor]:
        """Returns the results for parameters that several processes hold, by id and index of the matrix."""
        results: dict[tuple[int, int], Tensor] = {}
        pending = []
        for ranks, members in self._groups.items():
            if self._rank not in ranks:
                continue
            held = [
                (parameter, i, matrix)
                for parameter in params
                if self._ranks[id(parameter)] == ranks
                for i, matrix in enumerate(self._views[id(parameter)](parameter))
            ]
            member_of = share_out([flops_of(matrix) for _, _, matrix in held], len(ranks))
            for member in range(len(ranks)):
                own = [each for each, owner in zip(held, member_of, strict=True) if owner == member]
                if not own:
                    continue
                dtype = self._dtype or own[0][0].dtype
                flat = torch.empty(sum(matrix.numel() for _, _, matrix in own), dtype=dtype)
                first = 0
                for parameter, i, matrix in own:
                    place = flat[first : first + matrix.numel()].view(sorted(matrix.shape))
                    first += matrix.numel()
                    if ranks[member] == self._rank:
                        place.copy_(self._iterated(group, parameter, i))
                    results[id(parameter), i] = place
                options = torch.distributed.BroadcastOptions()
                options.rootRank = member
                pending.append(members.broadcast([flat.view(torch.uint8)], options))
        for work in pending:
            self._processes.finish(work)
        return {key: place.to(params[0].device) for key, place in results.items()}

    def _update_others(self, group: dict[str, Any], params: Sequence[Tensor]) -> None:
        for parameter in params:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in params]
        adamw(
            list(params), [p.grad for p in params], [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states], [], [state["step"] for state in states], amsgrad=False,
            beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"], weight_decay=group["weight_decay"],
            eps=group["eps"], maximize=False,
        )
