"""Measured time and memory of layers."""

import pytest
import torch
from models import squares
from torch import nn

import chimerapipe as cp


def test_bytes_are_those_of_tensors_and_times_are_there():
    layers = [nn.Embedding(11, 6), nn.Linear(6, 8), nn.Tanh()]
    costs = cp.measure(layers, torch.randint(11, (3, 5)), repeats=2)
    assert [cost.weights for cost in costs] == [11 * 6 * 4, (6 * 8 + 8) * 4, 0]
    assert [cost.output for cost in costs] == [15 * 6 * 4, 15 * 8 * 4, 15 * 8 * 4]
    assert costs[1].state == 3 * costs[1].weights
    assert costs[1].activations == 15 * 6 * 4  # Its input
    assert costs[2].activations == 15 * 8 * 4  # Its output
    assert costs[0].input_gradient == 0 and all(cost.forward > 0 for cost in costs)
    assert all(parameter.grad is None for layer in layers for parameter in layer.parameters())


def test_a_measured_partition_trains():
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(5)]
    schedule = cp.schedule("chimera", 2, 2)
    cut = cp.partition(cp.measure(layers, torch.randn(2, 6), repeats=1), schedule)
    model = cp.Pipeline(layers, squares, schedule, micro_batch_size=2, partition=cut.layers)
    assert model.step(torch.randn(4, 6), torch.randn(4, 6)).loss > 0


def test_the_best_plan_of_profiled_layers_trains():
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4)]
    profile = cp.profile(nn.Sequential(*layers), torch.randn(4, 6), repeats=1)
    assert sorted(profile.sizes) == [1, 4] and profile[0].weights == (6 * 6 + 6) * 4
    assert [costs[0].output for _, costs in sorted(profile.sizes.items())] == [6 * 4, 4 * 6 * 4]
    best = cp.plan(profile, workers=2, mini_batch=8, schedules=["chimera"], memory=1e9).best
    model = cp.Pipeline(layers, squares, best.schedule, **best.pipeline_options())
    assert model.batch_size == 8
    assert model.step(torch.randn(8, 6), torch.randn(8, 6)).loss > 0


class Adds(nn.Module):
    """Multiplies with a buffer, which autograd saves."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.randn(4096, 6))

    def forward(self, x):
        return x * self.table[: len(x)]


def test_a_part_of_a_larger_tensor_counts_as_its_own_bytes():
    layers = [nn.Linear(6, 6), Adds(), nn.Linear(6, 6)]
    whole = torch.randn(100_000, 6)
    alone = [cost.activations for cost in cp.measure(layers, whole[:8].clone(), repeats=1)]
    assert alone == [8 * 6 * 4, 0, 8 * 6 * 4]
    for view in (whole[:8], whole[::12_500], whole.view(-1)[:48].view(6, 8).T):
        assert [cost.activations for cost in cp.measure(layers, view, repeats=1)] == alone
    found = cp.profile(layers, {"x": whole}["x"][:8], repeats=1)
    assert [cost.activations for cost in found.sizes[8]] == alone
    assert [cost.activations for cost in found.sizes[1]] == [bytes / 8 for bytes in alone]
    keyed = [cp.KeyedLayer(nn.Linear(6, 6), "x", "y", drops=["x", "mask"])]
    costs = cp.measure(keyed, {"x": whole[:8], "mask": whole[:8, :1].expand(8, 6)}, repeats=1)
    assert costs[0].activations == 8 * 6 * 4


class Scaled(nn.Linear):
    """Has a table that is no buffer."""

    table = torch.ones(1000, 6)

    def forward(self, x):
        return super().forward(x) * self.table[: len(x)]


def test_constant_tables_are_no_activations():
    (cost,) = cp.measure([Scaled(6, 6)], torch.randn(8, 6), repeats=1)
    assert cost.activations == 8 * 6 * 4  # Its input


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_layers_are_measured_with_gradients_under_any_mode(mode):
    layers = [nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)]
    expected = [cost.activations for cost in cp.measure(layers, torch.randn(8, 6), repeats=1)]
    with mode():
        costs = cp.measure(layers, torch.randn(8, 6), repeats=1)
        assert [cost.activations for cost in costs] == expected
        assert all(cost.input_gradient + cost.weight_gradient > 0 for cost in costs)
