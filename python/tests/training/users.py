"""What users do with models, on rank threads or on two processes, compared with plain torch in float64."""

import copy
import random
from dataclasses import dataclass
from types import SimpleNamespace

import numpy
import torch
from equality import TOLERANCE
from models import backward_of_mean, perceptron, plain_step, squares
from torch import nn
from torch.utils.checkpoint import checkpoint

import chimerapipe as cp

SCHEDULES = ["1f1b", "chimera", "chimera-zb"]


def whole(layers):
    return nn.Sequential(*layers)


class Pair:
    """One model twice: in plain torch and as a pipeline."""

    def __init__(self, layers, schedule, make=lambda parameters: torch.optim.AdamW(parameters, lr=0.01), **options):
        stages = options.pop("stages", 2)
        self.plain = copy.deepcopy(whole(layers))
        self.layers = list(layers)
        micro_batches = options.pop("micro_batches", 4)
        self.pipeline = cp.Pipeline(self.layers, squares, cp.schedule(schedule, stages, micro_batches), **options)
        self.make = make
        self.optimizers = None

    def step(self, inputs, targets, clip=0.0, **options):
        """Trains both on the same samples and compares loss, norm, gradients and values. Returns the step."""
        if self.optimizers is None:
            self.optimizers = [self.make(list(self.plain.parameters())), self.make(list(self.pipeline.parameters()))]
        loss, norm = plain_step(self.plain, self.optimizers[0], inputs, targets, clip)
        step = self.pipeline.step(inputs, targets, optimizer=self.optimizers[1], clip=clip, **options)
        assert abs(step.loss - loss) <= TOLERANCE * abs(loss), (step.loss, loss)
        assert abs(step.gradient_norm - norm) <= 1e-10 * norm, (step.gradient_norm, norm)
        self.expect_equal()
        return step

    def validate(self, inputs, targets):
        expected = squares(self.plain(inputs), targets).item() / targets.numel()
        loss = self.pipeline.validate(inputs, targets)
        assert abs(loss - expected) <= TOLERANCE * abs(expected), (loss, expected)

    def expect_equal(self):
        expected = self.plain.state_dict()
        for name, value in self.pipeline.state_dict().items():
            torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-10, msg=lambda text: f"{name}: {text}")
        gradients = {name: parameter.grad for name, parameter in self.plain.named_parameters()}
        for name, parameter in self.pipeline.named_parameters():
            if gradients.get(name) is not None:
                torch.testing.assert_close(parameter.grad, gradients[name], rtol=1e-9, atol=1e-10, msg=name)


def samples(count=4, width=6):
    return torch.randn(count, width).double(), torch.randn(count, width).double()


def tied(schedule):
    """First and last layer share a matrix; two layers of the first stage share a bias."""
    layers = perceptron(4).layers
    layers[3][0].weight = layers[0][0].weight
    layers[1][0].bias = layers[0][0].bias
    pair = Pair(layers, schedule)
    for clip in (0.0, 0.05, 0.0):
        pair.step(*samples(), clip=clip)
    for trained in (False, True):
        for model in (pair.plain, pair.layers):
            model[0][0].weight.requires_grad_(trained)
        pair.step(*samples())
    named = dict(pair.pipeline.named_parameters())
    assert len({id(p) for p in named.values()}) == len(named)


def one_layer_in_two_stages(schedule):
    layers = perceptron(4).layers
    layers[3] = layers[1]
    pair = Pair(layers, schedule)
    for _ in range(2):
        pair.step(*samples())


def frozen_and_unfrozen(schedule):
    pair = Pair(perceptron(4).layers, schedule, lambda ps: torch.optim.AdamW(ps, lr=0.01, weight_decay=0.1))
    for index, trained in ((1, True), (1, False), (3, False), (1, True), (3, True)):
        for model in (pair.plain, pair.layers):
            model[index][0].weight.requires_grad_(trained)
        pair.step(*samples(), clip=0.05)


