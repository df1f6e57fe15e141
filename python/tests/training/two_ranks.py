"""Two ranks: each trains its share as one group; then a module of one rank raises."""

import time

import torch
from models import perceptron, squares
from torch import nn

import chimerapipe as cp


class Fails(nn.Linear):
    calls = 0

    def forward(self, x):
        Fails.calls += 1
        if Fails.calls > 10:
            print(f"raised at {time.time()}", flush=True)
            raise ValueError("deliberate")
        return super().forward(x)


def train_on_shares():
    torch.manual_seed(1)
    example = perceptron(samples=8)
    model = cp.Pipeline(
        example.layers, squares, cp.schedule("gpipe", 1, 2), micro_batch_size=2, data_parallel=2, recompute=True
    )
    assert (model.width, model.batch_size) == (2, 4)
    example.expect_unpipelined(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(model.rank)
    model.gather()
    assert all((parameter == 0).all() for layer in example.layers for parameter in layer.parameters())


train_on_shares()
pipeline = cp.Pipeline([nn.Linear(4, 4), Fails(4, 4)], squares, cp.schedule("1f1b", 2, 4))
for _ in range(1000):
    pipeline.step(torch.ones(4, 4), torch.ones(4, 4))
