"""Modes that torch keeps per thread reach all rank threads."""

import contextvars
import threading

import numpy
import pytest
import torch
from models import perceptron, squares
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from users import Pair, refused, samples

import chimerapipe as cp

SCHEDULES = ["1f1b", "zb-h1", "chimera", "chimera-zb"]


class Threads(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = {}

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        self.seen.setdefault(threading.get_ident(), []).append(str(function))
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_dispatch_modes_see_all_ranks(schedule):
    pair = Pair(perceptron(4).layers, schedule, stages=4)
    pair.step(*samples())
    with Threads() as mode:
        pair.pipeline.step(*samples())
    forwards = [sum("addmm" in name for name in names) for names in mode.seen.values()]
    assert sum(forwards) == 16 and len(forwards) == 4


@pytest.mark.parametrize("schedule", ["1f1b", "chimera", "gpipe"])
def test_a_flop_counter_counts_all_ranks(schedule):
    layers = perceptron(4).layers
    inputs, targets = samples()
    with FlopCounterMode(display=False) as plain:
        squares(nn.Sequential(*layers)(inputs), targets).backward()
    pair = Pair(layers, schedule, stages=4)
    pair.step(inputs, targets)
    with FlopCounterMode(display=False) as counter:
        pair.pipeline.step(inputs, targets)
    assert counter.get_total_flops() == plain.get_total_flops()
    pair.pipeline.step(inputs, targets)


@pytest.mark.parametrize("schedule", ["zb-h1", "chimera-zb"])
def test_a_flop_counter_is_refused_if_the_backward_is_split(schedule):
    layers = perceptron(4).layers
    pair = Pair(layers, schedule, stages=4)
    pair.step(*samples())
    with FlopCounterMode(display=False) as counter:
        refused(lambda: pair.pipeline.step(*samples()), "FlopCounterMode cannot count a split backward", cp.ConfigError)
        assert pair.pipeline.validate(*samples()) > 0
    assert counter.get_total_flops() == 4 * 4 * 2 * 6 * 6
    pair.step(*samples())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_hooks_on_saved_tensors_see_all_ranks(schedule):
    threads = set()
    count = [0]

    def pack(tensor):
        threads.add(threading.get_ident())
        count[0] += 1
        return tensor.clone()

    pair = Pair(perceptron(4).layers, schedule, stages=4)
    pair.step(*samples())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        pair.pipeline.step(*samples())
    assert len(threads) == 4 and count[0] >= 32


class Jvp(nn.Linear):
    def forward(self, x):
        output, tangent = torch.func.jvp(super().forward, (x,), (torch.ones_like(x),))
        return output + tangent


class Dual(nn.Linear):
    def forward(self, x):
        with torch.autograd.forward_ad.dual_level():
            made = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
            output, tangent = torch.autograd.forward_ad.unpack_dual(super().forward(made))
        return output + tangent


@pytest.mark.parametrize("kind", [Jvp, Dual])
def test_forward_mode_on_several_threads_is_refused_by_name(kind):
    layers = [*perceptron(4).layers[:3], kind(6, 6).double()]
    model = cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 4))
    words = f"layer 3 ({kind.__name__}) uses forward-mode differentiation"
    refused(lambda: model.step(*samples()), words, cp.ConfigError)
    Pair(layers, "gpipe", stages=1).step(*samples())


def test_a_profiler_sees_all_ranks():
    pair = Pair(perceptron(4).layers, "1f1b", stages=4)
    pair.step(*samples())
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        pair.pipeline.step(*samples())
    counts = {event.key: event.count for event in profile.key_averages()}
    assert counts["aten::addmm"] == 16 and counts["aten::tanh_backward"] == 16


def noting(look):
    """Returns a function that runs a step, of which layers and loss note their thread and what `look` returns in it.
    It returns the results of `look` on the four threads."""
    seen = set()

    def note(value):
        seen.add((threading.get_ident(), look()))
        return value

    class Notes(nn.Linear):
        def forward(self, x):
            return note(super().forward(x))

    layers = [Notes(6, 6).double() for _ in range(4)]
    model = cp.Pipeline(layers, lambda *given: note(squares(*given)), cp.schedule("1f1b", 4, 4))

    def seen_in_a_step(inputs, targets):
        seen.clear()
        model.step(inputs, targets)
        assert len({thread for thread, _ in seen}) == 4
        return {found for _, found in seen}

    return seen_in_a_step


def test_context_variables_reach_all_ranks():
    variable = contextvars.ContextVar("variable", default=0)
    seen_in = noting(lambda: (variable.get(), str(numpy.geterr()["over"])))
    for value in (3, 4):
        variable.set(value)
        with numpy.errstate(over="raise"):
            assert seen_in(*samples()) == {(value, "raise")}


def test_a_default_device_reaches_layers_on_all_ranks():
    seen_in = noting(lambda: torch.empty(1).device.type)
    inputs, targets = samples()
    assert seen_in(inputs, targets) == {"cpu"}
    with torch.device("meta"):
        assert seen_in(inputs, targets) == {"meta"}


def test_settings_of_threads_reach_all_ranks():
    """The number of intra-op threads, and whether denormal numbers are flushed to zero."""
    seen_in = noting(lambda: (torch.get_num_threads(), float(torch.tensor(1e-30) * 1e-10) == 0))
    threads = torch.get_num_threads()
    for number, flushes in ((1, False), (2, True), (1, False)):
        torch.set_num_threads(number)
        torch.set_flush_denormal(flushes)
        try:
            assert seen_in(*samples()) == {(number, flushes)}
        finally:
            torch.set_num_threads(threads)
            torch.set_flush_denormal(False)