def hooks_and_attributes(schedule):
    layers = perceptron(4).layers
    for layer in layers:
        layer[0].weight.no_decay = True
    plain = copy.deepcopy(layers)  # Drops hooks
    for each in (*layers, *plain):
        each[0].weight.register_hook(lambda gradient: gradient * 3)
    pair = Pair(layers, schedule, lambda ps: torch.optim.SGD(ps, lr=0.01))
    pair.plain = whole(plain)
    pair.step(*samples())
    assert all(layer.module[0].weight.no_decay for layer in pair.pipeline._layers.every)
    later = []
    for model in (pair.plain, pair.layers):
        later.append(model[1][0].bias.register_hook(lambda gradient: gradient * 5))
        later.append(model[0][0].weight.register_hook(lambda gradient: gradient * 5))
        later.append(model[2].register_forward_hook(lambda module, inputs, output: output * 2))
    pair.step(*samples())
    for hook in later:
        hook.remove()
    pair.step(*samples())


class Shift(nn.Module):
    """Adds a buffer, which differs on each rank until replica 0's is sent."""

    def __init__(self, value):
        super().__init__()
        self.inner = nn.Linear(6, 6).double()
        self.register_buffer("shift", torch.full((6,), float(value), dtype=torch.float64))

    def forward(self, x):
        return self.inner(x) + self.shift


def other_lengths(schedule):
    """Batches of other shapes, and refused ones between them."""
    pair = Pair(perceptron(4).layers, schedule)
    for length in (3, 5, 3):
        inputs, targets = torch.randn(4, length, 6).double(), torch.randn(4, length, 6).double()
        pair.step(inputs, targets)
        refused(lambda: pair.pipeline.step(inputs[:3], targets), "3 samples, but a step")
        refused(lambda: pair.pipeline.step(inputs, targets, clip="1"), "clip: got '1'")
    assert pair.pipeline.validate(inputs, targets) > 0
    pair.step(*samples())


def refused(call, words, kind=Exception):
    try:
        call()
    except kind as error:
        assert words in str(error) and "\n" not in str(error), str(error)
        return error
    raise AssertionError(f"not refused: {words}")


class Item(nn.Module):
    def __init__(self, key):
        super().__init__()
        self.key = key

    def forward(self, values):
        return values[self.key]


class Skips(nn.Linear):
    """Uses its weights only for some micro-batches."""

    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


class Later(nn.Linear):
    """Draws for some samples only, under torch's activation checkpointing."""

    p = 0.3

    def forward(self, x):
        return checkpoint(self.dropped, x, use_reentrant=False)

    def dropped(self, x):
        hidden = super().forward(x).tanh()
        return nn.functional.dropout(hidden, self.p) if self.p and x.sum() > 0 else hidden


@dataclass
class Split:
    halves: tuple
    numbers: dict


class Splits(nn.Module):
    """Returns tensors of several types, with and without gradients."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6).double()

    def forward(self, values):
        hidden = self.inner(values["x"])
        numbers = {"ids": values["ids"], "mask": values["mask"], "none": None, "power": 2}
        return Split((hidden[..., :3].float(), hidden[..., 3:]), {**numbers, "plain": hidden.detach()})


class Passes(nn.Module):
    """Changes a tensor; the others skip it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3).double()

    def forward(self, split):
        assert not split.numbers["plain"].requires_grad and split.numbers["none"] is None
        return Split((split.halves[0], self.inner(split.halves[1]).tanh()), split.numbers)


class Joins(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 6).double()

    def forward(self, split):
        hidden = torch.cat([split.halves[0].double(), split.halves[1]], -1) + self.table(split.numbers["ids"])
        return (hidden + split.numbers["plain"]) ** split.numbers["power"] * split.numbers["mask"]


def several_tensors(schedule, stages=2):
    """A dict of inputs; a dataclass between stages, with a skip connection; another loss output."""
    pair = Pair([Splits(), Passes(), Passes(), Joins()], schedule, stages=stages, recompute=[0])
    inputs, targets = samples()
    for _ in range(2):
        values = {"x": inputs, "ids": torch.randint(9, (4,)), "mask": torch.rand(4, 6) > 0.5}
        pair.step(values, targets)
    assert pair.pipeline.validate(values, targets) > 0


