"""Layers that take and return several tensors; users.py has a case for rank threads and processes."""

import pickle

import pytest
import torch
from models import squares
from torch import nn
from users import SCHEDULES, Item, Split, refused, samples, several_tensors

import chimerapipe as cp
from chimerapipe._messages import Layout, tensors_of


def test_results_are_those_of_plain_torch_on_four_stages():
    for schedule in SCHEDULES:
        several_tensors(schedule, stages=4)


def test_messages_keep_all_bits():
    value = {
        "wide": [torch.tensor([1.5, -torch.inf, torch.nan]), torch.randn(2, 3, dtype=torch.float64)],
        "narrow": (torch.randn(5).bfloat16(), torch.randn(3).half(), torch.randn(3, 2, dtype=torch.complex64)),
        "whole": torch.tensor([[-100, 2**62 + 1]]),
        "byte": torch.arange(256).to(torch.uint8),
        "truth": torch.tensor(True),
        "none": (None, 3, 0.5, "text", torch.empty(0, 4)),
    }
    layout = Layout.of(value)
    message = layout.pack(value)
    assert message.dim() == 1 and message.nbytes == layout.nbytes and message.dtype == torch.float64
    found = layout.unpack(message)
    assert found["none"][:4] == value["none"][:4]
    torch.testing.assert_close(tensors_of(found), tensors_of(value), rtol=0, atol=0, equal_nan=True)
    assert Layout.of(torch.arange(3)).dtype == torch.float32


@pytest.mark.filterwarnings("error")
def test_layouts_reach_other_processes():
    layout = Layout.of({"split": Split((torch.ones(2), None), {"a": 3}), "list": [torch.ones(1)]})
    assert pickle.loads(pickle.dumps(layout)) == layout


class Returns(nn.Linear):
    """Returns a function of its result and of the number of its calls."""

    def __init__(self, function):
        super().__init__(6, 6)
        self.double().function, self.calls = function, 0

    def forward(self, x):
        self.calls += 1
        return self.function(super().forward(x), self.calls)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda y, calls: {y}, "layer 1 (Returns) returns a set: it has a set; give tensors"),
        (lambda y, calls: None, "layer 1 (Returns) returns a NoneType: it has no tensor"),
        (lambda y, calls: (y, calls > 2), "layer 1 (Returns) returns a tuple: it has True, but at first False"),
        (lambda y, calls: (y,) * min(calls, 3), "layer 1 (Returns) returns a tuple: it is TreeSpec(tuple"),
        (lambda y, calls: (y, y.detach() if calls < 3 else y), "[1, 6] of float64 with a gradient, but at first"),
        (lambda y, calls: y if calls < 3 else (y, y), "returns a tuple: at first it was a tensor of floating-point"),
    ],
)
def test_values_that_no_message_carries_are_refused(function, words):
    layers = [nn.Linear(6, 6).double(), Returns(function), Item(0), nn.Linear(6, 6).double()]
    pipeline = cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 4))
    refused(lambda: pipeline.step(*samples()), words, TypeError)


def test_inputs_have_the_samples_of_a_step():
    pipeline = cp.Pipeline([Item(0), nn.Linear(6, 6).double()], squares, cp.schedule("1f1b", 2, 4))
    inputs, targets = samples()
    pipeline.step((inputs, inputs), targets)
    refused(lambda: pipeline.step((inputs, inputs[:3]), targets), "inputs[1]: 3 samples, but", cp.ConfigError)
    refused(lambda: pipeline.step({}, targets), "inputs: got a dict; give a tensor", cp.ConfigError)
    assert pipeline.step([inputs], targets).loss > 0


def test_messages_of_several_tensors_are_measured():
    layers = [cp.KeyedLayer(nn.Linear(6, 8), "x", "y"), cp.KeyedLayer(nn.Linear(8, 2), "y", "z", drops=["x", "y"])]
    costs = cp.measure(layers, {"x": torch.randn(4, 6)}, repeats=1)
    assert [cost.output for cost in costs] == [4 * (32 + 32), 4 * 16]  # Each tensor begins at a multiple of 16 numbers
    assert costs[0].input_gradient > 0
