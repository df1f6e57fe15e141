"""chimerapipe.torchtitan, called as torchtitan's trainer calls it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from forked_ranks import forked
from torchtitan_ranks import SETTINGS, pipelined

import chimerapipe as cp
from chimerapipe.torchtitan import _names_of_stages


def test_a_model_trains_as_on_one_process():
    forked(2, Path(__file__).with_name("torchtitan_ranks.py"), seconds=400)


def test_stages_hold_the_modules_that_torchtitan_gives_them():
    """6 layers with an embedding and a head that count as one layer each."""
    stages = ["tok_embeddings layers.0", "layers.1 layers.2", "layers.3 layers.4", "layers.5 norm lm_head"]
    assert _names_of_stages(4, SETTINGS, 6) == [names.split() for names in stages]
    assert _names_of_stages(3, SETTINGS, 6)[1] == ["layers.2", "layers.3", "layers.4"]
    with pytest.raises(cp.ConfigError, match="2 layers are too few for 8 stages"):
        _names_of_stages(8, SETTINGS, 2)


def refused(words, schedule="chimera", **given):
    mesh = SimpleNamespace(size=lambda: 2, get_local_rank=lambda: 0)
    with pytest.raises(cp.ConfigError, match=words):
        pipelined(schedule, None, mesh, parallelize_fn=None, **given)


def test_settings_that_do_not_fit_are_refused_by_name():
    refused("pipeline_parallel_microbatch_size does not divide", batch_size=7)
    refused("1f1b has 8 micro-batches and 2 workers, but torchtitan 4", schedule=cp.schedule("1f1b", 2, 8))
    refused("ChunkedLossWrapper", loss_fn=SimpleNamespace(set_lm_head=None))
    selective = type("Config", (), {"__qualname__": "SelectiveAC.Config"})
    refused("activation_checkpoint: SelectiveAC allows one backward, but", "chimera-zb", ac_config=selective())
