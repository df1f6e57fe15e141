"""Ctrl-C during training: all ranks stop, and KeyboardInterrupt is raised."""

import os
import signal
import threading
import time

import pytest
import torch
from models import perceptron
from test_pipeline import pipeline_of
from torch import nn


class SlowOnOthers(nn.Linear):
    """Slow on rank threads other than the main thread, which therefore waits in C++."""

    main = threading.main_thread().ident
    slow = threading.Event()

    def forward(self, x):
        if self.slow.is_set() and threading.get_ident() != self.main:
            if threading.get_ident() not in pressed:
                pressed.add(threading.get_ident())
                os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
        return super().forward(x)


pressed: set[int] = set()


def test_ctrl_c_ends_a_step_of_rank_threads():
    example = perceptron(samples=200)
    example.layers[2] = SlowOnOthers(6, 6).double()
    pipeline = pipeline_of(example, "1f1b", micro_batches=200)
    pipeline.step(example.inputs, example.targets)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        SlowOnOthers.slow.set()
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            pipeline.step(example.inputs, example.targets)
        assert time.monotonic() - begun < 2  # The whole step would take 10 s
        with pytest.raises(Exception, match="failed before"):
            pipeline.step(example.inputs, example.targets)
    finally:
        signal.signal(signal.SIGINT, before)
    assert torch.isfinite(example.inputs).all()
