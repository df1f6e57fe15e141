"""Pipelines of Python modules on rank threads: results of the unpipelined model, and refusals."""

import copy
import gc
import math
import weakref

import pytest
import torch
from equality import MODELS, SCHEDULES, TOLERANCE, expect_equal
from models import convolutions, perceptron, squares
from torch import nn
from users import Pair, refused, samples

import chimerapipe as cp


def pipeline_of(example, name="chimera", stages=4, micro_batches=4, parameters=None, **options):
    schedule = cp.schedule(name, stages, micro_batches, **(parameters or {}))
    return cp.Pipeline(example.layers, example.loss, schedule, **options)


@pytest.mark.parametrize("model", MODELS)
def test_gradients_of_every_schedule_are_those_of_the_whole_model(model):
    """On rank threads; test_four_ranks.py tests processes."""
    for schedule in SCHEDULES:
        assert expect_equal(model, schedule) > 0, schedule


def test_a_deleted_pipeline_is_freed_with_its_threads_and_copies():
    example = perceptron(samples=8)
    pipeline = pipeline_of(example, micro_batch_size=2)
    example.expect_unpipelined(pipeline)
    pipeline.validate(example.inputs, example.targets)
    freed = weakref.ref(pipeline)
    del pipeline
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("name", ["1f1b", "zb-h1", "chimera"])
def test_convolutions_with_and_without_recomputation(name):
    for recompute in (False, True):
        example = convolutions(samples=8)
        example.expect_unpipelined(pipeline_of(example, name, 2, 4, micro_batch_size=2, recompute=recompute))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [(True, [0, 1, 2, 3]), ("full", [0, 1, 2, 3]), ("none", []), ([2, 0], [0, 2]), (lambda stage: stage > 1, [2, 3])],
)
def test_the_chosen_stages_run_forward_again(choice, expected):
    example = perceptron(samples=4)
    calls = [0] * 4
    for index, layer in enumerate(example.layers):
        layer.register_forward_hook(lambda *_, index=index: calls.__setitem__(index, calls[index] + 1))
    pipeline = pipeline_of(example, "zb-h1", recompute=choice)
    assert pipeline.recomputed == expected
    pipeline.step(example.inputs, example.targets)
    calls[:] = [0] * 4
    example.expect_unpipelined(pipeline)
    assert [calls[index] - 4 - 1 for index in range(4)] == [4 * (index in expected) for index in range(4)]


@pytest.mark.parametrize("choice", ["some", "auto", "attention", [4], [-1], [0, "b"], 3])
def test_recomputation_of_what_there_is_not_is_refused(choice):
    make = lambda: pipeline_of(perceptron(samples=4), recompute=choice)
    words = str(refused(make, f"recompute={choice!r}: expected True, False, 'full', 'none', stage numbers from 0 to 3"))
    assert ("cp.plan" in words, "only GPT-2, BERT and Llama" in words) == (choice == "auto", choice == "attention")


def test_an_optimizer_of_torch_updates_all_copies_alike():
    pair = Pair(perceptron(samples=8).layers, "chimera", stages=4, micro_batch_size=2)
    for _ in range(3):
        pair.step(*samples(8), clip=0.1)
        pair.optimizers[1].zero_grad()  # Sets gradients to None; the next step attaches them again
    copies = {}
    for layer in pair.pipeline._layers.every:
        for name, parameter in layer.module.named_parameters():
            assert torch.equal(copies.setdefault((layer.index, name), parameter), parameter)


def test_values_are_loaded_by_global_names_and_validation_changes_nothing():
    example, other = perceptron(samples=8), perceptron(samples=8)
    pipeline = pipeline_of(example, micro_batch_size=2)
    pipeline.load_state_dict(nn.Sequential(*other.layers).state_dict())
    other.inputs, other.targets = example.inputs, example.targets
    expected, _ = other.unpipelined()
    assert pipeline.validate(example.inputs, example.targets) == pytest.approx(expected, rel=TOLERANCE)
    before = {name: value.clone() for name, value in pipeline.state_dict().items()}
    pipeline.validate(example.inputs, example.targets)
    assert all(torch.equal(before[name], value) for name, value in pipeline.state_dict().items())


