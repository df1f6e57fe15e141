"""Losses that are no sums over samples, and loss scaling."""

import copy
import functools
import random
import warnings

import pytest
import torch
from models import perceptron, squares
from torch import nn
from torch.nn import functional
from users import Pair, refused, samples

import chimerapipe as cp


def pipeline_of(loss, micro_batch_size=2, schedule="1f1b", layers=None, **options):
    layers = layers or perceptron(4).layers
    return cp.Pipeline(layers, loss, cp.schedule(schedule, 2, 4), micro_batch_size=micro_batch_size, **options)


class Wrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MSELoss()

    def forward(self, output, target):
        return self.inner(output, target)


def contrastive(output, target):
    return functional.cross_entropy(output @ target.T, torch.arange(len(target)), reduction="sum")


@pytest.mark.parametrize("schedule", ["1f1b", "chimera", "zb-h1"])
@pytest.mark.parametrize("micro_batch_size", [1, 2, 3])
@pytest.mark.parametrize(
    "loss",
    [
        lambda output, target: functional.mse_loss(output, target),
        lambda output, target: (output - target).square().mean(),
        lambda output, target: squares(output, target) / len(target) + 0 * output.sum(),
        lambda output, target: squares(output, target) / output.numel() ** 0.5,
        lambda output, target: functional.mse_loss(output, target) + 0 * target.min(),  # Takes no empty part
        Wrapped(),
        functools.partial(lambda scale, output, target: scale * functional.mse_loss(output, target), 3.0),
    ],
)
def test_a_mean_in_a_function_is_refused(loss, micro_batch_size, schedule):
    model = pipeline_of(loss, micro_batch_size, schedule)
    inputs, targets = samples(4 * micro_batch_size)
    error = refused(lambda: model.step(inputs, targets), "return the sum over samples", cp.ConfigError)
    assert "check_loss=False" in str(error)
    refused(lambda: model.validate(inputs, targets), "return the sum over samples", cp.ConfigError)


