"""Pipelines inside of torch programs: on some of the ranks, started by several launchers, with distributed layers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from forked_ranks import forked
from models import oracle

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[2] / "tests" / "cluster"))
from hosts import Hosts, namespaces_work  # noqa: E402


def test_some_ranks_of_a_job_make_a_pipeline(tmp_path):
    forked(4, HERE / "mesh_ranks.py", seconds=300, FOLDER=str(tmp_path))


@pytest.mark.parametrize("ranks", [4, 8])
def test_distributed_layers_train_like_the_whole_model(ranks, tmp_path):
    oracle("transformers")
    forked(ranks, HERE / "distributed_ranks.py", seconds=300, FOLDER=str(tmp_path))


def test_variables_of_every_launcher_give_a_job():
    found = [line.partition(": ") for line in forked(0, HERE / "launchers.py").splitlines()]
    launchers = {name: [] for name, _, _ in found}
    assert list(launchers) == ["Open MPI", "MPICH", "SLURM", "SLURM on hosts", "torch on hosts"]
    for name, _, words in found:
        launchers[name].append(words.split(", "))
    for name, told in launchers.items():
        assert sorted(rank for rank, _, _ in told) == ["rank 0", "rank 1"]
        assert len({loss for _, loss, _ in told}) == 1
        assert {interface for _, _, interface in told} == {"lo" if "hosts" in name else ""}


# Debian's /etc/hosts maps the host's own name to 127.0.1.1.
ON_DEBIAN = """
printf '127.0.0.1 localhost\\n127.0.1.1 debian\\n' > "$1" && mount --bind "$1" /etc/hosts && hostname debian
shift && exec "$@"
"""


def test_hosts_whose_names_are_loopback_addresses_reach_each_other(tmp_path):
    if not namespaces_work() and not os.environ.get("CHIMERA_NEED_LAUNCHERS"):
        pytest.skip("needs namespaces")
    with Hosts(2) as hosts:
        ranks = []
        for rank in range(2):
            words = [*hosts.enter(rank), "unshare", "--mount", "--uts", "sh", "-c", ON_DEBIAN, "sh"]
            words += [tmp_path / f"hosts {rank}", sys.executable, HERE / "launchers.py", rank, hosts.address(0), 29500]
            ranks.append(subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True))
        try:
            told = [rank.communicate(timeout=60)[0].strip().split(", ") for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    assert [words[0] for words in told] == ["torch on hosts: rank 0", "torch on hosts: rank 1"]
    assert told[0][1] == told[1][1]
    assert {words[2] for words in told} == {"eth0"}
