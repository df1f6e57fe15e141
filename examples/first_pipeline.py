import torch
from torch.nn import Linear, Sequential, Tanh, functional

import chimerapipe as cp

torch.manual_seed(1)
layers = Sequential(*[Sequential(Linear(32, 32), Tanh()) for _ in range(7)], Linear(32, 4))
loss = lambda output, target: functional.cross_entropy(output, target, reduction="sum")
model = cp.Pipeline(layers, loss, cp.schedule("chimera", stages=4, micro_batches=8), micro_batch_size=8)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(64, 32)
for i in range(40):
    step = model.step(x, x[:, :4].argmax(1), optimizer=optimizer, clip=1.0)
    if model.rank == 0 and i % 13 == 0:
        print(f"step {i}: loss {step.loss:.3f}")
