"""A rank that ends after gather(); the group of torch.distributed must be closed before the interpreter ends."""

import atexit
import os
import sys

import torch
from torch import nn

# Registered first, so it runs last.
atexit.register(lambda: print(f"ends with a group: {torch.distributed.is_initialized()}", flush=True))

import chimerapipe as cp  # noqa: E402

if os.environ["ENDS"] == "destroy":
    torch.distributed.init_process_group("gloo")
torch.manual_seed(1)
layers = [nn.Linear(6, 6) for _ in range(4)]
model = cp.Pipeline(layers, nn.MSELoss(reduction="sum"), cp.schedule("chimera", 2, 4))
model.step(torch.ones(4, 6), torch.zeros(4, 6))
model.gather()
if os.environ["ENDS"] == "destroy":
    torch.distributed.destroy_process_group()
if os.environ["ENDS"] == "exit":
    sys.exit(0)
