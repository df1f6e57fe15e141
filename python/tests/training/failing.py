"""A rank of a pipeline one of whose modules raises in the third step."""

import torch
from torch import nn

import chimerapipe as cp


class Fails(nn.Linear):
    calls = 0

    def forward(self, x):
        Fails.calls += 1
        if Fails.calls > 10:
            raise ValueError("deliberate")
        return super().forward(x)


torch.manual_seed(1)
layers = [nn.Linear(4, 4), Fails(4, 4)]
pipeline = cp.Pipeline(layers, lambda output, target: (output - target).square().sum(), cp.schedule("1f1b", 2, 4))
for _ in range(1000):
    pipeline.step(torch.ones(4, 4), torch.ones(4, 4))
