"""Times forward and backward of a feed-forward layer, eager and exported by AOTInductor, in turn.

    OMP_NUM_THREADS=1 .venv-oracles/bin/python benchmarks/python/exported_block.py [--rounds 7]

A program in C++ could load the exported package (torch::inductor::AOTIModelPackageLoader) without a compiler. Exporting
needs one, and Python. Prints whether outputs of an exported forward have a gradient function, and the times.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import torch
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_simple

TOKENS, HIDDEN = (2, 64), 256


class Residual(nn.Sequential):
    """Its output is no view, because the export refuses views."""

    def forward(self, x):
        return x + super().forward(x)


class Joint(nn.Module):
    """Forward and backward as one graph: (inputs, weights, gradient of the output) -> (output, gradients)."""

    def __init__(self, graph):
        super().__init__()
        self.graph = graph

    def forward(self, *tensors):
        return self.graph(list(tensors[:-1]), [tensors[-1]])


def export(module, tensors, folder):
    program = torch.export.export(module, tensors)
    package = torch._inductor.aoti_compile_and_package(program, package_path=str(folder / f"{type(module).__name__}.pt2"))
    return torch._inductor.aoti_load_package(package)


def milliseconds(work, count=100):
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    layer = Residual(nn.LayerNorm(HIDDEN), nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(), nn.Linear(4 * HIDDEN, HIDDEN))
    names = [name for name, _ in layer.named_parameters()]
    weights = list(layer.parameters())
    x = torch.randn(*TOKENS, HIDDEN, requires_grad=True)
    gradient = torch.ones_like(x)
    graph = aot_export_joint_simple(
        lambda x, *given: (torch.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,)),),
        [x, *weights], trace_joint=True)
    with tempfile.TemporaryDirectory() as name:
        forward = export(layer, (x,), pathlib.Path(name))
        print(f"gradient function of an exported forward's output: {forward(x).grad_fn}")
        tensors = tuple(each.detach() for each in (x, *weights, gradient))
        joint = export(Joint(graph), tensors, pathlib.Path(name))

    def eager():
        x.grad = None
        layer.zero_grad()
        layer(x).backward(gradient)

    eager()
    found = torch.utils._pytree.tree_leaves(joint(*tensors))[1:]
    expected = [x.grad, *(weight.grad for weight in weights)]
    print(f"gradients differ by {max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True)):.1e}")
    times = {"eager": [], "exported": []}
    for _ in range(rounds):
        times["eager"].append(milliseconds(eager))
        times["exported"].append(milliseconds(lambda: joint(*tensors)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"eager {medians['eager']:.2f} ms, exported {medians['exported']:.2f} ms: "
          f"{medians['eager'] / medians['exported']:.2f} times as fast")


if __name__ == "__main__":
    main()
