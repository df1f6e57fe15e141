"""Schedules: generation, formats, checks, simulation and search."""

import json
import os
import pickle
import re
import subprocess
from pathlib import Path

import pytest

import chimerapipe as cp

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
STUCK = ["0F0 0B0 0F1 0B1", "1F1 1B1 1F0 1B0"]


def test_every_schedule_by_name_is_right_and_comes_back_from_json_and_csv():
    entries = cp.schedules()
    assert {"chimera", "1f1b", "zb-h1", "pipedream"} <= {entry.name for entry in entries}
    for entry in entries:
        schedule = cp.schedule(entry.name, stages=4, micro_batches=8)
        assert schedule.check() == [], entry.name
        assert cp.Schedule.from_json(schedule.to_json()) == schedule
        read = cp.Schedule.from_csv(schedule.to_csv())
        assert read.workers == schedule.workers and read.placement == schedule.placement
        assert pickle.loads(pickle.dumps(schedule)) == schedule
        assert schedule.updates is None or not entry.synchronous


def test_fields_with_unusual_values_come_back():
    halved, usual = cp.schedule("chimera", 4, 8, scale="halving"), cp.schedule("1f1b", 2, 4)
    assert halved.micro_batch_scale == 0.5 and cp.Schedule.from_json(halved.to_json()) == halved
    assert cp.Schedule.from_json(cp.Schedule(usual.workers, groups=2)._text).groups == 2


def test_the_figure_is_the_one_of_the_golden_file():
    figure = str(cp.schedule("chimera", stages=4, micro_batches=4))
    drawn = [line[:59].rstrip() for line in figure.splitlines()]
    text = (GOLDEN / "chimera.txt").read_text()
    assert all(line in text for line in drawn), figure


def test_parameters_go_by_their_names():
    schedule = cp.schedule("interleaved-1f1b", 2, 4, chunks=2)
    assert schedule.stages == 4 and len(schedule.workers) == 2
    with pytest.raises(cp.ScheduleError, match="^schedule: unknown parameter 'chunk'; did you mean 'chunks'"):
        cp.schedule("interleaved-1f1b", 2, 4, chunk=2)
    with pytest.raises(cp.ScheduleError, match="waves does not apply to chimera, which takes .*scale"):
        cp.schedule("chimera", 4, 4, waves=2)


IMPOSSIBLE = [("chimaera", 4, "did you mean.*chimera|chimera"), ("chimera", 3, "stages must be even, not 3")]
IMPOSSIBLE += [("chimera", 0, "stages must be even and at least 2, not 0"), ("1f1b", 0, "stages must be at least 1, ")]


@pytest.mark.parametrize(("name", "stages", "words"), IMPOSSIBLE)
def test_a_refusal_is_one_line_that_says_what_would_be_right(name, stages, words):
    with pytest.raises(cp.ScheduleError, match=words) as refusal:
        cp.schedule(name, stages, 4)
    assert "\n" not in str(refusal.value) and "--" not in str(refusal.value)


def test_blank_lines_at_the_end_of_csv_are_no_workers():
    schedule = cp.schedule("chimera", 4, 4)
    for end in ("\n", "\r\n", "\n\n"):
        assert cp.Schedule.from_csv("\ufeff" + schedule.to_csv() + end).workers == schedule.workers


