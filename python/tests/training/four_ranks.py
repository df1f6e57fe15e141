"""Runs the cases of four ranks, and then those of two.

Usage: four_ranks.py FOLDER LOSSES: a checkpoint of rank threads, and their losses in two steps and a validation.
"""

import json
import os
import runpy
import sys
from datetime import timedelta
from pathlib import Path
from unittest import mock

import pytest
import torch
import users
from equality import MODELS, SCHEDULES, expect_equal
from forked_ranks import launch
from hugging_face_models import MODELS as TRANSFORMERS
from hugging_face_models import batch_of, loss_of, unpipelined
from models import perceptron, squares
from test_checkpoints import LAYOUTS, train, trainer

import chimerapipe as cp

EXAMPLES = Path(__file__).parents[3] / "examples"


def main(folder, losses):
    torch.set_num_threads(1)
    check_gradients()
    check_work()
    check_transformers(["t5", "gemma"], ["chimera-zb"], width=2)
    go_on_from_checkpoints(folder, losses)
    train_over_pairs(folder, losses)
    runpy.run_path(str(EXAMPLES / "fine_tune_llama.py"))["main"](folder / "llama")


def check_gradients():
    for model in MODELS:
        gradients = 0
        for schedule in SCHEDULES:
            try:
                gradients += expect_equal(model, schedule)
            except AssertionError as error:
                raise AssertionError(f"{model}, {schedule}: {error}") from None
        assert gradients > 0, model


def check_work():
    """Work permutes the micro-batches of each group; ranks of a group must give the same."""
    for schedule, stages, width in (("1f1b", 4, 1), ("chimera-zb", 4, 1), ("zb-h1", 2, 2)):
        torch.manual_seed(5)
        example = perceptron(samples=8 * width)
        pipeline = cp.Pipeline(example.layers, squares, cp.schedule(schedule, stages, 8), data_parallel=width)
        share = slice(8 * pipeline.group, 8 * pipeline.group + 8)
        inputs, targets = (cp.MicroBatches(each[share].split(1)) for each in (example.inputs, example.targets))
        work = [1, 1, 1, 9, 1, 4, 1, 1 + pipeline.group]
        example.expect_unpipelined(pipeline, cut=lambda samples: cp.MicroBatches(samples.split(1)), work=work)
        for given, words in ((work[1:], "work: 7 numbers"), (work[::-1], "give different work")):
            call = lambda given=given: pipeline.step(inputs, targets, work=given if pipeline.rank == 0 else work)
            users.refused(call, words)
        example.expect_unpipelined(pipeline, work=work)


def check_transformers(names, schedules, width):
    """Each class of models by each schedule, of two stages."""
    torch.set_num_threads(1)
    for name in names:
        torch.manual_seed(5)
        model = TRANSFORMERS[name]()
        inputs, targets = batch_of(name, 4 * width)
        expected = unpipelined(model, inputs, targets)
        layers = cp.layers_of(model)
        for schedule in schedules:
            pipeline = cp.Pipeline(layers, loss_of, cp.schedule(schedule, 2, 4), data_parallel=width)
            share = slice(pipeline.group * 4, pipeline.group * 4 + 4)
            step = pipeline.step({key: tensor[share] for key, tensor in inputs.items()}, targets[share])
            assert abs(step.loss - expected[0]) <= 1e-10 * abs(expected[0]), (name, schedule)
            found = {name: parameter.grad for name, parameter in pipeline.named_parameters()}
            compared = found.keys() & expected[1].keys()
            assert compared
            for key in compared:
                words = f"{name} {schedule} {key}"
                torch.testing.assert_close(found[key], expected[1][key], rtol=0, atol=1e-10, msg=words)


