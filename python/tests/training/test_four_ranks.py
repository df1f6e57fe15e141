"""Repeats the tests of rank threads on four processes, and models of transformers on two, in one start."""

import json
import re
from pathlib import Path

import pytest
import torch
from forked_ranks import forked
from hugging_face_models import transformers
from test_checkpoints import LAYOUTS, chimera, train, trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Trains and resumes on threads and on four processes, which compare their losses. Returns folder and output."""
    folder = tmp_path_factory.mktemp("four_ranks")
    example, pipeline, optimizer = trainer(LAYOUTS[2])
    train(example, pipeline, optimizer, 2)
    pipeline.save_checkpoint(folder / "threads", optimizer=optimizer)
    losses = train(example, pipeline, optimizer, 2)
    losses.append(pipeline.validate(example.inputs, example.targets))
    printed = forked(0, Path(__file__).with_name("four_ranks.py"), folder, json.dumps(losses), seconds=300)
    pipeline.save_checkpoint(folder / "threads", optimizer=optimizer)
    return folder, printed


def test_checkpoints_of_threads_and_processes_are_one_format(run):
    folder, _ = run
    assert (folder / "processes" / "step-00000003" / "model-00002-of-00004.safetensors").exists()
    assert chimera("verify", folder / "processes").returncode == 0
    assert chimera("diff", folder / "processes", folder / "threads").stdout == "equal in every bit\n"


def test_the_example_fine_tunes_a_llama_and_saves_it(run):
    folder, printed = run
    losses = [float(loss) for loss in re.findall(r"^step \d+: loss ([0-9.]+)$", printed, re.MULTILINE)]
    assert len(losses) == 4 and losses[-1] < losses[0] / 2
    saved = transformers.LlamaForCausalLM.from_pretrained(folder / "llama")
    text = torch.arange(33)[None] * 7 % 31
    assert saved(text[:, :-1], labels=text[:, :-1]).loss < losses[0]
