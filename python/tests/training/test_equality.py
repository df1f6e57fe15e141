"""Gradients of every synchronous schedule equal the unpipelined model on rank threads; test_four_ranks.py tests
processes."""

import pytest
from equality import MODELS, SCHEDULES, expect_equal


@pytest.mark.parametrize("model", MODELS)
def test_threads(model):
    for schedule in SCHEDULES:
        assert expect_equal(model, schedule) > 0, schedule
