"""Pipelines of distributed layers, compared with the whole model in float64.

Usage: under 4 or 8 ranks.
"""

import copy
import functools
import math
import os
import re
from collections import OrderedDict

import torch
import torch.distributed.checkpoint as dcp
from hugging_face_models import llama
from models import backward_of_mean, cross_entropy, plain_step, squares
from torch import distributed, nn
from torch.distributed._composable import replicate
from torch.distributed._composable.replicate_with_fsdp import replicate as replicate_with_fsdp
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from transformers.distributed.tensor_parallel import apply_tensor_parallelism
from users import refused

import chimerapipe as cp
from chimerapipe._placed import local_of

SCHEDULES = ["1f1b", "zb-h1", "chimera", "chimera-zb"]
STEPS, BATCH, WIDTH = 5, 4, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.second(nn.functional.gelu(self.first(self.norm(x))))


def blocks(seed=1, count=4):
    torch.manual_seed(seed)
    return [Block().double() for _ in range(count)]


def full(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def expect_gradients(pipeline, whole, step=None):
    """Compares gradients with those of the whole model, and their norm."""
    expected = {name: parameter.grad for name, parameter in whole.named_parameters()}
    if step is not None:
        norm = nn.utils.get_total_norm([each for each in expected.values() if each is not None]).item()
        assert abs(step.gradient_norm - norm) < 1e-12 * max(norm, 1)
    for name, parameter in pipeline.named_parameters():
        same = expected[name.replace("module.", "")]
        torch.testing.assert_close(full(parameter.grad), same, rtol=1e-12, atol=1e-12, msg=name)


def expect_values(pipeline, whole, rtol=1e-12, atol=1e-12):
    expected = dict(whole.named_parameters())
    for name, parameter in pipeline.named_parameters():
        same = expected[name.replace("module.", "")].detach()
        torch.testing.assert_close(full(parameter.detach()), same, rtol=rtol, atol=atol, msg=name)


def trains_like_the_whole_model(mesh, schedule, prepare, tolerance=1e-12, **options):
    """`prepare` distributes a layer. Returns the pipeline."""
    plain = blocks()
    whole = nn.Sequential(*copy.deepcopy(plain))
    made = [prepare(copy.deepcopy(layer)) for layer in plain]
    pipeline = cp.Pipeline(made, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"], **options)
    named = [(f"{i}.{n}", p) for i, each in enumerate(made) for n, p in each.named_parameters()]
    names = {id(parameter): name.replace("module.", "") for name, parameter in named}
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (whole, pipeline)]
    shares, share = pipeline.width, pipeline.group
    if "dp" in mesh.mesh_dim_names:
        shares, share = mesh["dp"].size(), mesh["dp"].get_local_rank()
    torch.manual_seed(2)
    for number in range(STEPS):
        inputs, targets = torch.randn(2, shares * BATCH, WIDTH).double()
        own = slice(share * BATCH, (share + 1) * BATCH)
        optimizers[0].zero_grad()
        outputs = whole(inputs).detach()
        losses = [squares(a, b).item() / b.numel() for a, b in zip(outputs.split(BATCH), targets.split(BATCH))]
        backward_of_mean(whole, inputs, targets)
        norm = nn.utils.get_total_norm([p.grad for p in whole.parameters()]).item()
        clip = (0.5 * norm, 0)[number % 2]
        nn.utils.clip_grad_norm_(whole.parameters(), clip or math.inf)
        optimizers[0].step()
        step = pipeline.step(inputs[own], targets[own], clip=clip, optimizer=optimizers[1], return_outputs=True)
        loss = losses[share] if pipeline.width == 1 else sum(losses) / shares
        assert abs(step.loss - loss) <= tolerance * loss, (step.loss, losses)
        assert abs(step.gradient_norm - norm) <= tolerance * norm, (step.gradient_norm, norm)
        if step.outputs is not None:
            torch.testing.assert_close(full(step.outputs), outputs[own], rtol=tolerance, atol=tolerance)
        expected = dict(whole.named_parameters())
        for parameter in pipeline.parameters():
            same = expected[names[id(parameter)]]
            found = [full(parameter.grad), full(parameter.detach())]
            message = lambda text, p=parameter: f"{names[id(p)]}: {text}"
            torch.testing.assert_close(found, [same.grad, same.detach()], rtol=tolerance, atol=tolerance, msg=message)
    outputs = whole(inputs[own]).detach()
    for parameter in pipeline.parameters():
        momentum = optimizers[1].state[parameter]["momentum_buffer"]
        assert all(local_of(each).shape == local_of(parameter).shape for each in (momentum, parameter.grad))
    predicted = pipeline.predict(inputs[own], gather=True)
    torch.testing.assert_close(predicted, outputs, rtol=tolerance, atol=tolerance)
    step = pipeline.step(inputs[own], targets[own], optimizer=optimizers[1])  # Whole again after a prediction
    assert math.isfinite(step.loss)
    return pipeline


def tensor_parallel(mesh):
    plan = {"first": ColwiseParallel(), "second": RowwiseParallel()}
    return lambda layer: parallelize_module(layer, mesh["tp"], plan)


def tensors_of_parts(mesh, schedule):
    trains_like_the_whole_model(mesh, schedule, tensor_parallel(mesh))


def sequence_parallel(mesh, schedule):
    """Values between layers and stages are DTensors, and gradients of norms are partial sums."""
    plan = {
        "norm": SequenceParallel(sequence_dim=0),
        "first": ColwiseParallel(input_layouts=Shard(0)),
        "second": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
    }

    class Enters(Block):
        def forward(self, x):
            if not isinstance(x, DTensor):
                x = DTensor.from_local(x, mesh["tp"], [Replicate()]).redistribute(placements=[Shard(0)])
            return super().forward(x)

    whole, layers = nn.Sequential(*blocks()), blocks()
    layers[0].__class__ = Enters
    made = [parallelize_module(layer, mesh["tp"], plan) for layer in layers]
    loss = lambda output, target: squares(full(output), target)
    pipeline = cp.Pipeline(
        made, loss, cp.schedule(schedule, 2, 4), mesh=mesh["pp"], micro_batch_size=2, check_loss=False
    )
    torch.manual_seed(2)
    inputs, targets = torch.randn(2, 8, WIDTH).double()
    step = pipeline.step(inputs, targets)
    assert abs(step.loss - backward_of_mean(whole, inputs, targets)) < 1e-12
    expect_gradients(pipeline, whole, step)


def llama_with_its_own_plan(mesh, schedule):
    """A model of transformers with its tensor-parallel plan."""
    torch.manual_seed(1)
    whole = llama(num_key_value_heads=2, tie_word_embeddings=schedule == "1f1b")
    model = copy.deepcopy(whole)
    wildcards = {name: re.sub(r"\.\d+\.", ".*.", name) for name, _ in model.named_modules()}
    plan = {name: model.tp_plan[known] for name, known in wildcards.items() if known in model.tp_plan}
    weights = {name for name, _ in model.named_parameters()}
    plan |= {f"{name}.weight": style for name, style in plan.items() if f"{name}.weight" in weights}
    apply_tensor_parallelism(model, mesh["tp"], plan)
    model.tie_weights()
    assert sum(isinstance(parameter, DTensor) for parameter in model.parameters()) >= 14
    pipeline = cp.Pipeline(cp.layers_of(model), cross_entropy, cp.schedule(schedule, 2, 4), mesh=mesh["pp"])
    tokens = torch.arange(20).view(4, 5) % 31
    step = pipeline.step(tokens, tokens + 1)
    loss = cross_entropy(whole(tokens).logits, tokens + 1) / 20
    loss.backward()
    assert abs(step.loss - loss.item()) < 1e-12
    expect_gradients(pipeline, whole, step)


def shared_by_stages(mesh, schedule):
    """The first and the last layer have a weight in common."""
    whole = nn.Sequential(*blocks())
    whole[3].first.weight = whole[0].first.weight
    layers = [tensor_parallel(mesh)(layer) for layer in copy.deepcopy(whole)]
    layers[3].first.weight = layers[0].first.weight
    pipeline = cp.Pipeline(layers, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"])
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (whole, pipeline)]
    torch.manual_seed(2)
    for clip in (0.0, 0.1):
        inputs, targets = torch.randn(2, BATCH, WIDTH).double()
        step = pipeline.step(inputs, targets, clip=clip, optimizer=optimizers[1])
        loss, norm = plain_step(whole, optimizers[0], inputs, targets, clip)
        assert abs(step.loss - loss) < 1e-12 and abs(step.gradient_norm - norm) < 1e-12
        expected = dict(whole.named_parameters(remove_duplicate=False))
        for layer in pipeline._layers.every:
            for name, parameter in layer.module.named_parameters():
                same = expected[f"{layer.index}.{name}"].detach()
                torch.testing.assert_close(full(parameter.detach()), same, rtol=1e-9, atol=1e-12, msg=name)


def shards(mesh, **options):
    return lambda layer: fully_shard(layer, mesh=mesh["dp"], **options)


def sharded(mesh, schedule):
    """Whole layers, or also their parts; weights are gathered again for backwards, or kept."""

    def parts(layer):
        fully_shard(layer.first, mesh=mesh["dp"], reshard_after_forward=False)
        return shards(mesh, reshard_after_forward=False)(layer)

    ways = [shards(mesh, reshard_after_forward=True), parts]
    for prepare in ways if schedule in ("1f1b", "chimera-zb") else ways[:1]:
        pipeline = trains_like_the_whole_model(mesh, schedule, prepare)
        for parameter in pipeline.parameters():
            assert parameter.to_local().numel() <= -(-parameter.shape[0] // 2) * math.prod(parameter.shape[1:])
    groups = [part for layer in pipeline._layers.every for part in layer.module._get_fsdp_state()._state_ctx.all_states]
    reductions = []
    reduce = _fsdp_param_group.foreach_reduce
    _fsdp_param_group.foreach_reduce = lambda *given, **named: reductions.append(1) or reduce(*given, **named)
    pipeline.step(*torch.randn(2, BATCH, WIDTH).double())
    _fsdp_param_group.foreach_reduce = reduce
    assert len(reductions) == len(groups), "one reduction of each group in a step"


def replicated(mesh, schedule):
    group = mesh["dp"].get_group()
    for prepare in (
        lambda layer: DistributedDataParallel(layer, process_group=group),
        lambda layer: replicate(layer, process_group=group),
        lambda layer: replicate_with_fsdp(layer, mesh=mesh["dp"]),
    ):
        trains_like_the_whole_model(mesh, schedule, prepare)


def mixed_precision(mesh, schedule):
    """Weights and gradients stay float32; forwards compute, and stages send, in bfloat16."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    made = [shards(mesh, mp_policy=policy)(layer.float()) for layer in blocks()]
    alone = [shards(mesh, mp_policy=policy)(layer.float()) for layer in blocks()]
    loss = lambda output, target: squares(output.float(), target)
    pipeline = cp.Pipeline(made, loss, cp.schedule(schedule, 2, 4), mesh=mesh["pp"], micro_batch_size=2)
    torch.manual_seed(3 + mesh["dp"].get_local_rank())
    inputs, targets = torch.randn(2, 8, WIDTH)
    step = pipeline.step(inputs, targets, return_outputs=True)
    expected = loss(nn.Sequential(*alone)(inputs), targets) / targets.numel()
    expected.backward()
    assert abs(step.loss - expected.item()) < 1e-3 * expected.item()
    gradients = {f"{i}.{n}": p.grad for i, layer in enumerate(alone) for n, p in layer.named_parameters()}
    for name, parameter in pipeline.named_parameters():
        assert parameter.dtype == parameter.grad.dtype == torch.float32
        # Sums over micro-batches are added in float32 here, in bfloat16 there
        torch.testing.assert_close(full(parameter.grad), full(gradients[name]), rtol=0.05, atol=0.01, msg=name)


def ways_of(mesh):
    return [shards(mesh), lambda layer: DistributedDataParallel(layer, process_group=mesh["dp"].get_group())]


def llama_sharded(mesh, schedule):
    """A model of transformers whose parts are sharded; the model around them must not be."""
    torch.manual_seed(1)
    whole = llama(num_key_value_heads=2)
    model = copy.deepcopy(whole)
    layers = cp.layers_of(model)
    for part in (model.model.embed_tokens, *model.model.layers, model.model.norm, model.lm_head):
        fully_shard(part, mesh=mesh["dp"])
    refused(lambda: cp.layers_of(model), "call layers_of first, and fully_shard", cp.ConfigError)
    pipeline = cp.Pipeline(layers, cross_entropy, cp.schedule(schedule, 2, 4), mesh=mesh["pp"])
    assert sum(len(parts._sharded) for parts in pipeline._layers.parts.values()) >= 2
    tokens = torch.arange(20).view(4, 5) % 31
    for _ in range(2):
        step = pipeline.step(tokens, tokens + 1)
    cross_entropy(whole(tokens).logits, tokens + 1).div(20).backward()
    expect_gradients(pipeline, whole, step)
    around = fully_shard(nn.Sequential(*map(shards(mesh), blocks())), mesh=mesh["dp"])
    words = "fully_shard has wrapped the model around the layers"
    refused(lambda: cp.Pipeline(around, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"]), words)


def recomputed(mesh, schedule):
    trains_like_the_whole_model(mesh, schedule, shards(mesh), recompute=True)


def accumulated(mesh, schedule):
    """Gradients of two steps add up, whole as in their norm."""
    for prepare in ways_of(mesh):
        whole = nn.Sequential(*blocks())
        made = [prepare(layer) for layer in blocks()]
        pipeline = cp.Pipeline(made, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"])
        for number in range(2):
            torch.manual_seed(number)
            inputs, targets = torch.randn(2, BATCH, WIDTH).double()
            step = pipeline.step(inputs, targets, zero_gradients=number == 0, scale_loss=0.5)
            backward_of_mean(whole, inputs, targets, factor=0.5)
        expect_gradients(pipeline, whole, step)


def scaled(mesh, schedule):
    """A gradient that is not finite skips the update on all ranks, or raises on all."""
    for prepare in ways_of(mesh):
        made = [prepare(layer.float()) for layer in blocks()]
        pipeline = cp.Pipeline(made, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"])
        optimizer = torch.optim.SGD(pipeline.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
        inputs, targets = torch.ones(2, BATCH, WIDTH)
        for size in (1, 1e30, 1):
            step = pipeline.step(inputs, targets * size, optimizer=optimizer, scaler=scaler, clip=1.0)
            assert step.skipped == (size > 1)
        assert scaler.get_scale() == 32.0
        refused(lambda made=pipeline: made.step(inputs, targets * math.nan), "the loss or a gradient is not finite")


class Experts(nn.Module):
    """Each rank of a group has an expert, and sends it the tokens of all ranks that choose it."""

    def __init__(self, group=None):
        super().__init__()
        self.router = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.group = group

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).max(-1)
        if self.group is None:
            results = torch.stack([expert(x) for expert in self.experts])
            return x + weights[:, None] * results[chosen, torch.arange(len(x))]
        order = chosen.argsort(stable=True)
        sent = chosen.bincount(minlength=2)
        got = torch.empty_like(sent)
        distributed.all_to_all_single(got, sent, group=self.group)
        arrived = all_to_all_single_autograd(x[order], got.tolist(), sent.tolist(), self.group)
        results = self.experts[distributed.get_rank(self.group)](arrived.contiguous())
        back = all_to_all_single_autograd(results, sent.tolist(), got.tolist(), self.group)
        return x + weights[:, None] * back[order.argsort()]


def experts_of_a_group(mesh, schedule):
    """Each rank of the group has other samples. The loss is the mean over both."""
    torch.manual_seed(1)
    group, own = mesh["dp"].get_group(), mesh["dp"].get_local_rank()
    words = "clip: layer 0 (Experts) has a group of its own, 'group', whose ranks would clip by other norms; leave clip"
    plain = [Experts().double() for _ in range(4)]
    whole, made = nn.Sequential(*plain), copy.deepcopy(plain)
    for layer in made:
        layer.group = group
        layer.experts[1 - own] = nn.Identity()
    pipeline = cp.Pipeline(made, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"], micro_batch_size=3)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (whole, pipeline)]
    clipped = lambda: pipeline.step(torch.ones(12, WIDTH).double(), torch.ones(12, WIDTH).double(), clip=1.0)
    refused(clipped, words if pipeline.has_first_stage else "", cp.ConfigError)
    for _ in range(STEPS):
        inputs, targets = torch.randn(2, 24, WIDTH).double()
        share = slice(12 * own, 12 * own + 12)
        loss, _ = plain_step(whole, optimizers[0], inputs, targets)
        mean = torch.tensor(pipeline.step(inputs[share], targets[share]).loss, dtype=torch.float64)
        distributed.all_reduce(mean, group=group)
        assert abs(mean.item() / 2 - loss) < 1e-12
        for name, parameter in pipeline.named_parameters():
            if "router" in name:
                distributed.all_reduce(parameter.grad, group=group)
            parameter.grad.div_(2)
        optimizers[1].step()
        expect_gradients(pipeline, whole)
        expect_values(pipeline, whole)


class Ends(nn.Module):
    """Ends with the result of a collective that nobody has awaited, or with a view of it."""

    def __init__(self, views):
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH, bias=False)
        self.views = views

    def forward(self, x):
        x = self.second(self.first(x).tanh())
        return {0: x, 1: x.view(-1, WIDTH), 2: {"value": x}}[self.views] if self.views else x


class Reads(nn.Module):
    def forward(self, value):
        return value["value"] * 1.5 if isinstance(value, dict) else value * 1.5


def results_of_collectives(mesh, schedule):
    """Stages end with them, in a message, within a stage and as the output."""
    for views in range(3):
        torch.manual_seed(1)
        whole = nn.Sequential(*[nn.Sequential(Reads(), Ends(views)) for _ in range(4)]).double()
        made = [layer for pair in copy.deepcopy(whole) for layer in pair]
        for layer in made[1::2]:
            tensor_parallel(mesh)(layer)
        loss = lambda output, target: squares(output["value"] if isinstance(output, dict) else output, target)
        pipeline = cp.Pipeline(made, loss, cp.schedule(schedule, 2, 4), mesh=mesh["pp"], partition=[4, 4])
        inputs, targets = torch.randn(2, BATCH, WIDTH).double()
        distributed.broadcast(inputs, 0), distributed.broadcast(targets, 0)
        for _ in range(2):
            step = pipeline.step(inputs, targets, return_outputs=True)
        outputs = whole(inputs)
        expected = loss(outputs, targets) / targets.numel()
        expected.backward()
        assert abs(step.loss - expected.item()) < 1e-12
        if step.outputs is not None:
            torch.testing.assert_close(step.outputs, outputs, rtol=1e-12, atol=1e-12)
        parameters = [(i, n, p) for i, each in enumerate(whole) for n, p in each.named_parameters()]
        gradients = {f"{2 * i + int(n[0])}{n[1:]}": p.grad for i, n, p in parameters}
        for name, parameter in pipeline.named_parameters():
            torch.testing.assert_close(full(parameter.grad), gradients[name], rtol=1e-12, atol=1e-12, msg=name)


def started_again(mesh, schedule):
    """Other lengths and frozen weights of distributed layers, with gradients kept over a validation."""
    ways = [tensor_parallel(mesh)] if "tp" in mesh.mesh_dim_names else ways_of(mesh)
    for prepare in ways:
        whole = nn.Sequential(*blocks())
        made = [prepare(layer) for layer in blocks()]
        pipeline = cp.Pipeline(made, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"])
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (whole, pipeline)]
        for number in range(5):
            torch.manual_seed(number)
            inputs, targets = torch.randn(2, BATCH, 2 + number % 2, WIDTH).double()
            for model in (whole, nn.Sequential(*made)):
                for name, parameter in model.named_parameters():
                    parameter.requires_grad_(number != 3 or name.startswith("3."))
            loss, _ = plain_step(whole, optimizers[0], inputs, targets)
            assert abs(pipeline.step(inputs, targets).loss - loss) < 1e-12
            pipeline.validate(torch.randn(BATCH, 7, WIDTH).double(), torch.randn(BATCH, 7, WIDTH).double())
            optimizers[1].step()
            expect_gradients(pipeline, whole)
            expect_values(pipeline, whole)


def saved_in_one_layout_and_loaded_in_others(mesh, schedule):
    """torch.distributed.checkpoint: from 2 x 2 tensor-parallel ranks to sharded ones, and to the plain model."""
    folder = os.environ["FOLDER"]
    adam = functools.partial(torch.optim.AdamW, lr=0.01)
    inputs, targets = torch.randn(2, BATCH, WIDTH).double()
    distributed.broadcast(inputs, 0), distributed.broadcast(targets, 0)
    model = nn.Sequential(OrderedDict(zip("abcd", blocks(), strict=True)))
    for layer in model:
        tensor_parallel(mesh)(layer)
    pipeline = cp.Pipeline(model, squares, cp.schedule(schedule, 2, 4), mesh=mesh["pp"])
    optimizer = adam(pipeline.parameters())
    for _ in range(2):
        pipeline.step(inputs, targets, optimizer=optimizer)
    saved = {"model": pipeline.state_dict(), "optimizer": pipeline.optimizer_state_dict(optimizer)}
    assert "a.first.weight" in saved["model"] and "state.a.first.weight.exp_avg" in saved["optimizer"]
    dcp.save(saved, checkpoint_id=folder)
    pipeline.step(inputs, targets, optimizer=optimizer)

    plain = nn.Sequential(OrderedDict(zip("abcd", blocks(seed=9), strict=True)))
    shards_of_tp = lambda layer: fully_shard(layer, mesh=mesh["tp"])
    other = nn.Sequential(OrderedDict(zip("abcd", map(shards_of_tp, blocks(seed=8)), strict=True)))
    second = cp.Pipeline(other, squares, cp.schedule("1f1b", 2, 4), mesh=mesh["pp"])
    optimizers = [adam(plain.parameters()), adam(second.parameters())]
    flat = StateDictOptions(flatten_optimizer_state_dict=True)
    of_plain = get_optimizer_state_dict(plain, optimizers[0], options=flat)
    states = [
        {"model": plain.state_dict(), "optimizer": of_plain},
        {"model": second.state_dict(), "optimizer": second.optimizer_state_dict(optimizers[1])},
    ]
    for state in states:
        dcp.load(state, checkpoint_id=folder)
    second.load_optimizer_state_dict(optimizers[1], states[1]["optimizer"])
    second.step(inputs, targets, optimizer=optimizers[1])
    set_optimizer_state_dict(plain, optimizers[0], states[0]["optimizer"], options=flat)
    plain_step(plain, optimizers[0], inputs, targets)
    for each in (pipeline, second):
        expect_values(each, plain, rtol=1e-9, atol=1e-10)
    refused(lambda: pipeline.save_checkpoint(folder), "layers have DTensors", cp.ConfigError)
    named = nn.Sequential(OrderedDict(zip("abcd", blocks(), strict=True))).state_dict()
    values = {name: torch.randn_like(value) for name, value in named.items()}
    for value in values.values():
        distributed.broadcast(value, 0)
    pipeline.load_state_dict(values)
    for name, parameter in pipeline.named_parameters():
        assert torch.equal(full(parameter.detach()), values[name]), name
    pipeline.gather()
    shared = blocks()
    shared[0].first.weight = shared[3].first.weight
    shared = [DistributedDataParallel(layer, process_group=mesh["tp"].get_group()) for layer in shared]
    words = "layer 0 (DistributedDataParallel) is wrapped by fully_shard, replicate or DistributedDataParallel, but"
    refused(lambda: cp.Pipeline(shared, squares, cp.schedule("1f1b", 2, 4), mesh=mesh["pp"]), words, cp.ConfigError)


def sharded_and_tensors_of_parts(mesh, schedule):
    """On eight ranks."""
    prepare = lambda layer: shards(mesh)(tensor_parallel(mesh)(layer))
    trains_like_the_whole_model(mesh, schedule, prepare)


def groups_and_tensors_of_parts(mesh, schedule):
    """On eight ranks: the pipeline's dimension has two data-parallel groups of its own."""
    trains_like_the_whole_model(mesh, schedule, tensor_parallel(mesh), data_parallel=2)


# Sizes of the mesh, and the schedules of each case on it, by the number of ranks
ON_RANKS = {
    4: [
        ({"pp": 2, "tp": 2}, {
            tensors_of_parts: SCHEDULES,
            shared_by_stages: ["1f1b", "chimera"],
            results_of_collectives: ["1f1b", "chimera", "chimera-zb"],
            **dict.fromkeys([sequence_parallel, llama_with_its_own_plan, started_again], ["1f1b", "chimera-zb"]),
            saved_in_one_layout_and_loaded_in_others: ["chimera"],
        }),
        ({"pp": 2, "dp": 2}, {
            sharded: SCHEDULES,
            **dict.fromkeys([llama_sharded, replicated, mixed_precision, started_again], ["1f1b", "chimera-zb"]),
            recomputed: ["chimera-zb"], accumulated: ["chimera"], scaled: ["1f1b"],
            experts_of_a_group: ["1f1b", "chimera"],
        }),
    ],
    8: [
        ({"pp": 2, "dp": 2, "tp": 2}, {sharded_and_tensors_of_parts: SCHEDULES}),
        ({"pp": 4, "tp": 2}, {groups_and_tensors_of_parts: ["1f1b", "chimera-zb"]}),
    ],
}


def main():
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    for sizes, cases in ON_RANKS[distributed.get_world_size()]:
        mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
        for case, schedules in cases.items():
            for schedule in schedules:
                case(mesh, schedule)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
