"""Repeats the tests of rank threads on four processes, and models of transformers on two, in one start."""

import ast
import re
from pathlib import Path

import pytest
import torch
from equality import MODELS, SCHEDULES
from forked_ranks import forked
from hugging_face_models import MODELS as TRANSFORMERS
from hugging_face_models import transformers
from test_checkpoints import LAYOUTS, chimera, train, trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trains and resumes on threads and on four processes. Returns folder, losses and output."""
    folder = tmp_path_factory.mktemp("four_ranks")
    example, pipeline, optimizer = trainer(LAYOUTS[2])
    train(example, pipeline, optimizer, 2)
    pipeline.save_checkpoint(folder / "threads", optimizer=optimizer)
    done = forked(0, Path(__file__).with_name("four_ranks.py"), folder, seconds=300)
    assert done.returncode == 0, done.stderr
    losses = train(example, pipeline, optimizer, 2)
    pipeline.save_checkpoint(folder / "threads", optimizer=optimizer)
    validation = pipeline.validate(example.inputs, example.targets)
    return folder, [*losses, validation], done.stdout


def lines(printed, words):
    return re.findall(rf"^rank \d: {words}$", printed, re.MULTILINE)


def test_every_schedule_has_the_gradients_of_the_whole_model(run):
    cases = len(MODELS) * len(SCHEDULES)
    assert len(lines(run[2], f"{cases} cases, [1-9]\\d* gradients")) == 4, run[2]


def test_models_of_transformers_have_the_gradients_of_the_whole_model(run):
    for name in TRANSFORMERS:
        assert len(lines(run[2], f"{name} in 1 groups")) == 2, (name, run[2])
    for name in ("t5", "gemma"):
        assert len(lines(run[2], f"{name} in 2 groups")) == 4, (name, run[2])


def test_checkpoints_of_threads_and_processes_are_one_format(run):
    folder, (*expected, _), printed = run
    losses = lines(printed, r"losses (.*)")
    assert len(losses) == 4 and all(ast.literal_eval(each) == expected for each in losses), (losses, expected)
    assert (folder / "processes" / "step-00000003" / "model-00002-of-00004.safetensors").exists()
    assert chimera("verify", folder / "processes").returncode == 0
    assert chimera("diff", folder / "processes", folder / "threads").stdout == "equal in every bit\n"


def test_every_schedule_trains_over_communicators_of_pairs(run):
    assert len(lines(run[2], f"{len(SCHEDULES)} schedules over pairs")) == 4, run[2]
    assert len(lines(run[2], "gemma2 in 2 groups")) == 4, run[2]


def test_runs_over_communicators_of_pairs_resume_recompute_validate_and_fail(run):
    _, expected, printed = run
    found = [ast.literal_eval(each) for each in lines(printed, "over pairs (.*)")]
    assert len(found) == 4 and all(each[:2] == expected[:2] for each in found), (found, expected)
    assert [each[2] for each in found] == pytest.approx([expected[2]] * 4, rel=1e-12)
    raised = sorted(lines(printed, "raised (.*)"))  # Unlike NCCL, Gloo has no type of its own for a lost peer
    assert raised == ["RuntimeError"] * 3 + ["ZeroDivisionError"], raised


def test_the_example_fine_tunes_a_llama_and_saves_it(run):
    folder, _, printed = run
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([0-9.]+)$", printed, re.MULTILINE)]
    assert len(losses) == 4 and losses[-1] < losses[0] / 2
    saved = transformers.LlamaForCausalLM.from_pretrained(folder / "llama")
    text = torch.arange(33)[None] * 7 % 31
    assert saved(text[:, :-1], labels=text[:, :-1]).loss < losses[0]


def test_what_one_rank_cannot_save_is_raised_on_all(run):
    refusals = lines(run[2], r"refused: (.*)")
    assert len(refusals) == 4 and all("'strange'" in each and "is a object" in each for each in refusals), run[2]
    assert sum(each.startswith("rank 2: ") for each in refusals) == 3
