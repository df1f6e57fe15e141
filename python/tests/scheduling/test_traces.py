"""Traces, read and explained."""

import chimerapipe as cp
import pytest


@pytest.fixture
def path(tmp_path):
    """A trace with known times: a unit of the simulated timeline is a millisecond of the trace."""
    file = tmp_path / "trace.json"
    file.write_text(cp.schedule("interleaved-1f1b", 2, 4).simulate(forward=10, backward=20, latency=1).perfetto())
    return file


def test_a_trace_has_schedule_costs_and_steps(path):
    trace = cp.read_traces(path)
    made = cp.schedule("interleaved-1f1b", 2, 4)
    assert trace.schedule.workers == made.workers
    assert trace.schedule.name == "interleaved-1f1b"
    assert trace.costs.forward == pytest.approx([0.005] * 4, rel=1e-3)
    assert trace.steps == [trace.step_seconds]
    timeline = made.simulate(forward=10, backward=20, latency=1)
    assert trace.step_seconds == pytest.approx(timeline.makespan / 1000)
    assert trace.simulated_seconds == pytest.approx(trace.step_seconds, rel=0.01)
    assert len(trace.rows()) == sum(map(len, made.workers))
    assert {bubble.cause for bubble in trace.explain()} <= {"warm_up", "dependency", "latency", "sync", "imbalance"}
    assert [part["rank"] for part in trace.parts()] == [0, 1]
    assert "what ran: interleaved-1f1b" in str(trace)
    assert repr(trace) == f"<Trace of interleaved-1f1b: 1 steps, median {trace.step_seconds:.4g} s>"


def test_a_trace_draws_itself(path, tmp_path):
    trace = cp.read_traces([str(path)])
    assert "<svg" in trace._repr_svg_()
    trace.timeline().save(str(tmp_path / "t.html"))
    assert "as it ran" in (tmp_path / "t.html").read_text()
    assert trace.timeline().makespan == pytest.approx(trace.step_seconds)


def test_better_schedules_are_faster(path):
    better = cp.read_traces(path).better(search_seconds=0.1)
    assert better
    for entry in better:
        assert entry.schedule.check() == []
        assert entry.seconds < cp.read_traces(path).simulated_seconds
    assert any(entry.runs_in_torch for entry in better)


def test_refusals_name_the_file(path, tmp_path):
    with pytest.raises(cp.ScheduleError, match="none.json: cannot be read"):
        cp.read_traces(tmp_path / "none.json")
    with pytest.raises(cp.ScheduleError, match="steps 1 to 1"):
        cp.read_traces(path, steps=(2, 3))
