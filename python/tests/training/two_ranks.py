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
    loss, gradients = example.unpipelined()
    model = cp.Pipeline(
        example.layers, squares, cp.schedule("gpipe", 1, 2), micro_batch_size=2, data_parallel=2, recompute=True
    )
    assert (model.width, model.batch_size) == (2, 4)
    share = slice(model.group * 4, model.group * 4 + 4)
    step = model.step(example.inputs[share], example.targets[share])
    assert abs(step.loss - loss) < 1e-12
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=1e-12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(model.rank)
    model.gather()
    assert all((parameter == 0).all() for layer in example.layers for parameter in layer.parameters())


train_on_shares()
pipeline = cp.Pipeline([nn.Linear(4, 4), Fails(4, 4)], squares, cp.schedule("1f1b", 2, 4))
for _ in range(1000):
    pipeline.step(torch.ones(4, 4), torch.ones(4, 4))
