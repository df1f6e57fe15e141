"""Plans for preset models and for measured layers."""

import pytest

import chimerapipe as cp

BERT = {"workers": 8, "mini_batch": 64, "machine": "p100-aries"}


def layers(count, size, fixed=0.5, slope=0.5, heavy=1.0):
    """Each op takes `fixed` plus `slope` per sample, times `heavy` in the last layer."""
    times = [(fixed + slope * size) * (heavy if index == count - 1 else 1.0) for index in range(count)]
    kept = 100.0 * size
    return tuple(cp.LayerCost(t, t, t, weights=10.0, state=30.0, activations=kept, output=size) for t in times)


def profile(count=8, **times):
    return cp.Profile({size: layers(count, size, **times) for size in (1, 4)})


def test_a_presets_candidates_are_ranked_objects_with_rows():
    found = cp.plan("bert-48", **BERT, schedules=["chimera", "1f1b"], top=4)
    assert len(found) == len(found.rows()) == 4 and found.best is found[0]
    fastest = min(c.step_seconds for c in found)
    tied = [c for c in found if c.step_seconds <= 1.03 * fastest]
    others = [c.step_seconds for c in found[len(tied):]]
    assert list(found[: len(tied)]) == sorted(tied, key=lambda c: c.peak_memory_bytes) and others == sorted(others)
    assert found.machine == "p100-aries" and found.memory == 16e9 and found.considered > 4
    for each in found:
        assert each.name in ("chimera", "1f1b") and each.peak_memory_bytes <= found.memory
        assert each.data_parallel * each.stages == 8
        assert each.data_parallel * each.micro_batches * each.micro_batch_size == 64
        assert sum(each.partition) == 48 and len(each.partition) == each.schedule.stages
        assert each.schedule.check() == []
        assert each.simulate().makespan == pytest.approx(each.step_seconds)
        assert each.least_seconds <= each.step_seconds and "--stages" in each.train
    assert str(found).count("\n") == 4


def test_own_layers_take_what_was_measured_of_each():
    found = cp.plan(profile(heavy=3.0), workers=2, mini_batch=8, schedules=["1f1b"], top=20)
    deep = next(c for c in found if (c.stages, c.micro_batches) == (2, 8))
    assert deep.partition == (5, 3)  # Times 5 and 2 + 3
    for each in found:
        # Measured sizes 1 and 4 are on one line.
        time = 0.5 + 0.5 * each.micro_batch_size
        assert sum(each.costs.forward) == pytest.approx(10 * time)
        assert each.simulate().makespan == pytest.approx(each.step_seconds)
    alone = next(c for c in found if (c.stages, c.micro_batch_size) == (1, 4))
    assert alone.step_seconds == pytest.approx(3 * 10 * 2.5)


def test_a_part_of_the_configuration_can_be_given():
    found = cp.plan(profile(), workers=4, mini_batch=16, stages=[2, 4], data_parallel=[2], micro_batch_sizes=[1, 2])
    assert {(c.stages, c.data_parallel) for c in found} == {(2, 2)}
    assert {c.micro_batch_size for c in found} <= {1, 2}
    with pytest.raises(cp.ScheduleError, match="stages: '0.5' is not a list of whole numbers"):
        cp.plan(profile(), workers=4, mini_batch=16, stages=[0.5])


def test_memory_decides_what_own_layers_recompute():
    free = cp.plan(profile(), workers=2, mini_batch=8, schedules=["gpipe"])
    tight = cp.plan(profile(), workers=2, mini_batch=8, schedules=["gpipe"], memory=1000)
    assert free.best.recompute == ()
    assert all(c.peak_memory_bytes <= 1000 for c in tight)
    assert any(c.recompute == tuple(range(c.stages)) for c in tight)
    assert tight.best.step_seconds > free.best.step_seconds
    with pytest.raises(cp.ScheduleError, match="it needs at least"):
        cp.plan(profile(), workers=2, mini_batch=8, memory=10)


def test_own_layers_recompute_no_more_stages_than_they_must():
    found = cp.plan(profile(), workers=4, mini_batch=32, schedules=["1f1b"], memory=1000, top=50)
    assert any(c.stages == 4 and 0 < len(c.recompute) < 4 for c in found)
    assert all(c.peak_memory_bytes <= 1000 for c in found)


def test_the_beginning_of_a_name_is_enough():
    found = cp.plan("bert-4", workers=8, mini_batch=64, machine="p100", schedules=["gpi", "hanayo-z"])
    assert found.machine == "p100-aries" and {c.name for c in found} <= {"gpipe", "hanayo-zb"}
    assert cp.schedule("gpi", 2, 2).name == "gpipe"
    with pytest.raises(cp.ScheduleError, match="several begin with it: hanayo, hanayo-zb"):
        cp.plan("bert-48", **BERT, schedules=["hana"])


def test_a_machines_links_slow_own_layers_down():
    quick = cp.plan(profile(slope=1e-6, fixed=1e-6), workers=2, mini_batch=8, schedules=["1f1b"])
    slow = cp.plan(profile(slope=1e-6, fixed=1e-6), workers=2, mini_batch=8, schedules=["1f1b"], machine="p100-aries")
    assert slow.best.step_seconds > quick.best.step_seconds
    assert slow.memory == 16e9


def test_candidates_say_how_a_pipeline_trains_so():
    best = cp.plan(profile(), workers=4, mini_batch=16).best
    expected = {"micro_batch_size": best.micro_batch_size, "data_parallel": best.data_parallel}
    assert best.pipeline_options() == {**expected, "partition": best.partition, "recompute": ()}
    assert best.train == ()


def test_a_profile_is_its_layers_and_gives_costs():
    measured = profile(count=5)
    assert measured.micro_batch_size == 4 and len(measured) == 5 and measured[0].forward == 2.5
    assert len(measured.rows()) == 10 and str(measured).count("\n") == 10
    schedule = cp.schedule("1f1b", 2, 4)
    assert measured.costs(schedule).forward == [7.5, 5.0]
    assert measured.costs(schedule, [1, 4]).forward == [2.5, 10.0]
    assert schedule.simulate(measured.costs(schedule)).makespan > 0
    assert sum(cp.partition(measured, schedule).layers) == 5
    with pytest.raises(cp.ScheduleError, match="add up to 5 layers"):
        measured.costs(schedule, [1, 1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "bert-48", "workers": 2, "mini_batch": 2}, "machine is missing.*p100-aries"),
        ({"model": "bert-48", **BERT, "machine": "p1000"}, "machine 'p1000'.*one of a100-80gb"),
        ({"model": "bert", **BERT}, "bert"),
        ({"model": "bert-48", **BERT, "sequenze": 3}, "no argument 'sequenze'.*sequence"),
        ({"model": "bert-48", **BERT, "schedules": ["chimaera"]}, "did you mean 'chimera'"),
        ({"model": profile(), "workers": 2, "mini_batch": 2, "sequence": 9}, "sequence: only for preset models"),
        ({"model": profile(), "workers": 16, "mini_batch": 3}, "16 workers"),
        ({"model": profile(), "workers": 0, "mini_batch": 3}, "workers"),
        ({"model": [object()], "workers": 2, "mini_batch": 3}, "not a list; cp.profile"),
    ],
)
def test_refusals_are_one_line(arguments, words):
    with pytest.raises(cp.ScheduleError, match=words) as refusal:
        cp.plan(**arguments)
    assert "\n" not in str(refusal.value)
