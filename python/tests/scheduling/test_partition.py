"""Partitions of layers into stages by cost."""

import pytest

import chimerapipe as cp


def layer(weight, activations=0.0):
    return cp.LayerCost(weight, weight, weight, weights=10.0, state=30.0, activations=activations, output=1.0)


def test_heavy_layers_get_stages_of_their_own():
    found = cp.partition([layer(1), layer(1), layer(1), layer(3)], cp.schedule("1f1b", 2, 4))
    assert found.layers == (3, 1)
    assert found.slowest == found.least == 4 * 9
    assert found.costs.forward == [3, 3]
    assert cp.schedule("1f1b", 2, 4).simulate(found.costs).makespan == 4 * 9 + 9
    assert [row["last_layer"] for row in found.rows()] == [2, 3]
    assert "0-2" in str(found)


def test_both_stages_of_a_bidirectional_worker_count():
    layers = [layer(3), *[layer(1)] * 5]  # Worker 0 holds stages 0 and 3
    found = cp.partition(layers, cp.schedule("chimera", 4, 4))
    assert sum(found.layers) == 6
    times = [row["forward"] for row in found.rows()]
    assert abs((times[0] + times[3]) - (times[1] + times[2])) <= 2


def test_a_number_of_stages_stands_for_a_schedule():
    found = cp.partition([layer(3), *[layer(1)] * 5], 4)
    assert found.schedule == cp.schedule("chimera", 4, 4) and len(found.layers) == 4
    assert found.rows()[0]["workers"] == "0, 3"
    assert cp.partition([layer(1)] * 6, 3).schedule.name == "1f1b"
    assert found._repr_html_().startswith("<table>") and "<svg" in found._repr_html_()
    assert repr(found).startswith("<Partition [") and found.timeline().makespan > 0


@pytest.mark.parametrize("what", [[], [object()], None])
def test_layers_that_were_not_measured_are_refused(what):
    with pytest.raises(cp.ScheduleError, match="needs a profile of layers, or a model with an example"):
        cp.partition(what, 2)


def test_memory_is_kept_to_or_nothing_fits():
    layers = [layer(1, activations=100.0)] * 4
    with pytest.raises(cp.ScheduleError, match="fits in 50 bytes"):
        cp.partition(layers, cp.schedule("1f1b", 2, 4), memory=50)
    assert cp.partition(layers, cp.schedule("1f1b", 2, 4), memory=5000).layers == (2, 2)
    with pytest.raises(cp.ScheduleError, match="stages"):
        cp.partition(layers, cp.schedule("1f1b", 8, 8))
