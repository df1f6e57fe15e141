"""cp.Muon against torch.optim.Muon and AdamW on the whole model in float64, on rank threads and on processes."""

import functools
import inspect
import sys
from pathlib import Path

import pytest
import torch
from forked_ranks import forked
from models import backward_of_mean, squares
from torch import nn

import chimerapipe as cp

SCHEDULES = ["1f1b", "zb-h1", "chimera", "chimera-zb"]
STEPS = 4


class Conv1D(nn.Module):
    """As in transformers: a matrix in x out."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs, dtype=torch.float64) / 3)

    def forward(self, x):
        return x @ self.weight


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(6).double()
        self.c_attn = Conv1D(6, 18)
        self.up, self.down = nn.Linear(6, 10).double(), nn.Linear(10, 6).double()

    def forward(self, x):
        a, b, c = self.c_attn(self.norm(x)).chunk(3, dim=-1)
        return x + self.down(torch.tanh(self.up(a * torch.tanh(b) + c)))


def layers():
    torch.manual_seed(7)
    return [nn.Embedding(9, 6).double(), *[Block() for _ in range(6)], nn.Linear(6, 3).double()]


@functools.cache
def muon_in_float64():
    """Returns torch's own code of the iterations, in float64."""
    from torch.optim import _muon

    text = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert text.count("bfloat16") == 1
    names = dict(vars(_muon))
    exec(text.replace("bfloat16", "double"), names)
    return names["_zeropower_via_newtonschulz"]


class Plain:
    """The whole model with torch's optimizers. A matrix of c_attn is a parameter of its own there."""

    def __init__(self, adjust):
        self.model = nn.Sequential(*layers())
        self.pieces, muon, decayed, others = [], [], [], []
        for name, parameter in self.model.named_parameters():
            if name.startswith(("0.", "7.")) or parameter.ndim < 2:
                (decayed if parameter.ndim == 2 else others).append(parameter)
                continue
            transposed = "c_attn" in name
            views = lambda x, transposed=transposed: x.t().chunk(3) if transposed else [x]
            pieces = [nn.Parameter(view.detach().clone()) for view in views(parameter)]
            self.pieces.append((parameter, views, pieces))
            muon += pieces
        settings = {"lr": 0.02, "weight_decay": 0.1}
        others_settings = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
        self.optimizers = [
            torch.optim.Muon(muon, adjust_lr_fn=adjust, **settings),
            torch.optim.AdamW(others_settings, **settings),
        ]

    def step(self, inputs, targets, clip):
        self.model.zero_grad()
        loss = backward_of_mean(self.model, inputs, targets)
        nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        for parameter, views, pieces in self.pieces:
            for piece, view in zip(pieces, views(parameter.grad), strict=True):
                piece.grad = view.clone()
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            for parameter, views, pieces in self.pieces:
                for piece, view in zip(pieces, views(parameter), strict=True):
                    view.copy_(piece)
        return loss


def samples(step):
    torch.manual_seed(step)
    return torch.randint(9, (8,)), torch.randn(8, 3).double()


def train(schedule, stages, width=1, adjust="match_rms_adamw", **options):
    micro_batches = 4 // width
    model = cp.Pipeline(
        layers(), squares, cp.schedule(schedule, stages, micro_batches), micro_batch_size=2, data_parallel=width
    )
    optimizer = cp.Muon(model, lr=0.02, weight_decay=0.1, adjust_lr_fn=adjust, **options)
    losses = []
    for step in range(STEPS):
        share = slice(model.group * model.batch_size, (model.group + 1) * model.batch_size)
        inputs, targets = (each[share] for each in samples(step))
        losses.append(model.step(inputs, targets, optimizer=optimizer, clip=0.1).loss)
    return model, optimizer, losses


def expect_torchs(schedule, stages, width=1, adjust="match_rms_adamw"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.optim._muon._zeropower_via_newtonschulz", muon_in_float64())
        plain = Plain(adjust)
        expected = [plain.step(*samples(step), clip=0.1) for step in range(STEPS)]
    model, _, losses = train(schedule, stages, width, adjust)
    torch.testing.assert_close(losses, expected, rtol=1e-12, atol=0)
    values = dict(plain.model.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, values[name], rtol=0, atol=1e-12, msg=lambda text: f"{name}: {text}")
    return model


@pytest.mark.parametrize("adjust", ["match_rms_adamw", "original"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equals_torchs_optimizers_on_the_whole_model(schedule, adjust):
    expect_torchs(schedule, stages=2, adjust=adjust)


def test_iterations_in_bfloat16_are_torchs_within_its_rounding():
    plain = Plain("match_rms_adamw")
    plain.step(*samples(0), clip=0.1)
    start = dict(nn.Sequential(*layers()).named_parameters())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "STEPS", 1)
        model, _, _ = train("chimera", 2, dtype=torch.bfloat16)
    for name, parameter in plain.model.named_parameters():
        moved = (parameter - start[name]).norm()
        ours = dict(model.named_parameters())[name]
        assert (ours - parameter).norm() < 2**-6 * moved, name


def test_a_checkpoint_goes_on_with_the_same_bits(tmp_path):
    model, optimizer, _ = train("chimera", 2)
    assert sorted(set().union(*(state for state in optimizer.state.values()))) == [
        "exp_avg", "exp_avg_sq", "momentum_buffer", "step",
    ]
    model.save_checkpoint(tmp_path, optimizer=optimizer)
    other = cp.Pipeline(layers(), squares, cp.schedule("1f1b", 4, 4), micro_batch_size=2)
    resumed = cp.Muon(other, lr=0.02, weight_decay=0.1)
    other.load_checkpoint(tmp_path, optimizer=resumed)
    expected = model.step(*samples(9), optimizer=optimizer)
    assert abs(other.step(*samples(9), optimizer=resumed).loss - expected.loss) <= 1e-12 * expected.loss
    named = dict(other.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(named[name], parameter, rtol=0, atol=1e-12)


def test_wrong_arguments_are_refused():
    model = cp.Pipeline(layers(), squares, cp.schedule("gpipe", 1, 1), micro_batch_size=2)
    for words, call in (
        ("Muon: got a list; give the Pipeline", lambda: cp.Muon([], lr=1.0)),
        ("adjust_lr_fn: got 'rms'; use match_rms_adamw or original", lambda: cp.Muon(model, adjust_lr_fn="rms")),
        ("momentum at least 0 and below 1", lambda: cp.Muon(model, momentum=1.0)),
    ):
        with pytest.raises(cp.ConfigError, match=words):
            call()


def test_processes_share_the_iterations():
    forked(0, Path(__file__).with_name("muon_ranks.py"), seconds=300)