def test_a_schedule_of_ones_own_is_a_list_of_ops_or_their_texts():
    texts = cp.Schedule(["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"])
    assert texts == cp.Schedule([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
    assert texts.workers[0][0] == cp.Op("F", stage=0, micro_batch=0)
    assert (texts.stages, texts.micro_batches, texts.placement) == (2, 2, ((0, 1),))
    assert texts.check() == []
    assert texts.workers == cp.schedule("1f1b", 2, 2).workers
    both = cp.Schedule(["0F0 1F1r1 1B1r1 0B0", "0F1r1 1F0 1B0 0B1r1"], placement=[[0, 1], [1, 0]])
    assert both.check() == []
    with pytest.raises(ValueError, match="'0G0' is not an op"):
        cp.Schedule(["0G0"])


def test_violations_are_objects_with_their_counter_example():
    (violation,) = cp.Schedule(STUCK).check()
    assert violation.kind == "cycle" and violation.level == "schedule"
    assert [str(op) for op in violation.counter_example] == ["0B0", "1B0", "1F1", "0F1"]
    assert "[0B0]" in violation.excerpt and "before" in str(violation)
    (missing,) = cp.Schedule(["0F0 0B0", "1F0"]).check()
    assert missing.kind == "missing_op"
    assert cp.schedule("gpipe", 2, 8).check(max_in_flight=2)[0].kind == "over_in_flight"


def test_what_is_no_schedule_still_has_a_text():
    wrong = cp.Schedule(STUCK)
    assert str(wrong).splitlines()[0] == "worker 0 | 0F0 0B0 0F1 0B1"
    assert wrong._repr_svg_() is None
    with pytest.raises(cp.ScheduleError, match="cannot run"):
        wrong.simulate()


def test_simulated_times_bubbles_and_rows():
    timeline = cp.schedule("chimera", 4, 4).simulate(forward=1, backward=2)
    assert timeline.makespan == 16 and timeline.bubble_ratio == 0.25 and timeline.lower_bound <= 16
    rows = timeline.rows()
    assert len(rows) == 32
    assert rows[0] == {"worker": 0, "op": "F", "stage": 0, "replica": 0, "micro_batch": 0, "start": 0, "end": 1}
    assert sum(bubble.end - bubble.start for bubble in timeline.explain()) == sum(timeline.idle_by_cause.values()) == 16
    assert all(bubble.waits_for for bubble in timeline.explain() if bubble.cause == "dependency")
    assert timeline.critical_path[0].kind == "F" and timeline.critical_path[-1].kind == "B"
    assert [worker["idle"] for worker in timeline.workers()] == [4, 4, 4, 4]
    assert timeline.memory(0)[0][0] == 0
    assert timeline.period == 16 and timeline.peak_stage_units == 4


def test_pictures():
    schedule = cp.schedule("chimera", 2, 2)
    timeline = schedule.simulate(latency=0.5)
    assert schedule._repr_svg_().startswith("<svg") and timeline._repr_svg_().startswith("<svg")
    assert "<html" in timeline.html() and not re.search(r"(src|href)=.http", timeline.html())
    assert json.loads(timeline.perfetto())
    assert str(timeline).startswith("worker 0 |")


def test_pictures_are_saved_by_the_end_of_their_name(tmp_path):
    timeline = cp.schedule("1f1b", 2, 2).simulate()
    timeline.save(str(tmp_path / "step.svg"))
    assert (tmp_path / "step.svg").read_text() == timeline.svg()
    with pytest.raises(ValueError, match="must end with one of"):
        timeline.save(str(tmp_path / "step.png"))


def test_costs_of_each_stage_as_a_run_measured_them(tmp_path):
    costs = cp.Costs(forward=[1, 2], input_gradient=[1, 2], weight_gradient=[1, 2], latency=0.25)
    (tmp_path / "times.json").write_text(costs.to_json())
    assert cp.Costs.read(tmp_path / "times.json") == costs
    schedule = cp.schedule("1f1b", 2, 4)
    assert schedule.simulate(costs).makespan > schedule.simulate(forward=1, backward=2).makespan
    whole = cp.Costs.from_json(json.dumps({"latency": 0, "stages": [{"forward": 1, "backward": 2}] * 2}))
    assert schedule.simulate(whole).makespan == schedule.simulate(forward=1, backward=2).makespan
    with pytest.raises(cp.ScheduleError, match="stages"):
        cp.schedule("1f1b", 4, 4).simulate(costs)


def test_a_search_finds_an_order_at_its_bound():
    found = cp.search(stages=2, micro_batches=3, iterations=300)
    assert found.schedule.check() == []
    assert found.lower_bound <= found.makespan == found.schedule.simulate().makespan
    again = cp.search(cp.schedule("gpipe", 2, 3), iterations=300)
    assert again.makespan <= cp.schedule("gpipe", 2, 3).simulate().makespan
    assert again.pareto[0]["makespan"] == again.makespan
    with pytest.raises(cp.ScheduleError, match="placement"):
        cp.search(stages=2, micro_batches=2, placement="circle", iterations=1)


def printed(words):
    command = [os.environ["CHIMERA_PROGRAM"], *words.split(), "--format", "json"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not Path(os.environ.get("CHIMERA_PROGRAM", "none")).is_file(), reason="needs the program")
def test_the_program_says_the_same():
    fields = {"cores": 2, "contention": [1, 2, 0.5], "without": [1], "extra_copies": 1, "pairs": "neighbors",
              "pair_time": 0.8, "max_in_flight": 50, "attention": 0.5, "all_reduce": 3}
    flags = ("--cores 2 --contention 1 2 0.5 --without 1 --extra-copies 1 --pairs neighbors --pair-time 0.8 "
             "--max-in-flight 50 --attention 0.5 --all-reduce 3")
    for given, words in (({}, ""), (fields, flags)):
        timeline = cp.schedule("chimera", 4, 4).simulate(forward=1, backward=2, **given)
        words = f"simulate chimera --stages 4 --micro-batches 4 {words}"
        assert json.loads(printed(words)) == json.loads(timeline.to_json())
    rows = cp.sweep(["1f1b", "chimera"], stages=[2, 4], micro_batches="D,2D", costs={"latency": [0, 0.5]})
    words = "sweep --schedules 1f1b,chimera --stages 2,4 --micro-batches D,2D --latency 0,0.5"
    assert rows == [json.loads(line) for line in printed(words).splitlines()] and len(rows) == 16
    found = cp.footprint("gpt2", schedule={"name": "chimera", "stages": 4, "micro_batches": 4}, dtype="bfloat16")
    words = "model gpt2 --schedule chimera --stages 4 --micro-batches 4 --dtype bfloat16"
    assert found == json.loads(printed(words))
    machine = next(cp._plan._MACHINES.glob("v100*"))
    plan = cp.plan("gpt2-mini", workers=4, mini_batch=16, top=3, machine=machine)
    words = f"plan --model gpt2-mini --workers 4 --mini-batch 16 --top 3 --tensor-parallel 1 --machine {machine}"
    theirs = json.loads(printed(words))["candidates"]
    assert [(c.name, c.step_seconds) for c in plan] == [(c["schedule"], c["step_seconds"]) for c in theirs]
    with pytest.raises(cp.ScheduleError, match="unknown field 'core'; did you mean 'cores'"):
        cp.schedule("chimera", 4, 4).simulate(core=2)


def test_plans_of_torch_are_read_from_their_actions():
    class Plan:
        pipeline_order = {1: [None, "1F0", "1B0", "1F1", "1B1"], 0: ["0F0", "0F1", None, "0B0", None, "0B1"]}

    assert cp.Schedule.from_torch(Plan()).workers == cp.schedule("1f1b", 2, 2).workers


def test_what_is_missing_is_named():
    with pytest.raises(cp.ScheduleError, match="give a schedule to improve, or stages and micro_batches"):
        cp.search(stages=4)
    with pytest.raises(cp.ScheduleError, match="costs: KeyError.*stages.*schedule_format.md"):
        cp.Costs.from_json("{}")


def test_slow_workers_and_unequal_micro_batches():
    schedule = cp.schedule("chimera-zb", 4, 8)
    slow = schedule.simulate(slow="0:2")
    assert slow.makespan < 0.8 * slow.kept_makespan
    assert schedule.simulate().kept_makespan is None
    costs = cp.Costs([1] * 4, [1] * 4, [1] * 4, more={"micro_batches": [3, 1, 1, 1, 0.5, 0.5, 0.5, 0.5]})
    permuted = schedule.simulate(costs, permute_micro_batches=True)
    assert sorted(permuted.micro_batch_of_place) == list(range(8))
    assert permuted.makespan < schedule.simulate(costs).makespan
