"""Models as lists of layers, with their unpipelined results."""

import copy
import importlib
import os
from dataclasses import dataclass

import pytest
import torch
from torch import nn


def oracle(module):
    """Returns a module that tests compare with. Without it the test is skipped; under CHIMERA_NEED_ORACLES it fails."""
    return importlib.import_module(module) if os.environ.get("CHIMERA_NEED_ORACLES") else pytest.importorskip(module)


def squares(output, target):
    return ((output - target) ** 2).sum()


def cross_entropy(output, target):
    return nn.functional.cross_entropy(output.flatten(0, -2), target.flatten(), reduction="sum")


@dataclass
class Example:
    layers: list
    loss: object
    inputs: torch.Tensor
    targets: torch.Tensor

    def unpipelined(self):
        """Returns the mean loss of the whole batch, and gradients by global name."""
        layers = copy.deepcopy(self.layers)
        hidden = self.inputs
        for layer in layers:
            hidden = layer(hidden)
        loss = self.loss(hidden, self.targets) / self.targets.numel()
        loss.backward()
        gradients = {f"{i}.{n}": p.grad for i, layer in enumerate(layers) for n, p in layer.named_parameters()}
        return loss.item(), gradients


def perceptron(samples, layers=4):
    made = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()).double() for _ in range(layers)]
    return Example(made, squares, torch.randn(samples, 6).double(), torch.randn(samples, 6).double())


def convolutions(samples, layers=4):
    def block(channels):
        return nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU()).double()

    head = nn.Sequential(nn.Flatten(), nn.Linear(64, 5)).double()
    layers = [block(3), *[block(4) for _ in range(layers - 2)], head]
    return Example(layers, cross_entropy, torch.randn(samples, 3, 4, 4).double(), torch.randint(5, (samples,)))
