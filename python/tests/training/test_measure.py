"""What layers take and hold, by running them."""

import torch
from torch import nn

import chimerapipe as cp


def test_bytes_are_those_of_tensors_and_times_are_there():
    layers = [nn.Embedding(11, 6), nn.Linear(6, 8), nn.Tanh()]
    costs = cp.measure(layers, torch.randint(11, (3, 5)), repeats=2)
    assert [cost.weights for cost in costs] == [11 * 6 * 4, (6 * 8 + 8) * 4, 0]
    assert [cost.output for cost in costs] == [15 * 6 * 4, 15 * 8 * 4, 15 * 8 * 4]
    assert costs[1].state == 3 * costs[1].weights
    assert costs[1].activations == 15 * 6 * 4  # its input
    assert costs[2].activations == 15 * 8 * 4  # its output
    assert costs[0].input_gradient == 0 and all(cost.forward > 0 for cost in costs)
    assert all(parameter.grad is None for layer in layers for parameter in layer.parameters())


def test_a_measured_partition_trains():
    layers = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(5)]
    schedule = cp.schedule("chimera", 2, 2)
    cut = cp.partition(cp.measure(layers, torch.randn(2, 6), repeats=1), schedule)
    squares = lambda output, target: (output - target).square().sum()
    model = cp.Pipeline(layers, squares, schedule, micro_batch_size=2, partition=cut.layers)
    assert model.step(torch.randn(4, 6), torch.randn(4, 6)).loss > 0
