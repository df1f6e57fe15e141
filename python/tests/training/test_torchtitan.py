"""chimerapipe.torchtitan, called as torchtitan's trainer calls it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from forked_ranks import forked

import chimerapipe as cp
from chimerapipe.torchtitan import _names_of_stages, pipelining


def test_a_model_trains_as_on_one_process():
    run = forked(2, Path(__file__).with_name("torchtitan_ranks.py"), seconds=400)
    assert run.returncode == 0, run.stderr
    assert sorted(run.stdout.splitlines()) == ["rank 0 equal", "rank 1 equal"]


def settings(**given):
    return SimpleNamespace(
        module_fqns_per_model_part=None,
        pipeline_parallel_first_stage_less_layers=1,
        pipeline_parallel_last_stage_less_layers=1,
        pipeline_parallel_microbatch_size=2,
        **given,
    )


def test_stages_hold_the_modules_that_torchtitan_gives_them():
    """6 layers with an embedding and a head that count as one layer each."""
    assert _names_of_stages(4, settings(), 6) == [
        ["tok_embeddings", "layers.0"],
        ["layers.1", "layers.2"],
        ["layers.3", "layers.4"],
        ["layers.5", "norm", "lm_head"],
    ]
    assert _names_of_stages(3, settings(), 6)[1] == ["layers.2", "layers.3", "layers.4"]
    with pytest.raises(cp.ConfigError, match="2 layers are too few for 8 stages"):
        _names_of_stages(8, settings(), 2)


def refused(words, schedule="chimera", samples=8, loss_fn=None, **more):
    mesh = SimpleNamespace(size=lambda: 2, get_local_rank=lambda: 0)
    with pytest.raises(cp.ConfigError, match=words):
        pipelining(schedule)(
            None,
            parallel_dims=SimpleNamespace(get_mesh=lambda name: mesh),
            training=SimpleNamespace(local_batch_size=samples),
            parallelism=settings(),
            device=None,
            model_config=SimpleNamespace(layers=range(6)),
            parallelize_fn=None,
            loss_fn=loss_fn,
            **more,
        )


def test_settings_that_do_not_fit_are_refused_by_name():
    refused("pipeline_parallel_microbatch_size does not divide", samples=7)
    refused("1f1b has 8 micro-batches and 2 workers, but torchtitan 4", schedule=cp.schedule("1f1b", 2, 8))
    refused("ChunkedLossWrapper", loss_fn=SimpleNamespace(set_lm_head=None))
    selective = type("Config", (), {"__qualname__": "SelectiveAC.Config"})
    refused("activation_checkpoint: SelectiveAC allows one backward, but", "chimera-zb", ac_config=selective())