def nothing_trained_in_places(schedule):
    """A frozen embedding, a stage of Tanh, and weights that a micro-batch does not use."""
    embedding = nn.Embedding(9, 6).double().requires_grad_(False)
    layers = [embedding, Skips(6, 6).double(), nn.Tanh(), nn.Linear(6, 6).double()]
    pair = Pair(layers, schedule, stages=4)
    for seed in range(3):
        torch.manual_seed(seed)
        # The plain model takes the same micro-batches, of one sample each.
        ids, targets = torch.randint(9, (4,)), torch.randn(4, 6).double()
        for parameter in pair.plain.parameters():
            parameter.grad = None
        loss = sum(squares(pair.plain(i[None]), t[None]) for i, t in zip(ids, targets, strict=True)) / targets.numel()
        loss.backward()
        step = pair.pipeline.step(ids, targets)
        assert abs(step.loss - loss.item()) <= TOLERANCE * abs(loss.item())
        pair.expect_equal()


def gradients_around_other_lengths(schedule):
    """Validations and predictions of another length neither clear gradients nor change them."""
    pair = Pair(perceptron(4).layers, schedule)
    longer = torch.randn(4, 3, 6).double(), torch.randn(4, 3, 6).double()
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (pair.plain, pair.pipeline)]
    for _ in range(2):
        optimizers[0].zero_grad()
        for number in range(3):
            inputs, targets = samples()
            backward_of_mean(pair.plain, inputs, targets)
            pair.pipeline.step(inputs, targets, zero_gradients=number == 0)
            pair.pipeline.validate(*(longer if number < 2 else samples()))
            pair.pipeline.predict(longer[0])
        pair.expect_equal()
        for optimizer in optimizers:
            optimizer.step()
        pair.expect_equal()


class Tracks(nn.Module):
    """Assigns buffers and attributes in forward, as running statistics written by hand are."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6).double()
        self.register_buffer("mean", torch.zeros(6).double())
        self.calls, self.seen, self.sums = 0, [], {"of": {"all": 0.0}}
        self.last, self.helper, self.numbers = torch.zeros(6).double(), SimpleNamespace(calls=[0]), iter(range(99))
        self.frozen = nn.Parameter(torch.zeros(6).double(), requires_grad=False)
        self.register_buffer("count", torch.zeros(1, dtype=torch.long))
        self.array, self.draws = numpy.zeros(6), random.Random(3)

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().flatten(0, -2).mean(0)
            self.calls += 1
            self.seen.append(len(x))
            self.sums["of"]["all"] += 1.0
            self.helper.calls[0] += 1
            self.array += 1
            self.count.data = self.count + 1
            with torch.no_grad():
                self.frozen.add_(x.detach().flatten(0, -2).mean(0))
            self.factor = next(self.numbers) + self.helper.calls[0] + self.draws.random() * self.array.sum()
            self.factor += self.count
            self.last.add_(x.detach().flatten(0, -2).mean(0))
            self.latest = x.shape
        values = self.mean * self.calls + len(self.seen) * self.sums["of"]["all"] + self.last + self.factor
        return self.inner(x) + values + self.frozen.clone()


def assigned_buffers_and_attributes(schedule):
    """Every change of shape runs the first forwards again."""
    if schedule != "1f1b":  # Replicas refuse layers that write
        return
    layers = [Tracks(), *perceptron(4).layers[:2], Tracks()]
    pair = Pair(layers, schedule)
    for length in (2, 3, 2, 2):
        inputs, targets = torch.randn(4, length, 6).double(), torch.randn(4, length, 6).double()
        loss = sum(squares(pair.plain(x[None]), y[None]) for x, y in zip(inputs, targets, strict=True))
        expected = loss.item() / targets.numel()
        assert abs(pair.pipeline.step(inputs, targets).loss - expected) < 1e-12 * expected
    pair.pipeline.gather()
    for plain, own in zip(pair.plain, layers, strict=True):
        if isinstance(plain, Tracks):
            torch.testing.assert_close(own.mean, plain.mean, rtol=0, atol=1e-12)


CASES = [tied, one_layer_in_two_stages, frozen_and_unfrozen, hooks_and_attributes, other_lengths, several_tensors]
CASES += [gradients_around_other_lengths, assigned_buffers_and_attributes]
