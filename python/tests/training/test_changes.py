"""Changes of layers between steps: followed by replicas on rank threads, or refused by name."""

import copy
import gc
import queue
import threading
from types import SimpleNamespace

import numpy
import pytest
import torch
from models import perceptron, squares
from torch import nn
from torch.nn.utils import prune
from users import SCHEDULES, Pair, Shift, refused, samples

import chimerapipe as cp


def replace_by_hand(layers):
    layers[1][0].weight = nn.Parameter(layers[1][0].weight.detach().clone())


def load_by_assignment(layers):
    layers[1].load_state_dict(copy.deepcopy(layers[1].state_dict()), assign=True)


CHANGES = [
    (load_by_assignment, "the parameter '0.weight' was replaced in"),
    (replace_by_hand, "the parameter '0.weight' was replaced in"),
    (lambda layers: setattr(layers[1][0], "weight", layers[2][0].weight), "the parameter '0.weight' was replaced in"),
    (lambda layers: nn.utils.parametrizations.weight_norm(layers[1][0]), "0.weight' was removed from"),
    (lambda layers: layers[1].__setitem__(0, nn.Linear(6, 6).double()), "0.weight' was replaced in"),
    (lambda layers: layers[1].append(nn.Linear(6, 6).double()), "2.weight' was added to"),
    (lambda layers: setattr(layers[1][0], "bias", None), "0.bias' was removed from"),
    (lambda layers: layers[1].float(), "parameter 1.0.weight is [6, 6] of float32 on cpu, but was [6, 6] of float64"),
]


@pytest.mark.parametrize("schedule", ["1f1b", "chimera"])
@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_other_parameters_are_refused_by_name(change, words, schedule):
    pair = Pair(perceptron(4).layers, schedule)
    pair.step(*samples())
    change(pair.layers)
    for call in (pair.pipeline.step, pair.pipeline.validate):
        error = refused(lambda call=call: call(*samples()), words, cp.ConfigError)
        assert "1" in str(error).partition(":")[0]


def test_a_refused_change_that_is_undone_trains_on():
    pair = Pair(perceptron(4).layers, "chimera")
    pair.step(*samples())
    kept = pair.layers[1][0].weight
    replace_by_hand(pair.layers)
    refused(lambda: pair.pipeline.step(*samples()), "was replaced", cp.ConfigError)
    pair.layers[1][0].weight = kept
    pair.step(*samples())


def test_changes_of_the_model_around_the_layers_are_refused():
    changes = {
        "the Sequential: the parameter '3.0.weight' was replaced": lambda model: model.__setitem__(3, model[2]),
        "the Sequential: the module '4' was added": lambda model: model.append(nn.Tanh()),
        "the Sequential: the parameter '3.0.weight' was removed": lambda model: model.pop(3),
    }
    for words, change in changes.items():
        model = nn.Sequential(*perceptron(4).layers)
        pipeline = cp.Pipeline(model, squares, cp.schedule("1f1b", 2, 4))
        pipeline.step(*samples())
        change(model)
        refused(lambda pipeline=pipeline: pipeline.step(*samples()), words, cp.ConfigError)
    pair = Pair(perceptron(4).layers, "1f1b")
    pair.layers[3] = nn.Linear(6, 6).double()
    refused(lambda: pair.pipeline.step(*samples()), "the list of layers was changed", cp.ConfigError)


def test_other_memory_of_gradients_is_followed():
    for schedule in SCHEDULES:
        pair = Pair(perceptron(4).layers, schedule)
        pair.step(*samples())
        for parameter in pair.pipeline.parameters():
            parameter.grad.data = torch.full_like(parameter.grad, torch.nan)
        pair.step(*samples())


class Settings:
    def __init__(self):
        self.scale, self.table = 1.0, {"scale": 1.0}


class Configured(nn.Linear):
    def __init__(self):
        super().__init__(6, 6)
        self.tensor, self.array, self.values = torch.ones(6).double(), numpy.ones(6), [1.0]
        self.settings, self.type, self.part, self._activation = Settings(), torch.float64, slice(0, 6), torch.tanh
        self.calls = []

    def forward(self, x):
        self.calls.append(1)  # Forwards of copies do not change those of the given layer
        scale = self.tensor * torch.from_numpy(self.array) * self.values[0] * self.settings.scale
        y = (super().forward(x) * scale * self.settings.table["scale"]).to(self.type).double()
        return self._activation(y) * torch.arange(6)[self.part].sum()


class Other(Configured):
    def forward(self, x):
        return super().forward(x) * 2


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(6, 6).double(), 1.0

    def forward(self, x):
        return self.inner(x) * self.scale


def halve(model):
    flat = nn.utils.parameters_to_vector(model.parameters()).detach() * 0.5
    nn.utils.vector_to_parameters(flat, model.parameters())


def move(model):
    for parameter in model.parameters():
        parameter.data = (parameter.data * 2).T.contiguous().T if parameter.dim() == 2 else parameter.data * 2


def transpose(model):
    model[1][0].weight.data = model[1][0].weight.data.t()


def layers_with_ties():
    layers = perceptron(4).layers
    layers[3][0].weight = layers[0][0].weight
    return layers