@pytest.mark.parametrize("micro_batch_size", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_sums_train_in_all_types(micro_batch_size, scale, dtype):
    def weighted(output, target):
        return scale * functional.smooth_l1_loss(output.squeeze(), target.squeeze(), reduction="sum")

    layers = [layer.to(dtype) for layer in perceptron(4).layers]
    inputs, targets = samples(4 * micro_batch_size)
    pipeline_of(weighted, micro_batch_size, layers=layers).step(inputs.to(dtype), targets.to(dtype))


def test_losses_that_are_no_sums_train_when_asked():
    refused(lambda: pipeline_of(contrastive).step(*samples(8)), "check_loss=False", cp.ConfigError)
    assert pipeline_of(contrastive, check_loss=False).step(*samples(8)).loss > 0
    mean = lambda output, target: functional.mse_loss(output, target)
    assert pipeline_of(mean, check_loss=False, count=lambda target: 1).step(*samples(8)).loss > 0


def test_a_loss_that_draws_random_numbers_is_not_compared():
    def noisy(output, target):
        return squares(output, target) * (1 + torch.rand(())) + random.random()

    with pytest.warns(UserWarning, match="draws random numbers"):
        assert pipeline_of(noisy).step(*samples(8)).loss > 0


def test_means_over_several_targets_are_refused():
    inputs, targets = samples(8)
    weights = torch.rand(8, 1).double()
    count = lambda target: 12
    for pair, first, second in (((targets, weights), 0, 1), ({"y": targets, "w": weights}, "y", "w")):
        summed = lambda output, target, a=first, b=second: ((output - target[a]).square() * target[b]).sum()
        mean = lambda output, target, b=second, summed=summed: summed(output, target) / target[b].sum()
        assert pipeline_of(summed, count=count).step(inputs, pair).loss > 0
        model = pipeline_of(mean, count=count)
        refused(lambda model=model, pair=pair: model.step(inputs, pair), "return the sum", cp.ConfigError)


@pytest.mark.parametrize("schedule", ["1f1b", "chimera"])
def test_losses_that_cannot_be_compared_are_warned_of_once(schedule):
    whole_batches = lambda output, target: functional.mse_loss(output.view(2, 6), target.view(2, 6))
    layers = perceptron(4).layers
    layers[3] = nn.Sequential(layers[3], nn.Flatten(0))
    flat = lambda output, target: squares(output, target.flatten())
    for model, words in (
        (pipeline_of(whole_batches, schedule=schedule), "it fails for a part of a micro-batch"),
        (pipeline_of(flat, schedule=schedule, layers=layers), "another first dimension"),
    ):
        with pytest.warns(UserWarning, match=words) as warned:
            model.step(*samples(8))
        assert len(warned) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model.step(*samples(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline_of(flat, schedule=schedule, layers=layers, check_loss=False).step(*samples(8))


def test_zeros_decide_nothing_and_later_micro_batches_do():
    def masked_mean(output, target):
        mask = (target != 0).double()
        return ((output - target).square() * mask).sum() / mask.sum().clamp(min=1)

    inputs, targets = samples(8)
    targets[:2] = 0  # The first micro-batch
    refused(lambda: pipeline_of(masked_mean).step(inputs, targets), "return the sum over samples", cp.ConfigError)


def test_auxiliary_losses_of_a_micro_batch_are_left_out():
    class Router(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return {"logits": y, "aux_loss": y.square().mean()}

    layers = [*perceptron(4).layers[:3], Router(6, 6).double()]
    sums = lambda output, target: squares(output["logits"], target) + output["aux_loss"]
    pipeline_of(sums, layers=layers).step(*samples(8))
    means = lambda output, target: functional.mse_loss(output["logits"], target) + output["aux_loss"]
    refused(lambda: pipeline_of(means, layers=layers).step(*samples(8)), "return the sum", cp.ConfigError)


def test_a_gradient_scaler_skips_a_step_and_trains_like_no_scaler():
    pair = Pair(perceptron(4).layers, "chimera", micro_batch_size=2)
    model = pair.pipeline
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    scales = []
    for step in range(5):
        if step != 2:
            assert not pair.step(*samples(8), clip=0.5, scaler=scaler).skipped
        else:
            hook = pair.layers[1][0].weight.register_hook(lambda gradient: gradient * torch.inf)
            assert model.step(*samples(8), optimizer=pair.optimizers[1], clip=0.5, scaler=scaler).skipped
            hook.remove()
        scales.append(scaler.get_scale())
    assert scales == [2.0**10, 2.0**11, 2.0**10, 2.0**10, 2.0**11]
    refused(lambda: model.step(*samples(8), scaler=scaler), "scaler: needs optimizer=", cp.ConfigError)
    refused(lambda: model.step(*samples(8), optimizer=pair.optimizers[1], scaler=2.0), "scaler: got a float")
    off = torch.amp.GradScaler("cpu", enabled=False)
    assert not model.step(*samples(8), optimizer=pair.optimizers[1], scaler=off).skipped


class Remembers(nn.Module):
    """A loss with state, on which its value may depend."""

    def __init__(self, weight):
        super().__init__()
        self.weight = weight
        self.register_buffer("mean", torch.zeros(6).double())
        self.calls = {"all": 0}

    def forward(self, output, target):
        self.calls["all"] += 1
        self.mean = 0.9 * self.mean + 0.1 * output.detach().mean(0)
        return squares(output - self.weight * self.mean, target) * (1 + self.weight * self.calls["all"])


@pytest.mark.parametrize("checks", [False, True])
def test_a_loss_with_state_is_called_once_for_each_micro_batch(checks):
    layers, plain_loss, loss = perceptron(4).layers, *(Remembers(0 if checks else 0.1) for _ in range(2))
    plain = nn.Sequential(*copy.deepcopy(layers))
    function = (lambda output, target: loss(output, target)) if checks else loss
    model = cp.Pipeline(layers, function, cp.schedule("1f1b", 2, 4), check_loss=checks)
    for length in (1, 1, 2, 1):
        x, y = torch.randn(4, length, 6).double(), torch.randn(4, length, 6).double()
        if checks and not loss.calls["all"]:
            y = plain(x).detach()  # Losses of zero decide nothing, so later calls compare too
        losses = [plain_loss(plain(a), b).item() for a, b in zip(x.split(1), y.split(1), strict=True)]
        assert model.step(x, y).loss == pytest.approx(sum(losses) / y.numel(), rel=1e-12)
        assert loss.calls == plain_loss.calls
