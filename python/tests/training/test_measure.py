"""Measured time and memory of layers."""

import torch
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
    squares = lambda output, target: (output - target).square().sum()
    model = cp.Pipeline(layers, squares, schedule, micro_batch_size=2, partition=cut.layers)
    assert model.step(torch.randn(4, 6), torch.randn(4, 6)).loss > 0


def test_the_best_plan_of_profiled_layers_trains():
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(4)]
    profile = cp.profile(nn.Sequential(*layers), torch.randn(4, 6), repeats=1)
    assert sorted(profile.sizes) == [1, 4] and profile[0].weights == (6 * 6 + 6) * 4
    assert [costs[0].output for _, costs in sorted(profile.sizes.items())] == [6 * 4, 4 * 6 * 4]
    best = cp.plan(profile, workers=2, mini_batch=8, schedules=["chimera"], memory=1e9).best
    squares = lambda output, target: (output - target).square().sum()
    model = cp.Pipeline(layers, squares, best.schedule, **best.pipeline_options())
    assert model.batch_size == 8
    assert model.step(torch.randn(8, 6), torch.randn(8, 6)).loss > 0
