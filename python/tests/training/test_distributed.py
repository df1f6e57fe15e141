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


def lines_of(ranks, script, **variables):
    """Returns what a script prints; it must succeed."""
    run = forked(ranks, HERE / script, seconds=300, **variables)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def passed_on_all(ranks, lines):
    """Returns the names of the cases that passed on all ranks."""
    found = [line.partition(": ") for line in lines if line.startswith("rank ")]
    cases = [name for rank, _, name in found if rank == "rank 0"]
    assert sorted(found) == sorted((f"rank {rank}", ": ", name) for rank in range(ranks) for name in cases)
    return cases


def test_some_ranks_of_a_job_make_a_pipeline(tmp_path):
    lines = lines_of(4, "mesh_ranks.py", FOLDER=str(tmp_path))
    assert passed_on_all(4, lines) == [
        "some_ranks_have_other_roles",
        "two_pipelines_side_by_side",
        "two_groups_in_a_mesh",
    ]


def test_variables_of_every_launcher_give_a_job():
    found = [line.partition(": ") for line in lines_of(0, "launchers.py")]
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


@pytest.mark.parametrize("ranks", [4, 8])
def test_distributed_layers_train_like_the_whole_model(ranks, tmp_path):
    oracle("transformers")
    lines = lines_of(ranks, "distributed_ranks.py", FOLDER=str(tmp_path))
    on_eight = ["sharded_and_tensors_of_parts", "groups_and_tensors_of_parts"]
    expected = on_eight if ranks == 8 else [
        "tensors_of_parts",
        "sequence_parallel",
        "shared_by_stages",
        "llama_with_its_own_plan",
        "sharded",
        "llama_sharded",
        "replicated",
        "mixed_precision",
        "recomputed",
        "accumulated",
        "scaled",
        "experts_of_a_group",
        "results_of_collectives",
        "tensors_started_again",
        "started_again",
        "saved_in_one_layout_and_loaded_in_others",
    ]
    assert passed_on_all(ranks, lines) == expected
