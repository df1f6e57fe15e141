"""Checkpoints return every value that they take, or are refused before a file is written."""

import math
import os
from collections import Counter

import pytest
import torch
from models import perceptron, squares
from test_checkpoints import chimera
from torch import nn
from torch.optim import lr_scheduler
from users import refused, samples

import chimerapipe as cp

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex32, torch.complex64, torch.complex128),
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
]


def example(dtype, shape):
    """Any bits of the type; shapes of no, one and several dimensions."""
    count = max(1, math.prod(shape))
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    bits = torch.randint(0, 256, (count * dtype.itemsize,), dtype=torch.uint8)
    return bits.view(dtype)[: math.prod(shape)].reshape(shape)


def bits(tensor):
    tensor = torch.view_as_real(tensor.contiguous()) if tensor.is_complex() else tensor
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


class Holds(nn.Module):
    """Buffers of any type, and further state."""

    def __init__(self, buffers=(), extra=None):
        super().__init__()
        self.inner, self.extra = nn.Linear(6, 6).double(), extra
        for index, value in enumerate(buffers):
            self.register_buffer(f"b{index}", value)

    def forward(self, x):
        return self.inner(x)


class HoldsMore(Holds):
    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def pipeline_of(layer, schedule="1f1b"):
    return cp.Pipeline([layer, *perceptron(4).layers[:3]], squares, cp.schedule(schedule, 2, 4))


@pytest.mark.parametrize("schedule", ["1f1b", "chimera"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_buffers_of_all_types_come_back(dtype, schedule, tmp_path):
    shapes = [(), (3,), (0, 4), (2, 3)]
    saved = pipeline_of(Holds([example(dtype, shape) for shape in shapes]), schedule)
    saved.step(*samples())
    path = saved.save_checkpoint(tmp_path)
    loaded = pipeline_of(Holds([torch.zeros(shape, dtype=dtype) for shape in shapes]), schedule)
    loaded.load_checkpoint(tmp_path)
    for (name, one), other in zip(saved.state_dict().items(), loaded.state_dict().values(), strict=True):
        assert (one.dtype, one.shape, bits(one)) == (other.dtype, other.shape, bits(other)), name
    assert chimera("verify", path).returncode == 0


def test_views_with_lazy_bits_come_back(tmp_path):
    values = [torch.randn(4, dtype=torch.complex64).conj(), torch.randn(4, dtype=torch.complex64).conj().imag]
    values += [torch.randn(4, 6).T, torch.randn(1, 3).expand(5, 3)]
    saved = pipeline_of(Holds(values))
    saved.save_checkpoint(tmp_path)
    loaded = pipeline_of(Holds([torch.zeros(each.shape, dtype=each.dtype) for each in values]))
    loaded.load_checkpoint(tmp_path)
    for index, value in enumerate(values):
        assert torch.equal(loaded.state_dict()[f"0.b{index}"], value)


@pytest.mark.parametrize(
    "extra",
    [
        {"a": 1, "b": [1.5, None, (True, "x")]}, b"\x00bytes\xff", torch.arange(5, dtype=torch.int16),
        {"t": torch.ones(2, 2).bfloat16(), 3: {1, 2}}, "text", None, torch.eye(3).to_sparse(), Counter({30: 2}),
    ],
    ids=repr,
)
def test_extra_state_comes_back(extra, tmp_path):
    saved = pipeline_of(HoldsMore(extra=extra))
    saved.step(*samples())
    saved.save_checkpoint(tmp_path, wait=False).wait()
    layer = HoldsMore(extra="other")
    pipeline_of(layer).load_checkpoint(tmp_path)
    if isinstance(extra, torch.Tensor):
        assert torch.equal(layer.extra.to_dense(), extra.to_dense())
    elif isinstance(extra, dict) and "t" in extra:
        assert torch.equal(layer.extra["t"], extra["t"]) and layer.extra[3] == {1, 2}
    else:
        assert type(layer.extra) is type(extra) and layer.extra == extra


class Unknown:
    pass


@pytest.mark.parametrize("extra", [Unknown(), {"f": print}, [object()], lambda: 3], ids=lambda extra: str(type(extra)))
def test_what_cannot_be_read_back_is_refused_before_files(extra, tmp_path):
    saved = pipeline_of(HoldsMore(extra=extra))
    refused(lambda: saved.save_checkpoint(tmp_path), "save_checkpoint: 0._extra_state is a ", cp.ConfigError)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("kind", ["to_sparse", "to_sparse_csr"])
def test_sparse_buffers_of_replicas_are_refused_by_name(kind):
    layer = nn.Linear(6, 6).double()
    layer.register_buffer("mask", getattr(torch.eye(6), kind)())
    refused(lambda: pipeline_of(layer, "chimera"), "layer 0 (Linear): buffer 'mask' is sparse", cp.ConfigError)
    assert pipeline_of(layer).step(*samples()).loss > 0


class Odd(torch.optim.SGD):
    """Has state of several types."""

    def step(self, closure=None):
        super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if "phase" not in state:
                    state["a.key.with.dots"] = torch.randn(2)
                    state["phase"] = torch.randn(3, dtype=torch.complex64)
                    state["mask"] = torch.rand(4) > 0.5
                    state["quantized"] = torch.randint(0, 256, (5,), dtype=torch.uint8)
                    state["small"] = torch.randint(-9, 9, (2, 2), dtype=torch.int16)
                    state["limit"], state["name"], state["none"] = math.inf, "x", None


def test_state_of_optimizers_of_all_types_comes_back(tmp_path):
    model = pipeline_of(Holds(), "chimera")
    optimizer = Odd(model.parameters(), lr=0.1)
    model.step(*samples(), optimizer=optimizer)
    model.save_checkpoint(tmp_path, optimizer=optimizer)
    other = pipeline_of(Holds(), "chimera")
    loaded = Odd(other.parameters(), lr=0.5)
    other.load_checkpoint(tmp_path, optimizer=loaded)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        for key, value in optimizer.state[one].items():
            found = loaded.state[two][key]
            assert torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value, key


SCHEDULERS = [
    lambda o: lr_scheduler.MultiStepLR(o, [3, 5]),
    lr_scheduler.ReduceLROnPlateau,
    lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=10),
    lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o), lr_scheduler.StepLR(o, 2)], milestones=[3]),
]


