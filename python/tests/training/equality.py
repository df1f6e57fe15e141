"""Compares gradients of pipelines with the unpipelined model, on threads and on processes."""

import torch
from hugging_face_models import bert, llama
from models import convolutions, cross_entropy, perceptron

import chimerapipe as cp

SCHEDULES = [entry.name for entry in cp.schedules() if entry.synchronous]
MODELS = ["perceptron", "convolutions", "llama", "bert"]
TOLERANCE = 1e-12  # float64; sums over micro-batches and replicas are added in another order
STAGES, BATCHES, WIDTH = 2, 4, 2


def case(model, stages):
    """Returns layers, loss function, samples, and the unpipelined loss and gradients, by id of the parameter."""
    torch.manual_seed(7)
    samples = BATCHES * WIDTH
    if model in ("perceptron", "convolutions"):
        example = {"perceptron": perceptron, "convolutions": convolutions}[model](samples, layers=stages)
        layers, loss, inputs, targets = example.layers, example.loss, example.inputs, example.targets
        whole, parameters = torch.nn.Sequential(*layers), None
    else:
        made = {"llama": llama, "bert": bert}[model](num_hidden_layers=max(stages - 2, 1))
        layers, loss = cp.layers_of(made), cross_entropy
        inputs, targets = torch.randint(31, (samples, 5)), torch.randint(31, (samples, 5))
        whole = lambda ids: made(ids).logits
        parameters = made.parameters()
    parameters = list(parameters or whole.parameters())
    value = loss(whole(inputs), targets) / targets.numel()
    value.backward()
    gradients = {id(p): p.grad for p in parameters if p.grad is not None}
    for parameter in parameters:
        parameter.grad = None
    return layers, loss, inputs, targets, value.item(), gradients


def expect_equal(model, schedule):
    """Compares this process's gradients and the loss, with W = 2. Returns the number of gradients."""
    schedule = cp.schedule(schedule, STAGES, BATCHES)
    layers, loss, inputs, targets, expected, gradients = case(model, schedule.stages)
    pipeline = cp.Pipeline(layers, loss, schedule, data_parallel=WIDTH)
    share = slice(pipeline.group * pipeline.batch_size, (pipeline.group + 1) * pipeline.batch_size)
    step = pipeline.step(inputs[share], targets[share])
    assert abs(step.loss - expected) <= TOLERANCE * abs(expected)
    named = dict(pipeline.named_parameters())
    assert named and pipeline.width * len(inputs[share]) == len(inputs)
    for name, parameter in named.items():
        if id(parameter) in gradients:
            torch.testing.assert_close(parameter.grad, gradients[id(parameter)], rtol=0, atol=TOLERANCE, msg=name)
    return sum(id(parameter) in gradients for parameter in named.values())
