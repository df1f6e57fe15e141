"""Checkpoints: loading in other layouts, failures, and `chimera checkpoint`."""

import functools
import json
import os
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from models import perceptron, squares
from test_pipeline import pipeline_of
from torch import nn
from users import refused

import chimerapipe as cp
from chimerapipe import _training

LAYOUTS = [("chimera", 4, 8, 1), ("zb-h1", 2, 4, 2), ("interleaved-1f1b", 2, 8, 1)]


def trainer(layout, seed=3, **options):
    name, stages, micro_batches, width = layout
    torch.manual_seed(seed)
    example = perceptron(samples=16, layers=8)
    pipeline = pipeline_of(
        example, name, stages, micro_batches, micro_batch_size=2, data_parallel=width, reduction="canonical", **options
    )
    decayed = [p for p in pipeline.parameters() if p.ndim > 1]
    others = [p for p in pipeline.parameters() if p.ndim == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return example, pipeline, torch.optim.AdamW(groups, lr=0.05)


def train(example, pipeline, optimizer, steps):
    share = slice(pipeline.group * pipeline.batch_size, (pipeline.group + 1) * pipeline.batch_size)
    inputs, targets = example.inputs[share], example.targets[share]
    return [pipeline.step(inputs, targets, optimizer=optimizer).loss for _ in range(steps)]


def chimera(*words):
    program = os.environ.get("CHIMERA_PROGRAM", "none")
    if not Path(program).is_file():
        pytest.skip("needs the program")
    return subprocess.run([program, "checkpoint", *map(str, words)], capture_output=True, text=True, check=False)


def test_another_layout_goes_on_with_equal_bits(tmp_path):
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    train(example, pipeline, optimizer, 2)
    optimizer.param_groups[0]["lr"] = 0.03
    path = pipeline.save_checkpoint(tmp_path, optimizer=optimizer, extra={"epoch": 4})
    assert path == str(tmp_path / "step-00000002")
    expected = train(example, pipeline, optimizer, 2)
    weights = pipeline.state_dict()
    for layout in LAYOUTS:
        example, pipeline, optimizer = trainer(layout, seed=99)
        example = perceptron_of_seed(3)
        loaded = pipeline.load_checkpoint(tmp_path, optimizer=optimizer)
        assert (loaded.path, loaded.step, loaded.extra) == (path, 2, {"epoch": 4})
        assert [group["lr"] for group in optimizer.param_groups] == [0.03, 0.05]
        assert train(example, pipeline, optimizer, 2) == expected
        assert all(torch.equal(value, weights[name]) for name, value in pipeline.state_dict().items())
        assert pipeline.save_checkpoint(tmp_path / "more").endswith("step-00000004")


def test_names_that_are_not_utf8_cost_no_weights(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    train(example, pipeline, optimizer, 1)
    path = pipeline.save_checkpoint(folder, optimizer=optimizer, extra={"data": folder})
    loaded = pipeline.load_checkpoint(folder, optimizer=optimizer)
    assert loaded.path == path
    assert loaded.extra == {"data": folder.replace("\udce9", "\ufffd")}
    refused(lambda: pipeline.load_checkpoint(folder + "2"), folder + "2", cp.CheckpointError)


def perceptron_of_seed(seed):
    torch.manual_seed(seed)
    return perceptron(samples=16, layers=8)


def test_the_program_lists_shows_verifies_and_compares_them(tmp_path):
    for folder, layout in (("one", LAYOUTS[0]), ("two", LAYOUTS[1])):
        example, pipeline, optimizer = trainer(layout)
        for _ in range(3):
            train(example, pipeline, optimizer, 1)
            pipeline.save_checkpoint(tmp_path / folder, optimizer=optimizer, keep=2)
    listed = json.loads(chimera("list", tmp_path / "one", "--format", "json").stdout)["checkpoints"]
    assert [row["step"] for row in listed] == [2, 3] and all(row["loss"] > 0 for row in listed)
    shown = json.loads(chimera("show", tmp_path / "two", "--format", "json").stdout)
    assert shown["run"]["layout"]["data_parallel"] == 2 and shown["run"]["optimizer"]["kind"] == "AdamW"
    assert chimera("verify", tmp_path / "one").stdout.count("good") == 2
    same = chimera("diff", tmp_path / "one", tmp_path / "two")
    assert (same.returncode, same.stdout) == (0, "equal in every bit\n")
    earlier = chimera("diff", tmp_path / "one" / "step-00000002", tmp_path / "one" / "step-00000003")
    assert earlier.returncode == 1
    for kept in ("weight", "weight.first_moment", "weight.second_moment", "weight.step"):
        assert f"0.0.{kept}:" in earlier.stdout


def test_a_damaged_checkpoint_is_passed_over_and_refused_by_name(tmp_path):
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    for _ in range(2):
        train(example, pipeline, optimizer, 1)
        pipeline.save_checkpoint(tmp_path, optimizer=optimizer)
    file = tmp_path / "step-00000002" / "model.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-1] ^= 1
    file.write_bytes(damaged)
    with pytest.warns(UserWarning, match="model.safetensors: differs .*; uses .*step-00000001 instead"):
        loaded = pipeline.load_checkpoint(tmp_path, optimizer=optimizer)
    assert loaded.step == 1 and "model.safetensors" in loaded.refused[0]
    refused(lambda: pipeline.load_checkpoint(tmp_path / "step-00000002"), "model.safetensors")


def test_a_save_that_fails_leaves_the_checkpoints_before(tmp_path):
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    train(example, pipeline, optimizer, 1)
    pipeline.save_checkpoint(tmp_path, optimizer=optimizer)
    train(example, pipeline, optimizer, 1)
    save = functools.partial(pipeline.save_checkpoint, tmp_path, optimizer=optimizer)
    refused(lambda: save(extra={"no": object()}), "not JSON serializable; give numbers")
    (tmp_path / "step-00000002.tmp").write_text("in the way")
    refused(save, "step-00000002")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000001", "step-00000002.tmp"]
    assert pipeline.load_checkpoint(tmp_path, optimizer=optimizer).step == 1


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path, monkeypatch):
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    train(example, pipeline, optimizer, 2)
    pipeline.save_checkpoint(tmp_path / "at once", optimizer=optimizer)
    trained = threading.Event()
    write = _training.write_part

    def slowly(*arguments):
        assert trained.wait(60)
        write(*arguments)

    monkeypatch.setattr(_training, "write_part", slowly)
    saving = pipeline.save_checkpoint(tmp_path / "meanwhile", optimizer=optimizer, wait=False)
    train(example, pipeline, optimizer, 2)
    assert not saving.done() and saving.step == 2 and not (tmp_path / "meanwhile" / "latest").exists()
    trained.set()
    assert pipeline.save_checkpoint(tmp_path / "meanwhile", optimizer=optimizer, keep=2).endswith("step-00000004")
    assert saving.done()
    assert saving.wait() == saving.path == str(tmp_path / "meanwhile" / "step-00000002")
    same = chimera("diff", tmp_path / "at once", saving.path)
    assert (same.returncode, same.stdout) == (0, "equal in every bit\n")


def test_a_save_that_fails_meanwhile_is_told_and_the_next_one_works(tmp_path, capfd):
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    train(example, pipeline, optimizer, 1)
    (tmp_path / "step-00000001.tmp").write_text("in the way")
    saving = pipeline.save_checkpoint(tmp_path, optimizer=optimizer, wait=False)
    train(example, pipeline, optimizer, 1)
    pipeline.save_checkpoint(tmp_path, optimizer=optimizer, wait=False).wait()
    with pytest.raises(Exception, match="step-00000001"):
        saving.wait()
    line = capfd.readouterr().err
    assert line.startswith("chimerapipe: rank 0: the checkpoint of step 1 is not saved: ") and line.count("\n") == 1
    assert pipeline.load_checkpoint(tmp_path).step == 2


def test_checkpoints_of_another_model_are_refused_by_name(tmp_path):
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    with pytest.raises(Exception, match="no checkpoint|none"):
        pipeline.load_checkpoint(tmp_path)
    pipeline.save_checkpoint(tmp_path)
    refused(lambda: pipeline.load_checkpoint(tmp_path, optimizer=optimizer), "state of no optimizer, not of AdamW")
    schedule = cp.schedule("1f1b", 2, 4)
    for layers, words in (
        ([nn.Linear(6, 6) for _ in range(2)], "8 layers, this pipeline 2"),
        ([nn.Linear(6, 6) for _ in range(8)], "has no tensor 0.weight"),
        ([nn.Sequential(nn.Linear(6, 6)) for _ in range(8)], r"0.0.weight is torch.float64.*float32"),
    ):
        with pytest.raises(Exception, match=words):
            cp.Pipeline(layers, squares, schedule).load_checkpoint(tmp_path)


def test_buffers_and_numbers_of_an_optimizer_come_back(tmp_path):
    made = []
    for order in (list, reversed):  # The groups list parameters in another order, as on other processes
        layers = [nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)) for _ in range(2)]
        pipeline = cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 2), micro_batch_size=4)
        named = order(list(pipeline.named_parameters()))
        made.append((pipeline, torch.optim.SGD(named, lr=0.1, momentum=0.9)))
    pipeline, optimizer = made[0]
    pipeline.step(torch.randn(8, 6), torch.randn(8, 6), optimizer=optimizer)
    pipeline.save_checkpoint(tmp_path, optimizer=optimizer)
    made[1][0].load_checkpoint(tmp_path, optimizer=made[1][1])
    for (name, value), (_, expected) in zip(*(p.state_dict().items() for p, _ in made), strict=True):
        assert torch.equal(value, expected), name
    assert made[1][1].param_groups[0]["param_names"][0] == "1.1.bias"  # The name of this optimizer, not the saved name
    momenta = [[o.state[p]["momentum_buffer"] for _, p in pipe.named_parameters()] for pipe, o in made]
    assert all(torch.equal(a, b) for a, b in zip(*momenta, strict=True))
