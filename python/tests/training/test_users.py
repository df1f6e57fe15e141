"""What users do with models, on rank threads; test_two_ranks.py repeats it on processes."""

import copy
import functools

import pytest
import torch
from models import perceptron, squares
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask
from users import CASES, SCHEDULES, Pair, nothing_trained_in_places, refused, samples

import chimerapipe as cp


@pytest.mark.parametrize("case", [*CASES, nothing_trained_in_places], ids=lambda case: case.__name__)
def test_results_are_those_of_plain_torch(case):
    for schedule in SCHEDULES:
        case(schedule)


def test_named_parameters_are_those_that_train_and_an_optimizer_over_others_is_refused():
    pair = Pair(perceptron(4).layers, "chimera")
    pair.make = lambda parameters: torch.optim.SGD(parameters, lr=0.1)
    named = dict(pair.pipeline.named_parameters())
    assert list(named) == list(dict(pair.plain.named_parameters()))
    pair.optimizers = [pair.make(pair.plain.parameters()), pair.make(named.values())]
    for _ in range(2):
        pair.step(*samples())
    step = functools.partial(pair.pipeline.step, *samples())
    others = torch.optim.SGD(list(named.values())[1:], lr=1)
    refused(lambda: step(optimizer=others), "misses 0.0.weight and 0 more of 8")
    foreign = [*named.values(), nn.Parameter(torch.zeros(3))]
    refused(lambda: step(optimizer=torch.optim.SGD(foreign, lr=1)), "[3] of float32 that is not of this pipeline")
    refused(lambda: step(optimizer="adam"), "optimizer: got a str")
    pair.step(*samples())


class HooksNodes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()
        self.calls = 0

    def _double(self, given, arrived):
        self.calls += 1
        return tuple(None if each is None else each * 2 for each in given)

    def forward(self, x):
        hidden = self.first(x)
        if hidden.grad_fn is not None:
            hidden.grad_fn.register_hook(self._double)
        return self.second(hidden * self.second.bias)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_hooks_of_nodes_run_once(schedule):
    layers = [*perceptron(4).layers[:2], HooksNodes(), *perceptron(4).layers[:1]]
    pair = Pair(layers, schedule)
    pair.step(*samples())
    assert pair.plain[2].calls == 1 and layers[2].calls == 4


class MakesMask(nn.Linear):
    """Its value has no message: layers of a stage pass it on."""

    def forward(self, x):
        lower = lambda batch, head, query, key: query >= key
        length = x.shape[1]
        return super().forward(x), create_block_mask(lower, None, None, length, length, device="cpu", BLOCK_SIZE=1)


class AttendsByMask(nn.Linear):
    def __init__(self, *sizes, is_last=False):
        super().__init__(*sizes)
        self.is_last = is_last

    def forward(self, value):
        x, mask = value
        scores = (super().forward(x) @ x.mT).masked_fill(mask.to_dense()[0] == 0, -torch.inf)
        x = x + scores.softmax(-1) @ x
        return x if self.is_last else (x, mask)


@pytest.mark.parametrize("schedule", ["zb-h1", "chimera-zb"])
def test_a_block_mask_passes_a_split_backward(schedule):
    middle = [AttendsByMask(6, 6).double(), AttendsByMask(6, 6, is_last=True).double()]
    layers = [nn.Linear(6, 6).double(), MakesMask(6, 6).double(), *middle, *perceptron(4).layers[:1]]
    pair = Pair(layers, schedule, partition=[4, 1])
    for _ in range(2):
        pair.step(torch.randn(4, 5, 6).double(), torch.randn(4, 5, 6).double())
    between = Pair(layers, schedule, partition=[2, 3]).pipeline
    with pytest.raises(TypeError, match=r"layer 1 \(MakesMask\) returns a tuple: it has a BlockMask; give tensors"):
        between.step(*[torch.randn(4, 5, 6).double()] * 2)