OF_BUFFERS = {
    "a number": lambda model: setattr(model[0], "scale", 3.0),
    "a buffer in place": lambda model: model[1].shift.fill_(5),
    "another buffer": lambda model: setattr(model[2], "shift", torch.full((6,), 7.0).double()),
    "a loaded buffer": lambda model: model[2].load_state_dict({**model[1].state_dict(), "shift": torch.zeros(6)}),
}
OF_ATTRIBUTES = {
    "another tensor": lambda layer: setattr(layer, "tensor", torch.full((6,), 0.5).double()),
    "a tensor in place": lambda layer: layer.tensor.mul_(0.5),
    "an array in place": lambda layer: layer.array.fill(0.5),
    "an item of a list": lambda layer: layer.values.__setitem__(0, 0.5),
    "an attribute of an object": lambda layer: setattr(layer.settings, "scale", 0.5),
    "an item in an object": lambda layer: layer.settings.table.__setitem__("scale", 0.5),
    "another object": lambda layer: setattr(layer, "settings", SimpleNamespace(scale=0.5, table={"scale": 1.0})),
    "a type": lambda layer: setattr(layer, "type", torch.bfloat16),
    "a slice": lambda layer: setattr(layer, "part", slice(2, 4)),
    "a function": lambda layer: setattr(layer, "_activation", torch.sin),
    "the class": lambda layer: setattr(layer, "__class__", Other),
}
OF_PARAMETERS = [halve, move, transpose, lambda model: model.float().double()]
FOLLOWED = [
    *((make, change) for make in (lambda: perceptron(4).layers, layers_with_ties) for change in OF_PARAMETERS),
    *((lambda: [Scaled(), Shift(1), Shift(2), Scaled()], change) for change in OF_BUFFERS.values()),
    *((lambda: [Configured().double() for _ in range(4)], lambda model, change=change: change(model[1]))
      for change in OF_ATTRIBUTES.values()),
]


@pytest.mark.parametrize(("make", "change"), FOLLOWED)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_changes_are_followed(schedule, make, change):
    """Also twice, and by a validation."""
    pair = Pair(make(), schedule)
    pair.step(*samples())
    for call in (pair.step, pair.step, pair.validate):
        for model in (pair.plain, nn.Sequential(*pair.layers)):
            change(model)
        call(*samples())


def test_a_failed_pipeline_is_freed():
    """A failed backward leaves its graph to the thread, which at its end needs Python."""
    for _ in range(2):
        layers = perceptron(4).layers
        layers[1][0].weight.register_post_accumulate_grad_hook(lambda parameter: 1 / 0)
        pipeline = cp.Pipeline(layers, squares, cp.schedule("chimera", 2, 4))
        with pytest.raises(ZeroDivisionError):
            pipeline.step(*samples())
        del pipeline
        gc.collect()


def test_another_forward_is_followed_or_refused():
    for schedule in SCHEDULES:
        pair = Pair(perceptron(4).layers, schedule)
        pair.step(*samples())
        for model in (pair.plain, pair.layers):
            model[1].forward = lambda x, layer=model[1]: layer[1](layer[0](x)) * 2
        if schedule != "1f1b":
            refused(lambda pair=pair: pair.step(*samples()), "function 'forward' of a Sequential", cp.ConfigError)
        else:
            pair.step(*samples())


@pytest.mark.parametrize("schedule", ["1f1b", "chimera"])
def test_layers_that_leave_eval_mode_are_looked_at_again(schedule):
    layers = perceptron(4).layers
    layers[1] = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).double()
    for layer in layers:
        layer.eval()
    pair = Pair(layers, schedule)
    pair.plain.eval()
    pair.step(*samples())
    pair.pipeline.validate(*samples())
    pair.layers[1].train()
    torch.manual_seed(9)
    state, batch = torch.get_rng_state(), samples()
    loss = pair.pipeline.step(*batch).loss
    assert abs(loss - squares(pair.plain(batch[0]), batch[1]).item() / 24) > 1e-3  # It drops
    assert not torch.equal(state, torch.get_rng_state())  # By the samples alone


class Locked(nn.Linear):
    def __init__(self):
        super().__init__(6, 6)
        self.double().lock = threading.Lock()


def test_a_layer_that_cannot_be_copied_is_named():
    layers = perceptron(4).layers
    layers[2] = nn.Sequential(Locked(), nn.Tanh())
    schedule = cp.schedule("chimera", 2, 4)
    words = "layer 2 (Sequential) cannot be copied for another rank thread: attribute '0.lock': cannot pickle"
    refused(lambda: cp.Pipeline(layers, squares, schedule), words, cp.ConfigError)
    cp.Pipeline([*layers[:2], Locked, layers[3]], squares, schedule).step(*samples())
    old = perceptron(4).layers
    with pytest.warns(FutureWarning):
        old[1] = nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 6))).double()
    words = "attribute '0.weight': has tensors computed from others, as prune, weight_norm"
    refused(lambda: cp.Pipeline(old, squares, schedule), words, cp.ConfigError)
    old[1][0] = prune.identity(nn.Linear(6, 6).double(), "weight")
    refused(lambda: cp.Pipeline(old, squares, schedule), words, cp.ConfigError)
    old[1][0] = nn.Linear(6, 6).double()
    old[1][0].queue = queue.Queue()
    refused(lambda: cp.Pipeline(old, squares, schedule), "attribute '0.queue': cannot pickle", cp.ConfigError)
    cp.Pipeline(copy.copy(layers), squares, cp.schedule("1f1b", 2, 4)).step(*samples())
