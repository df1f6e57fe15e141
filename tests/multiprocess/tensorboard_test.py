"""`chimera train --tensorboard`, read by the tensorboard package: every step's numbers are those of metrics.jsonl.

Usage: tensorboard_test.py CHIMERA.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import oracles

accumulator = oracles.require("tensorboard.backend.event_processing.event_accumulator")

FLAGS = ["--model", "gpt2-tiny", "--stages", "2", "--micro-batches", "2", "--transport", "threads", "--sequence", "16",
         "--steps", "5", "--validate-every", "2"]


def values(events, tag):
    """The value of each step, from 1."""
    return {event.step: event.value for event in events.Scalars(tag)}


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "text").write_text("In the beginning was the word. " * 300, encoding="utf-8")
    subprocess.run([sys.argv[1], "train", "--data", folder / "text", *FLAGS, "--metrics", folder / "metrics",
                    "--tensorboard", folder / "logs"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    metrics = [json.loads(line) for line in (folder / "metrics").read_text(encoding="utf-8").splitlines()]
    events = accumulator.EventAccumulator(str(folder / "logs"))
    events.Reload()
    tags = set(events.Tags()["scalars"])
    expected_tags = {"loss", "grad_norm", "learning_rate", "step_seconds", "tokens_per_second", "peak_memory_bytes",
                     "validation_loss"}
    assert tags == expected_tags, tags
    for tag in tags:
        expected = {step["step"]: step[tag] for step in metrics if tag in step}
        found = values(events, tag)
        assert found.keys() == expected.keys(), (tag, found, expected)
        for step, value in expected.items():
            assert abs(found[step] - value) <= 1e-6 * abs(value), (tag, step, found[step], value)  # float32
    assert values(events, "validation_loss").keys() == {2, 4, 5}
print(f"{len(metrics)} steps of {len(tags)} numbers each")
