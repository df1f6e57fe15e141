"""Layers that draw random numbers: equal results in every run on rank threads, and refusals."""

import copy
import itertools
import random
import warnings

import numpy
import pytest
import torch
from models import perceptron, squares
from torch import nn
from users import Later, refused, samples

import chimerapipe as cp


def dropouts():
    return [nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.Tanh()).double() for _ in range(4)]


class Drops(nn.Linear):
    """Drops numbers by a function that draws them."""

    def __init__(self, draw):
        super().__init__(6, 6)
        self.double().draw = draw

    def forward(self, x):
        return super().forward(x) * self.draw()


GENERATORS = [torch.Generator(), random.Random(3), numpy.random.default_rng(3)]


class Rarely(nn.Linear):
    """Skips itself with one of these generators; mostly two forwards agree."""

    def __init__(self, number, kind):
        super().__init__(6, 6)
        own = GENERATORS[number]
        self.double().held = {"attribute": own, "list": [own], "dict": {"a": own}}.get(kind)
        self.draw = (lambda: drawn(own)) if kind == "variable" else None

    def forward(self, x):
        held = self.held[0] if isinstance(self.held, list) else self.held
        held = held["a"] if isinstance(held, dict) else held
        return x if (self.draw() if self.draw else drawn(held)) < 0.01 else super().forward(x)


def drawn(generator):
    return float(torch.rand((), generator=generator)) if isinstance(generator, torch.Generator) else generator.random()


class Counts(nn.Linear):
    calls = 0

    def forward(self, x):
        Counts.calls += 1
        return super().forward(x) * Counts.calls


class Stored(nn.Module):
    """Writes to a tensor that is no buffer."""

    def __init__(self):
        super().__init__()
        self.inner, self.seen = nn.Linear(6, 6).double(), torch.zeros(6).double()

    def forward(self, x):
        self.seen += x.detach().mean(0)
        return self.inner(x) + self.seen


CLOSED = torch.Generator().manual_seed(3)
TABLE = itertools.count()
DRAWN = [
    *((lambda number=number: Rarely(number, "attribute"), "from its generator 'held'") for number in range(3)),
    (lambda: Drops(lambda: torch.rand(1, generator=CLOSED).double()), "from its generator 'CLOSED'"),
    (lambda: Drops(lambda: next(TABLE)), "another result in a second forward"),
    (lambda: Counts(6, 6).double(), "another result in a second forward"),
    (Stored, "another result in a second forward"),
]


@pytest.mark.parametrize(("schedule", "recompute"), [("1f1b", [0]), ("chimera", False), ("zb-h1", [0])])
@pytest.mark.parametrize(("make", "words"), DRAWN)
def test_draws_that_a_repeated_forward_would_not_repeat_are_refused(make, words, schedule, recompute):
    layers = [perceptron(4).layers[0], make(), *perceptron(4).layers[:2]]
    model = cp.Pipeline(layers, squares, cp.schedule(schedule, 2, 4), recompute=recompute)
    refused(lambda: model.step(*samples()), words, cp.ConfigError)
    error = refused(lambda: model.step(*samples()), "layer 1 (", cp.ConfigError)
    assert words in str(error)
    cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 4)).step(*samples())


def test_a_layer_that_writes_to_its_parameters_is_refused_in_replicas():
    layers = [nn.Embedding(9, 6, max_norm=1.0).double(), *perceptron(4).layers[:3]]
    ids, targets = torch.randint(9, (4,)), samples()[1]
    replicas = cp.Pipeline(layers, squares, cp.schedule("chimera", 2, 4))
    words = "layer 0 (Embedding) writes to its parameter 'weight' in forward, as Embedding(max_norm=)"
    refused(lambda: replicas.step(ids, targets), words, cp.ConfigError)
    assert cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 4)).step(ids, targets).loss > 0