def test_losses_that_are_no_sum_or_have_parameters_are_refused():
    layers, schedule = perceptron(4).layers, cp.schedule("1f1b", 2, 4)
    partial = functools.partial(nn.functional.mse_loss, reduction="mean")
    for loss in (nn.MSELoss(), nn.functional.mse_loss, partial, nn.CrossEntropyLoss(reduction="none")):
        refused(lambda loss=loss: cp.Pipeline(layers, loss, schedule), "give it reduction='sum'", cp.ConfigError)
    cp.Pipeline(layers, functools.partial(nn.functional.mse_loss, reduction="sum"), schedule)

    class Weighted(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def forward(self, output, target):
            return squares(output, target) * self.scale

    loss = Weighted()
    for given in (loss, loss.forward):
        refused(lambda given=given: cp.Pipeline(layers, given, schedule), "parameter 'scale'", cp.ConfigError)
    cp.Pipeline(layers, loss.requires_grad_(False), schedule)
    pair = Pair(layers, "1f1b")
    pair.pipeline = cp.Pipeline(pair.layers, nn.MSELoss(reduction="sum"), schedule)
    pair.step(*samples())


def test_all_frozen_is_refused_and_validated():
    pair = Pair([layer.requires_grad_(False) for layer in perceptron(4).layers], "1f1b")
    refused(lambda: pair.pipeline.step(*samples()), "no parameter of any layer requires grad", cp.ConfigError)
    pair.validate(*samples())


def test_refused_data_leave_the_pipeline_usable():
    counts = lambda target: int((target != 0).sum())
    pair = Pair(perceptron(4).layers, "chimera", count=counts)
    inputs, targets = samples()
    pair.step(inputs, targets)
    refused(lambda: pair.pipeline.step(inputs, targets * 0), "count is 0 for all targets", cp.ConfigError)
    pair.step(inputs, targets)
    with pytest.raises(RuntimeError, match="dtype|Float"):
        pair.pipeline.step(inputs.float(), targets)
    pair.step(inputs, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pair.step(inputs, targets)  # Autocast leaves float64 as it is
    pair.step(inputs, targets)


def test_a_layer_of_two_stages_must_not_write_to_its_buffers():
    layers = perceptron(4).layers
    layers[1] = layers[3] = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).double()
    pair = Pair(layers, "1f1b", micro_batch_size=2)
    refused(lambda: pair.pipeline.step(*samples(8)), "', which it shares with another stage", cp.ConfigError)


def test_layers_see_real_data_first():
    first = {}

    class Sees(nn.Linear):
        def forward(self, x):
            first.setdefault(id(self), x.detach().clone())
            return super().forward(x)

    layers = [Sees(6, 6).double() for _ in range(4)]
    inputs, targets = samples()
    cp.Pipeline(layers, squares, cp.schedule("1f1b", 4, 4)).step(inputs, targets)
    hidden = inputs[:1]
    for layer in layers:
        torch.testing.assert_close(first[id(layer)], hidden, rtol=1e-12, atol=0)
        hidden = nn.functional.linear(hidden, layer.weight, layer.bias)


def test_inference_mode_does_not_spoil_a_pipeline():
    pair = Pair(perceptron(4).layers, "chimera")
    inputs, targets = samples()
    with torch.inference_mode():
        pair.validate(inputs * 1, targets)
        made = inputs * 1
        refused(lambda: pair.pipeline.step(inputs, targets), "under inference_mode", cp.ConfigError)
        parameters = [copy.deepcopy(layer) for layer in perceptron(4).layers]
        inference = [nn.Linear(6, 6).double()]
    pair.step(inputs, targets)
    pair.pipeline.step(made, targets)
    assert parameters
    refused(lambda: cp.Pipeline(inference, squares, cp.schedule("gpipe", 1, 1)), "made under inference_mode")


def test_calls_on_two_threads_and_wrong_widths_have_one_line():
    layers = perceptron(4).layers
    pipeline = cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 4))
    found = []
    hook = layers[0].register_forward_pre_hook(
        lambda *_: found.append(refused(lambda: pipeline.validate(*samples()), "busy with a call on another thread"))
    )
    pipeline.step(*samples(), clip=None)
    hook.remove()
    assert len(found) == 4 and pipeline.step(*samples()).loss > 0
    layers[2] = nn.Linear(7, 6).double()
    with pytest.raises(RuntimeError, match="mat1 and mat2") as error:
        cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 4)).step(*samples())
    notes = getattr(error.value, "__notes__", ["layer 2 (Linear) failed on its first value, with tensors [[1, 6]]"])
    assert notes == ["layer 2 (Linear) failed on its first value, with tensors [[1, 6]]"]
    assert cp.__version__.count(".") == 2
