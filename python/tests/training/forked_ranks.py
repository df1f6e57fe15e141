"""Runs scripts in processes that are forked from one that has imported their modules.

forked() starts this file once for all tests. Imports take longer than most scripts.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import multiprocessing.context
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

IMPORTED = [
    "torch._dynamo",  # By the first optimizer
    "torch.distributed._composable.replicate_with_fsdp",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.run",
    "torch.distributed.tensor.parallel",
    "chimerapipe.torchtitan",
    "test_stored_values",
    "accelerate.commands.launch",
    "chimerapipe.hugging_face",
    "peft",
    "transformers.models.bert.modeling_bert",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
]


def launch(ranks, main, *arguments):
    """Runs a function on ranks as torchrun does."""
    place = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}  # A free port: other tests may run beside
    agent = LaunchConfig(1, 1, ranks, run_id="tests", start_method="fork", max_restarts=0, **place)
    elastic_launch(agent, main)(*arguments)


def run(script, *arguments):
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


class ForkedRank(multiprocessing.context.ForkProcess):
    """Takes the place of the interpreter that torchrun starts for a rank."""

    def __init__(self, command, variables):
        super().__init__()
        self.words, self.variables = command[2:], variables  # After `python -u`
        self.start()

    def run(self):
        os.setsid()
        os.environ.clear()
        os.environ.update(self.variables)
        run(*self.words)

    def poll(self):
        return self.exitcode

    def wait(self, timeout=None):
        self.join(timeout)


def serve():
    """Runs scripts one after the other, and returns in a fork after its script."""
    for module in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    gc.freeze()  # Forks need not look at what has been imported
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            return run_asked(**asked)
        signal.signal(signal.SIGALRM, lambda *_, child=child: os.killpg(child, signal.SIGTERM))
        signal.alarm(asked["seconds"])
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        signal.alarm(0)
        print(status, flush=True)


def run_asked(ranks, words, folder, output, variables, seconds):
    os.setsid()
    for number, name in enumerate(("/dev/null", f"{output}/1", f"{output}/2")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    os.chdir(folder)
    os.environ.update(variables)
    SubprocessHandler._popen = ForkedRank
    launch(ranks, run, *words) if ranks else run(*words)


@functools.cache
def server():
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables)
    atexit.register(started.communicate)  # Closes its input, at which it ends
    return started


def forked(ranks, script, *arguments, seconds=100, folder=None, **variables):
    """Returns the output of a script on ranks, or with `ranks=0` of one that starts its own. All must succeed."""
    with tempfile.TemporaryDirectory() as output:
        asked = {"ranks": ranks, "words": [str(word) for word in (script, *arguments)], "seconds": seconds}
        asked |= {"folder": str(folder or Path.cwd()), "output": output, "variables": variables}
        print(json.dumps(asked), file=server().stdin, flush=True)
        status = int(server().stdout.readline())
        printed, errors = (Path(output, name).read_text() for name in ("1", "2"))
    assert status == 0, printed + errors
    return printed


if __name__ == "__main__":
    serve()
