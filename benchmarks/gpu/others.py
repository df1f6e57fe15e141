#!/usr/bin/env python3
"""Measures forward and backward of GPT-2 blocks in other libraries on one device, like `models --blocks`.

    others.py {transformers,pipelining} [--device cuda] [--layers 8] [--hidden 1280] [--heads 20] [--sequence 1024]
        [--micro-batch-size 4] [--micro-batches 10] [--rounds 7] [--dtype bfloat16] [--attention sdpa]

transformers: GPT2Model without a compiler, from hidden states to hidden states; `--attention eager` uses no fused
kernel. pipelining: the blocks of peers/torch_pipelining.py as the only stage of torch.distributed.pipelining's 1F1B, in
one process. Weights and gradients have type `--dtype`; Chimera keeps float32 master weights. No dropout. Prints one
JSON line.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))


def transformers_step(options, hidden, gradient):
    import transformers

    config = transformers.GPT2Config(
        n_layer=options.layers, n_embd=options.hidden, n_head=options.heads, n_positions=options.sequence, vocab_size=8,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    config._attn_implementation = options.attention
    model = transformers.GPT2Model(config).to(options.device, hidden.dtype).train()

    def step():
        for _ in range(options.micro_batches):
            model(inputs_embeds=hidden.detach().requires_grad_()).last_hidden_state.backward(gradient)

    return step, lambda: model.ln_f.weight.grad


def block_weights(options):
    """Returns the weights of blocks 1 to `layers`, by GPT-2's names, with matrices [in, out]."""
    width, weights = options.hidden, {}
    shapes = {"attn.c_attn": (width, 3 * width), "attn.c_proj": (width, width), "mlp.c_fc": (width, 4 * width),
              "mlp.c_proj": (4 * width, width)}
    for layer in range(1, options.layers + 1):
        for norm in ("ln_1", "ln_2"):
            weights[f"h.{layer}.{norm}.weight"] = torch.ones(width)
            weights[f"h.{layer}.{norm}.bias"] = torch.zeros(width)
        for name, shape in shapes.items():
            weights[f"h.{layer}.{name}.weight"] = 0.02 * torch.randn(shape)
            weights[f"h.{layer}.{name}.bias"] = torch.zeros(shape[1])
    return weights


def pipelining_step(options, hidden, gradient):
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, schedules
    from torch_pipelining import Stage

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    store = tempfile.mkdtemp() + "/store"
    backend = "nccl" if options.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, init_method="file://" + store, rank=0, world_size=1)
    model = {"heads": options.heads, "layers": options.layers + 2}  # The first and the last block are omitted
    module = Stage(model, block_weights(options), 1, options.layers + 1).to(options.device, hidden.dtype)
    stage = PipelineStage(module, 0, 1, options.device)
    schedule = schedules.Schedule1F1B(
        stage, options.micro_batches, loss_fn=lambda out, given: (out * given).sum(), scale_grads=False)
    inputs = hidden.repeat(options.micro_batches, 1, 1)
    targets = gradient.repeat(options.micro_batches, 1, 1)

    def step():
        schedule.step(inputs.detach().requires_grad_(), target=targets, losses=[], return_outputs=False)

    return step, lambda: next(module.parameters()).grad


def milliseconds(step, gradient, rounds):
    """Returns the median of the rounds after two warm-up rounds. Reading an element waits for the device."""
    times = []
    for _ in range(rounds + 2):
        start = time.monotonic()
        step()
        gradient().flatten()[0].item()
        times.append(1e3 * (time.monotonic() - start))
    return statistics.median(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["transformers", "pipelining"])
    parser.add_argument("--device", default="cuda", type=torch.device)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    for name, value in {"layers": 8, "hidden": 1280, "heads": 20, "sequence": 1024, "micro-batch-size": 4,
                        "micro-batches": 10, "rounds": 7}.items():
        parser.add_argument("--" + name, type=int, default=value)
    options = parser.parse_args()
    torch.manual_seed(1)
    shape = (options.micro_batch_size, options.sequence, options.hidden)
    hidden = torch.randn(shape, device=options.device, dtype=getattr(torch, options.dtype))
    make = transformers_step if options.peer == "transformers" else pipelining_step
    step, gradient = make(options, hidden, torch.randn_like(hidden))
    print(json.dumps({"peer": options.peer, "micro_batches": options.micro_batches,
                      "milliseconds": milliseconds(step, gradient, options.rounds)}))


if __name__ == "__main__":
    main()