def test_the_callers_random_numbers_go_on():
    example = perceptron(samples=4)
    state = torch.get_rng_state()
    pipeline_of(example).step(example.inputs, example.targets)
    assert torch.equal(torch.get_rng_state(), state)


class Scaled(torch.autograd.Function):
    """Frees its saved tensors in its only backward."""

    calls = 0

    @staticmethod
    def forward(context, x, weight):
        context.kept = (x, weight)
        return x * weight

    @staticmethod
    def backward(context, gradient):
        Scaled.calls += 1
        x, weight = context.kept
        del context.kept
        return gradient * weight, (gradient * x).sum(0)


class ScaledLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6).double())
        self.inner = nn.Linear(6, 6).double()

    def forward(self, x):
        hidden = self.inner(x)
        if hidden.requires_grad:
            hidden.register_hook(lambda gradient: gradient * 2)
        return Scaled.apply(hidden, self.weight) * self.weight


@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_functions_with_weights_and_hooks_run_once(name):
    example = perceptron(samples=4)
    example.layers[1:3] = [ScaledLayer(), ScaledLayer()]
    pipeline = pipeline_of(example, name, 2, 4)
    example.expect_unpipelined(pipeline)
    Scaled.calls = 0
    pipeline.step(example.inputs, example.targets)
    assert Scaled.calls == 8


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise KeyError("deliberate")


class Broken(nn.Linear):
    in_backward = False

    def forward(self, x):
        if torch.is_grad_enabled() and not self.in_backward:  # Not in the first forward
            raise KeyError("deliberate")
        return Refuses.apply(super().forward(x))


@pytest.mark.parametrize("in_backward", [False, True])
def test_an_exception_of_a_module_comes_back_with_its_traceback(in_backward):
    example = perceptron(samples=4)
    example.layers[2] = Broken(6, 6).double()
    example.layers[2].in_backward = in_backward
    pipeline = pipeline_of(example, "zb-h1" if in_backward else "chimera")
    with pytest.raises(KeyError, match="deliberate") as raised:
        pipeline.step(example.inputs, example.targets)
    assert "raise KeyError" in str(raised.traceback[-1])
    with pytest.raises(Exception, match="failed before"):
        pipeline.step(example.inputs, example.targets)


@pytest.mark.parametrize(("name", "width"), [("1f1b", 1), ("zb-h1", 1), ("chimera", 2)])
def test_autocast_around_a_step_reaches_all_ranks(name, width):
    example = perceptron(samples=16)
    example.layers = [layer.float() for layer in example.layers]
    example.inputs, example.targets = example.inputs.float(), example.targets.float()
    exact = copy.deepcopy(example)
    types = []
    example.layers[1].register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
    pipeline = pipeline_of(example, name, 2, 8 // width, micro_batch_size=2, data_parallel=width)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, gradients = example.unpipelined()
        types.clear()
        step = pipeline.step(example.inputs, example.targets)
        assert pipeline.validate(example.inputs, example.targets) == pytest.approx(step.loss, rel=1e-6)
    assert set(types) == {torch.bfloat16}
    assert step.loss == pytest.approx(loss, rel=1e-2) and step.loss != exact.unpipelined()[0]
    for parameter_name, parameter in pipeline.named_parameters():
        expected = gradients[parameter_name]
        # bfloat16 has 8 bits, and whole batches round differently from micro-batches.
        assert parameter.grad.dtype == torch.float32
        assert (parameter.grad - expected).norm() <= 0.03 * expected.norm(), parameter_name


def refused_in_copies(layer, buffer):
    example = perceptron(samples=8)
    example.layers[1] = layer
    step = lambda: pipeline_of(example, micro_batch_size=2).step(example.inputs, example.targets)
    assert str(refused(step, f"buffer '{buffer}.")).startswith("layer 1 ")


def test_what_copies_would_do_differently_is_refused_by_name():
    norm = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).double()
    refused_in_copies(norm, "1")
    example = perceptron(samples=8)
    example.layers[1] = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)).double()
    pipeline_of(example, "1f1b", micro_batch_size=2).step(example.inputs, example.targets)
    assert example.layers[1][1].num_batches_tracked == 4


