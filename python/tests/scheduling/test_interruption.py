"""Ctrl-C during long calls: SIGINT arrives in the middle of each call."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import chimerapipe as cp

HARD = {"stages": 8, "micro_batches": 16, "placement": "v", "max_in_flight": 6, "seconds": 60}
LAYERS = [cp.LayerCost(1 + i % 7, 1, 1) for i in range(3000)]

CALLS: dict[str, Callable[[], object]] = {
    "plan": lambda: cp.plan("bert-48", workers=4096, mini_batch=65536, machine="p100-aries", top=1000),
    "search": lambda: cp.search(**HARD),
    "search with progress": lambda: cp.search(**HARD, progress=str),
    "simulate": lambda: again_and_again(lambda schedule: schedule.simulate()),
    "check": lambda: again_and_again(lambda schedule: schedule.check()),
    "partition": lambda: cp.partition(LAYERS, cp.schedule("chimera", 32, 512)),
}


def again_and_again(call: Callable[[cp.Schedule], object]) -> None:
    schedule = cp.schedule("1f1b", 32, 1000)
    while True:
        call(schedule)


@pytest.fixture(autouse=True)
def handler_of_ctrl_c() -> Iterator[None]:
    """Restores Python's own handler, which the parent process may have replaced."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_a_long_call_within_a_second(name: str) -> None:
    sent = 0.0

    def press() -> None:
        nonlocal sent
        sent = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    key = threading.Timer(0.2, press)
    key.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            CALLS[name]()
        assert time.monotonic() - sent < 1
    finally:
        key.cancel()


def test_what_progress_raises_ends_a_search() -> None:
    def stop(now: object) -> None:
        raise LookupError(str(now))

    with pytest.raises(LookupError, match="makespan"):
        cp.search(**HARD, progress=stop)


def test_other_threads_of_python_run_during_a_call() -> None:
    ran = threading.Event()

    def progress(_now: object) -> None:
        if not other.ident:
            other.start()
        if ran.is_set():
            raise LookupError("seen")

    other = threading.Thread(target=ran.set)
    with pytest.raises(LookupError, match="seen"):
        cp.search(**HARD, progress=progress)
