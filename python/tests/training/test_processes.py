"""Rank processes: the README's example and the output after a failed rank under torchrun; others in forked ranks."""

import contextlib
import io
import os
import re
import runpy
import subprocess
import sys
import time
from pathlib import Path

from forked_ranks import forked

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[2] / "examples"
BUSY = 8  # Extra seconds on a busy machine
EXAMPLE = EXAMPLES / "first_pipeline.py"


def run_python(*words, seconds=100, **variables):
    command = [sys.executable, *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=seconds)


def torchrun(ranks, script):
    return run_python("-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", script)


def losses(printed):
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", printed)]


def test_the_first_pipeline_learns_alike_under_torchrun_and_on_threads():
    processes = torchrun(4, EXAMPLE)
    assert processes.returncode == 0, processes.stderr
    assert losses(processes.stdout)[-1] < losses(processes.stdout)[0] / 2
    threads = io.StringIO()
    with contextlib.redirect_stdout(threads):
        runpy.run_path(str(EXAMPLE))
    assert losses(threads.getvalue()) == losses(processes.stdout)
    program = [line for line in EXAMPLE.read_text().splitlines() if line]
    assert len(program) <= 15


def test_torch_runs_an_exported_schedule_to_the_same_losses():
    pairs = re.findall(r"here ([0-9.]+), in torch ([0-9.]+)", forked(2, EXAMPLES / "side_by_side.py"))
    assert len(pairs) == 5
    assert all(abs(float(ours) - float(theirs)) < 2e-12 for ours, theirs in pairs), pairs


def test_two_ranks_do_what_users_do():
    forked(2, HERE / "users_ranks.py", seconds=400)


def test_no_process_aborts_however_it_ends():
    run = run_python(HERE / "exits.py", 1, seconds=400)  # 200 runs of each kind each night
    assert run.returncode == 0, run.stdout + run.stderr


def test_two_groups_train_on_their_shares_and_an_exception_ends_the_job_with_one_traceback():
    failed = torchrun(2, HERE / "two_ranks.py")
    seconds = time.time() - float(re.search(r"raised at ([0-9.]+)", failed.stdout)[1])
    assert seconds < 2 + BUSY, f"{seconds} s from the raise to the end of the job"
    assert failed.returncode != 0
    ranks = re.split(r"\n[EW]\d{4} ", failed.stderr)[0]  # Torchrun's own report follows
    assert ranks.count("ValueError: deliberate") == 1, failed.stderr
    assert ranks.count("Traceback") == 1 and 'two_ranks.py", line' in ranks, failed.stderr
    assert failed.stderr.count("another rank failed") <= 1
    cause = failed.stderr.partition("Root Cause")[2]
    assert re.search(r"rank +: 1 ", cause) and "error_file: /" in cause and "ValueError: deliberate" in cause


def test_torchrun_learns_of_an_exception_between_two_steps(tmp_path):
    place = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    place |= {"MASTER_PORT": "29500", "TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}
    program = "from chimerapipe._processes import Processes; Processes(); raise KeyError('of my data')"
    failed = run_python("-c", program, **place)
    assert failed.returncode == 1 and failed.stderr.count("Traceback") == 1, failed.stderr
    assert "KeyError: 'of my data'" in (tmp_path / "error.json").read_text()