@pytest.mark.parametrize("make", SCHEDULERS)
def test_states_of_schedulers_come_back_in_extra(make, tmp_path):
    def rates(optimizer, scheduler, steps):
        found = []
        for _ in range(steps):
            optimizer.step()
            scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
            found.append(optimizer.param_groups[0]["lr"])
        return found

    model = pipeline_of(Holds())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = make(optimizer)
    rates(optimizer, scheduler, 2)
    model.save_checkpoint(tmp_path, optimizer=optimizer, extra={"scheduler": scheduler.state_dict()})
    expected = rates(optimizer, scheduler, 6)
    other = pipeline_of(Holds())
    second = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    resumed = make(second)
    loaded = other.load_checkpoint(tmp_path, optimizer=second)
    resumed.load_state_dict(loaded.extra["scheduler"])
    assert rates(second, resumed, 6) == expected


def test_extra_keeps_keys_tuples_and_infinities(tmp_path):
    extra = {"a": {1: (2, 3), (4, 5): [math.inf, -math.inf]}, "b": {"c": None}, "nan": math.nan}
    extra["long"] = [-(2**80), 2**64]
    extra["reserved"] = [{"chimerapipe.items": [1]}, {"chimerapipe.tuple": 2}, {"chimerapipe.number": "3"}]
    model = pipeline_of(Holds())
    model.save_checkpoint(tmp_path, extra=extra)
    loaded = model.load_checkpoint(tmp_path).extra
    assert math.isnan(loaded.pop("nan")) and math.isnan(extra.pop("nan")) and loaded == extra


class Doubles(nn.Module):
    """Stores half of its weight, as quantized layers store other values than they hold."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 6).double())
        self.register_state_dict_post_hook(lambda module, state, prefix, _: self._scale(state, prefix, 0.5))
        self.register_load_state_dict_pre_hook(lambda module, state, prefix, *_: self._scale(state, prefix, 2))

    @staticmethod
    def _scale(state, prefix, factor):
        state[prefix + "weight"] = state[prefix + "weight"].detach() * factor

    def forward(self, x):
        return x @ self.weight


def test_hooks_on_state_dicts_run(tmp_path):
    one, other = Doubles(), Doubles()
    pipeline_of(one).save_checkpoint(tmp_path)
    pipeline_of(other).load_checkpoint(tmp_path)
    assert torch.equal(one.weight, other.weight)