def go_on_from_checkpoints(folder, expected):
    """Resumes with another layout each time: threads, then four stages, then two stages of two groups."""
    example, pipeline, optimizer = trainer(LAYOUTS[0])
    pipeline.load_checkpoint(folder / "threads", optimizer=optimizer)
    losses = train(example, pipeline, optimizer, 1)
    pipeline.save_checkpoint(folder / "processes", optimizer=optimizer)
    example, pipeline, optimizer = trainer(LAYOUTS[1])
    pipeline.load_checkpoint(folder / "processes", optimizer=optimizer)
    losses += train(example, pipeline, optimizer, 1)
    saving = pipeline.save_checkpoint(folder / "processes", optimizer=optimizer, wait=False)
    train(example, pipeline, optimizer, 1)
    saving.wait()
    assert losses == expected[:2]
    is_strange = os.environ["RANK"] == "2"
    if is_strange:
        next(iter(optimizer.state.values()))["strange"] = object()
    error = users.refused(lambda: pipeline.save_checkpoint(folder / "processes", optimizer=optimizer), "is a object")
    assert "'strange'" in str(error) and str(error).startswith("rank 2: ") != is_strange


def train_over_pairs(folder, losses):
    """Trains in the order and with the groups of NCCL, but with Gloo on the CPU."""
    timeouts = []

    def gloo_backend(store, rank, size, device, blocks):
        assert blocks >= 1
        backend = torch.distributed.ProcessGroupGloo(store, rank, size, timedelta(minutes=1))
        timeouts.append(lambda: backend.options._timeout)
        return backend

    with (
        mock.patch.object(cp._pipeline, "uses_nccl", lambda device, world: world > 1),
        mock.patch.object(cp._run, "uses_nccl", lambda device, world: world > 1),
        mock.patch.object(cp._processes, "new_backend", gloo_backend),
        mock.patch.object(cp._processes, "bind_near", lambda device: None),
        mock.patch.object(cp._processes, "multiprocessors", lambda device: 132),
        mock.patch.object(cp._processes, "gpu_identity", lambda device: f"GPU {os.environ['RANK']}"),
    ):
        for schedule in SCHEDULES:
            expect_equal("perceptron", schedule)
        for model in MODELS[1:]:
            expect_equal(model, "chimera-zb")
        check_transformers(["gemma2"], ["zb-h1"], width=2)
        go_on_over_pairs(folder, losses)
        fail_on_rank_two()
    assert {timeout() for timeout in timeouts} == {timedelta(minutes=30)}


def go_on_over_pairs(folder, expected):
    """Resumes as go_on_from_checkpoints() does, recomputes activations, validates and saves."""
    example, pipeline, optimizer = trainer(LAYOUTS[1], recompute=True)
    pipeline.load_checkpoint(folder / "threads", optimizer=optimizer)
    losses = train(example, pipeline, optimizer, 1)
    pipeline.save_checkpoint(folder / "pairs", optimizer=optimizer)
    _, pipeline, optimizer = trainer(LAYOUTS[1], seed=99, recompute=True)
    pipeline.load_checkpoint(folder / "pairs", optimizer=optimizer)
    losses += train(example, pipeline, optimizer, 1)
    share = slice(pipeline.group * pipeline.batch_size, (pipeline.group + 1) * pipeline.batch_size)
    assert losses == expected[:2]
    assert pipeline.validate(example.inputs[share], example.targets[share]) == pytest.approx(expected[2], rel=1e-12)


def fail_on_rank_two():
    """The other ranks must learn of an exception without a launcher."""
    example = perceptron(samples=4)
    pipeline = cp.Pipeline(example.layers, squares, cp.schedule("1f1b", 4, 4))
    pipeline.step(example.inputs, example.targets)
    if pipeline.rank == 2:
        example.layers[2].register_forward_pre_hook(lambda *_: 1 / 0)
    kind = ZeroDivisionError if pipeline.rank == 2 else RuntimeError  # Unlike NCCL, Gloo has no type for a lost peer
    with pytest.raises(kind):
        pipeline.step(example.inputs, example.targets)


if __name__ == "__main__":
    for make in TRANSFORMERS.values():
        make()  # Imports its modules before the fork
    launch(4, main, Path(sys.argv[1]), json.loads(sys.argv[2]))
    launch(2, check_transformers, list(TRANSFORMERS), users.SCHEDULES, 1)