def test_running_statistics_are_those_of_the_plain_model():
    """torch's kernels write them without a new version of the tensor."""
    instances = nn.Sequential(nn.Unflatten(1, (1, 6)), nn.InstanceNorm1d(1, track_running_stats=True), nn.Flatten())
    for norm in (nn.BatchNorm1d(6), instances):
        example = perceptron(samples=8)
        example.layers[1] = nn.Sequential(nn.Linear(6, 6), norm).double()
        plain = copy.deepcopy(example.layers[:2])
        pipeline_of(example, "1f1b", micro_batch_size=2).step(example.inputs, example.targets)
        for inputs in example.inputs.split(2):
            plain[1](plain[0](inputs))
        for buffer, expected in zip(example.layers[1].buffers(), plain[1].buffers(), strict=True):
            assert torch.equal(buffer, expected)
    refused_in_copies(nn.Sequential(nn.Linear(6, 6), instances).double(), "1.1")


def test_a_validation_returns_a_loss_that_is_not_finite():
    example = perceptron(samples=8)
    pipeline = pipeline_of(example, micro_batch_size=2)
    loss = pipeline.validate(example.inputs, example.targets)
    assert math.isnan(pipeline.validate(example.inputs * math.nan, example.targets))
    assert pipeline.validate(example.inputs, example.targets) == loss


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"schedule": "1f1b"}, "schedule: got a str; use cp.schedule"),
        ({"loss": None}, "loss: got a NoneType; give a function"),
        ({"partition": [1, 2, 2]}, "partition [1, 2, 2] must be 2 positive numbers"),
        ({"partition": "1,3"}, "partition: got the text '1,3'"),
        ({"partition": [1.5, 2.5]}, "partition: got 1.5; give a whole number"),
        ({"micro_batch_size": 0}, "micro_batch_size must be at least 1"),
        ({"micro_batch_size": "2"}, "micro_batch_size: got '2'; give a whole number"),
        ({"data_parallel": 1.5}, "data_parallel: got 1.5; give a whole number"),
        ({"layers": ["x", "y"]}, "layer 0 is a str; give an nn.Module, or a function"),
        ({"layers": [lambda: 3, lambda: 3]}, "layer 0: the factory returned a int, not an nn.Module"),
        ({"layers": nn.Linear(6, 6)}, "expected a model of transformers, not Linear"),
        ({"layers": [torch.tanh, nn.Linear(6, 6)]}, "layer 0: tanh() fails: "),
        ({"layers": [lambda x: x, nn.Linear(6, 6)]}, "give an nn.Module, or a function without arguments that"),
        ({"layers": [nn.Linear(6, 6, dtype=torch.complex64), nn.Linear(6, 6)]}, "parameter 'weight' is complex64"),
        ({"layers": [nn.Linear(6, 6).to(torch.float8_e4m3fn), nn.Linear(6, 6)]}, "'weight' is float8_e4m3fn"),
        ({"device": "gpu"}, "device gpu: expected cpu or cuda"),
    ],
)
def test_wrong_arguments_are_refused_in_pythons_words(arguments, words):
    usual = {"layers": perceptron(4).layers, "loss": squares, "schedule": cp.schedule("1f1b", 2, 4)}
    refused(lambda: cp.Pipeline(**{**usual, **arguments}), words, cp.ConfigError)


def test_wrong_values_in_a_step_are_refused_in_pythons_words():
    example = perceptron(samples=4)
    for pipeline, inputs, error, words in (
        (pipeline_of(example, "1f1b"), example.inputs[:3], cp.ConfigError, "3 samples, but a step of this process tak"),
        (pipeline_of(example, "1f1b"), [1, 2, 3, 4], cp.ConfigError, "inputs: got a list; give a tensor"),
        (pipeline_of(example, "1f1b", count=lambda target: 0.5), example.inputs, TypeError, "count returns a float"),
        (pipeline_of(example, "1f1b", count=lambda target: 0), example.inputs, Exception, "1: count is 0"),
        (pipeline_of(example, "1f1b"), example.inputs * torch.nan, Exception, "not finite.*lower learning rate"),
    ):
        with pytest.raises(error, match=words):
            pipeline.step(inputs, example.targets)


def test_a_schedule_of_ones_own_trains():
    example = perceptron(samples=2)
    schedule = cp.Schedule(["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"])
    example.expect_unpipelined(cp.Pipeline(example.layers, example.loss, schedule))
