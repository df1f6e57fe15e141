"""`chimera train --tensorboard`, read by the tensorboard package: every step's numbers are those of metrics.jsonl, once
each after a crash and a resume, and a folder has one run.

Usage: tensorboard_test.py CHIMERA.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import oracles

accumulator = oracles.require("tensorboard.backend.event_processing.event_accumulator")

FLAGS = ["--model", "gpt2-tiny", "--stages", "2", "--micro-batches", "2", "--transport", "threads", "--sequence", "16",
         "--steps", "5", "--validate-every", "2"]


def train(folder, *flags, check=True, **variables):
    return subprocess.run([sys.argv[1], "train", "--data", folder / "text", *FLAGS, *flags], check=check,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env=os.environ | variables)


def read(folder):
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return events


def values(events, tag):
    """The value of each step, from 1."""
    return {event.step: event.value for event in events.Scalars(tag)}


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    (folder / "text").write_text("In the beginning was the word. " * 300, encoding="utf-8")
    train(folder, "--metrics", folder / "metrics", "--tensorboard", folder / "logs")
    metrics = [json.loads(line) for line in (folder / "metrics").read_text(encoding="utf-8").splitlines()]
    events = read(folder / "logs")
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

    # Another run may not write into the folder.
    again = train(folder, "--tensorboard", folder / "logs", check=False)
    assert again.returncode == 2 and "has events of another run; give another folder" in again.stderr, again
    train(folder, "--tensorboard", folder / "logs", "--overwrite", "--steps", "3")
    assert [event.step for event in read(folder / "logs").Scalars("loss")] == [1, 2, 3]

    # A run that dies in step 4 has saved step 2 at most: step 3 comes again.
    flags = ["--checkpoint", folder / "run", "--save-every", "2", "--resume", "auto", "--tensorboard",
             folder / "run" / "logs"]
    died = train(folder, *flags, check=False, CHIMERA_FAULT="kill@optimizer:0:4")
    assert died.returncode != 0, died
    logged = {event.step for event in read(folder / "run" / "logs").Scalars("loss")}
    assert 3 in logged and 5 not in logged, logged
    train(folder, *flags)
    assert [event.step for event in read(folder / "run" / "logs").Scalars("loss")] == [1, 2, 3, 4, 5]
print(f"{len(metrics)} steps of {len(tags)} numbers each")
