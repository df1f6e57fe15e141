"""Runs a script on ranks as torchrun does, but forks them from a process that has imported torch.

Usage: forked_ranks.py RANKS SCRIPT [MODULES that the script imports...]
"""

import importlib
import runpy
import sys

from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def launch(ranks, main, *arguments):
    place = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}  # A free port: other tests may run beside
    agent = LaunchConfig(1, 1, ranks, run_id="tests", start_method="fork", max_restarts=0, **place)
    elastic_launch(agent, main)(*arguments)


def run(script):
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    for module in sys.argv[3:]:  # Once, before the fork
        importlib.import_module(module)
    launch(int(sys.argv[1]), run, sys.argv[2])