def losses_of(schedule, layers, steps=4, seed=5, loss=squares, stages=4, micro_batches=8, **options):
    schedule = cp.schedule(schedule, stages, micro_batches)
    model = cp.Pipeline(layers, loss, schedule, micro_batch_size=2, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    batches = [samples(16) for _ in range(steps)]
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    return [model.step(*batch, optimizer=optimizer).loss for batch in batches]


def mixed_draws():
    others = [Drops(lambda: 0.5 + random.random()), Drops(lambda: 0.5 + numpy.random.rand())]
    return [dropouts()[0], *others, dropouts()[0]]


EVERY = [entry.name for entry in cp.schedules() if entry.synchronous]
DRAWING_LOSS = lambda output, target: squares(output + 0.1 * torch.randn_like(output), target)


@pytest.mark.parametrize("make", [dropouts, mixed_draws])
def test_all_schedules_drop_alike(make):
    """Also a loss that draws, and recomputed stages."""
    torch.manual_seed(2)
    layers = make()
    start = {name: value.clone() for name, value in nn.Sequential(*layers).state_dict().items()}

    def run(schedule, seed=5, **options):
        nn.Sequential(*layers).load_state_dict(start)
        return losses_of(schedule, layers, seed=seed, loss=DRAWING_LOSS, **options)

    expected = run("1f1b")
    assert len(set(expected)) == len(expected) and expected != run("1f1b", seed=6)
    for schedule in EVERY:
        assert run(schedule, stages=2) == pytest.approx(expected, rel=1e-12), schedule
    for schedule in ("1f1b", "chimera-zb"):
        assert run(schedule, recompute=True) == pytest.approx(expected, rel=1e-12), schedule
    assert run("1f1b", stages=2, data_parallel=2, micro_batches=4) == pytest.approx(expected, rel=1e-12)


def test_layers_that_draw_only_later_drop_alike():
    """By another probability, a hook, or the samples; torch's checkpointing saves the state before a draw."""
    torch.manual_seed(2)
    first = [Later(6, 6).double(), dropouts()[0], nn.Linear(6, 6).double(), Later(6, 6).double()]
    batches = [samples(8) for _ in range(4)]

    def run(schedule, **options):
        layers = copy.deepcopy(first)
        model = cp.Pipeline(layers, DRAWING_LOSS, cp.schedule(schedule, 2, 4), micro_batch_size=2, **options)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        layers[1][1].p = Later.p = 0.0
        losses = [model.step(*batches[0], optimizer=optimizer).loss]
        layers[1][1].p = Later.p = 0.3
        layers[2].register_forward_hook(lambda module, inputs, output: nn.functional.dropout(output, 0.3))
        state = torch.get_rng_state()
        losses += [model.step(*batch, optimizer=optimizer).loss for batch in batches]
        assert torch.equal(state, torch.get_rng_state())
        return losses

    torch.manual_seed(7)
    expected = run("gpipe")
    for schedule in ("1f1b", "chimera", "chimera-zb"):
        assert run(schedule) == pytest.approx(expected, rel=1e-12), schedule
        assert run(schedule, recompute=True) == pytest.approx(expected, rel=1e-12), schedule


def test_gradients_are_those_of_the_masks_in_the_forward():
    """The masks are known from a single stage, and plain torch applies them."""
    masks = {}

    class Notes(nn.Linear):
        def forward(self, x):
            mask = (torch.rand(6) > 0.3).double()
            masks.setdefault(self.index, {})[tuple(x.flatten().tolist())] = mask
            return super().forward(x) * mask

    torch.manual_seed(1)
    layers = [Notes(6, 6).double() for _ in range(2)]
    for index, layer in enumerate(layers):
        layer.index = index
    inputs, targets = samples()
    plain = [copy.deepcopy(layer) for layer in layers]
    model = cp.Pipeline(layers, squares, cp.schedule("chimera-zb", 2, 4))
    model.validate(inputs, targets)  # Draws nothing from the masks of the step
    masks.clear()
    step = model.step(inputs, targets)
    loss = 0
    for x, y in zip(inputs.split(1), targets.split(1), strict=True):
        for layer in plain:
            x = nn.functional.linear(x, layer.weight, layer.bias) * masks[layer.index][tuple(x.flatten().tolist())]
        loss = loss + squares(x, y) / targets.numel()
    loss.backward()
    assert step.loss == pytest.approx(loss.item(), rel=1e-12)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, nn.Sequential(*plain).get_parameter(name).grad, rtol=0, atol=1e-12)


def test_a_loss_that_a_recomputation_would_not_repeat_is_refused():
    noisy = lambda output, target: squares(output, target) * (1 + next(TABLE))
    model = cp.Pipeline(perceptron(4).layers, noisy, cp.schedule("1f1b", 2, 4), recompute=[1], check_loss=False)
    refused(lambda: model.step(*samples()), "leave the last stage out of recompute=", cp.ConfigError)
    model = cp.Pipeline(perceptron(4).layers, noisy, cp.schedule("1f1b", 2, 4), recompute=[0], check_loss=False)
    assert model.step(*samples()).loss > 0


def test_a_resumed_run_with_dropout_equals_an_undisturbed_one(tmp_path):
    def trainer():
        torch.manual_seed(2)
        model = cp.Pipeline(mixed_draws(), squares, cp.schedule("zb-h1", 4, 8), micro_batch_size=2)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(model, optimizer, steps):
        return [model.step(*samples(16), optimizer=optimizer).loss + random.random() for _ in range(steps)]

    model, optimizer = trainer()
    train(model, optimizer, 2)
    model.save_checkpoint(tmp_path, optimizer=optimizer)
    expected = train(model, optimizer, 3)
    torch.manual_seed(77)
    random.seed(77)
    numpy.random.seed(77)
    model, optimizer = trainer()
    train(model, optimizer, 1)
    model.load_checkpoint(tmp_path, optimizer=optimizer)
    assert train(model, optimizer, 3) == expected


@pytest.mark.parametrize("kind", ["list", "variable"])
def test_a_generator_of_several_layers_warns_once(kind):
    layers = [Rarely(0, kind), *perceptron(4).layers[:2], Rarely(0, kind)]
    with pytest.warns(UserWarning, match="layers 0, 3 draw from one generator, '(held|own).*other results") as caught:
        model = cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 4))
        model.step(*samples())
        model.step(*(torch.randn(4, 3, 6).double() for _ in range(2)))  # Runs the first forwards again
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cp.Pipeline(layers[:3], squares, cp.schedule("1f1b", 1, 4)).step(*samples())


@pytest.mark.parametrize("kind", ["list", "dict", "variable"])
@pytest.mark.parametrize("number", range(3))
def test_generators_in_items_and_variables_are_named(number, kind):
    layers = [Rarely(number, kind) for _ in range(4)]
    model = cp.Pipeline(layers, squares, cp.schedule("chimera", 2, 4))
    words = {"list": "held[0]", "dict": "held['a']", "variable": "own"}[kind]
    refused(lambda: model.step(*samples()), f"draws random numbers from its generator '{words}'", cp.ConfigError)
