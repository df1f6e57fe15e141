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


def backward_of_mean(model, inputs, targets, factor=1.0):
    """Adds the gradients of the mean of squares, times a factor. Returns the mean."""
    loss = squares(model(inputs), targets) / targets.numel()
    (loss * factor).backward()
    return loss.item()


def plain_step(model, optimizer, inputs, targets, clip=0.0):
    """Trains a model on a batch. Returns the mean of squares, and the norm of the gradients before clipping."""
    optimizer.zero_grad()
    loss = backward_of_mean(model, inputs, targets)
    norm = nn.utils.clip_grad_norm_(model.parameters(), clip or torch.inf)
    optimizer.step()
    return loss, norm.item()


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

    def expect_unpipelined(self, pipeline, cut=lambda samples: samples, **options):
        """Compares a step on the samples of this process, which `cut` divides, with the whole model and batch."""
        loss, gradients = self.unpipelined()
        own = slice(pipeline.group * pipeline.batch_size, (pipeline.group + 1) * pipeline.batch_size)
        step = pipeline.step(cut(self.inputs[own]), cut(self.targets[own]), **options)
        assert step.loss == pytest.approx(loss, rel=1e-12)
        norm = nn.utils.get_total_norm(gradients.values()).item()
        assert step.gradient_norm == pytest.approx(norm, rel=1e-12)
        named = dict(pipeline.named_parameters())
        assert named.keys() == gradients.keys() or pipeline._shape.world > 1
        for name, parameter in named.items():
            torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=1e-12, msg=name)


def perceptron(samples, layers=4):
    made = [nn.Sequential(nn.Linear(6, 6), nn.Tanh()).double() for _ in range(layers)]
    return Example(made, squares, torch.randn(samples, 6).double(), torch.randn(samples, 6).double())


def convolutions(samples, layers=4):
    def block(channels):
        return nn.Sequential(nn.Conv2d(channels, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU()).double()

    head = nn.Sequential(nn.Flatten(), nn.Linear(64, 5)).double()
    layers = [block(3), *[block(4) for _ in range(layers - 2)], head]
    return Example(layers, cross_entropy, torch.randn(samples, 3, 4, 4).double(), torch.randint(5, (samples,)))
