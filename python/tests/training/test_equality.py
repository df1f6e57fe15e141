"""Every synchronous schedule has the gradients of the whole model; test_four_ranks.py says so of processes."""

import pytest
from equality import MODELS, SCHEDULES, expect_equal


@pytest.mark.parametrize("model", MODELS)
def test_threads(model):
    for schedule in SCHEDULES:
        assert expect_equal(model, schedule) > 0, schedule
