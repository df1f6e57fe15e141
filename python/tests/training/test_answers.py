"""Refusals that name what is wrong and the way out."""

import multiprocessing
import re
import warnings

import pytest
import torch
from models import perceptron, squares
from torch import nn
from users import Item, refused, samples

import chimerapipe as cp
from chimerapipe import _built_for, _torch_version
from chimerapipe._launcher import LauncherError, is_on_one_host, known_place, meeting, place, server


class Masked(nn.Linear):
    def forward(self, hidden, mask, scale=1.0):
        return super().forward(hidden) * mask * scale


def pipeline_of(layers, schedule="1f1b"):
    return cp.Pipeline(layers, squares, cp.schedule(schedule, 2, 4))


def test_a_layer_with_two_inputs_gets_a_hint():
    inputs, targets = samples()
    for layers in ([Masked(6, 6).double(), nn.Tanh()], [nn.Tanh(), Masked(6, 6).double()]):
        model = pipeline_of(layers)
        error = refused(lambda model=model: model.step(inputs, targets), "takes 2 values (hidden, mask)")
        assert "cp.KeyedLayer(layer, takes=['hidden', 'mask']" in str(error) and "(Masked)" in str(error)
    layers = [cp.KeyedLayer(Masked(6, 6).double(), ["hidden", "mask"], "hidden", drops=["mask"]), Item("hidden")]
    pipeline_of(layers).step({"hidden": inputs, "mask": torch.ones_like(inputs)}, targets)


def test_several_positional_inputs_get_a_hint():
    inputs, targets = samples()
    words = "step: got 3 values, but takes inputs and targets; give several inputs as one value, as in step((a, b), "
    refused(lambda: pipeline_of(perceptron(4).layers).step(inputs, inputs, targets), words, cp.ConfigError)


def test_optimizers_that_cannot_work_are_refused_before_the_step():
    model = pipeline_of(perceptron(4).layers)
    parameters = list(model.parameters())
    before = [parameter.clone() for parameter in parameters]
    for kind, words in ((torch.optim.LBFGS, "LBFGS calls a closure"), (torch.optim.SparseAdam, "SparseAdam needs")):
        refused(lambda kind=kind: model.step(*samples(), optimizer=kind(parameters)), words, cp.ConfigError)
    assert all(torch.equal(*pair) for pair in zip(parameters, before, strict=True))
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # Wraps step()
    model.step(*samples(), optimizer=optimizer)


def test_sparse_gradients_are_mentioned():
    layers = [nn.Embedding(9, 6, sparse=True).double(), *perceptron(4).layers[:3]]
    with pytest.warns(UserWarning, match=r"layer 0 \(Embedding\): its sparse gradients become dense"):
        model = pipeline_of(layers)
    model.step(torch.randint(9, (4,)), samples()[1], optimizer=torch.optim.Adam(model.parameters()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline_of([nn.Embedding(9, 6, sparse=True).double().requires_grad_(False), *perceptron(4).layers[:3]])


def test_layers_without_values_or_shapes_are_refused():
    with torch.device("meta"):
        refused(lambda: pipeline_of(perceptron(4).layers), "the default device is meta", cp.ConfigError)
    lazy = nn.Sequential(nn.LazyLinear(6), nn.Tanh())
    words = "layer 0 (Sequential): '0.weight' has no shape yet; call the layer once on a sample"
    refused(lambda: pipeline_of([lazy, nn.Linear(6, 6)]), words, cp.ConfigError)
    lazy(torch.randn(1, 6))
    pipeline_of([lazy, nn.Linear(6, 6)]).step(torch.randn(4, 6), torch.randn(4, 6))


STEP = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NODEID": "0"}
STEP |= {"SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "1", "SLURM_JOB_ID": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
OPEN_MPI |= {"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
ALONE = [
    {},
    {"WORLD_SIZE": "1"},
    {"WORLD_SIZE": "1", "RANK": "0", "SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"},
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "8"},  # A batch script
    {**STEP, "PMIX_RANK": "0", "PMI_RANK": "0", "PMI_SIZE": "1"},
    {**OPEN_MPI, "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_RANK": "0"},
    {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"},
]
TORCHS = {"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
INCOMPLETE = [
    ({"RANK": "1"}, "RANK=1 is set, but not WORLD_SIZE; start the job with torchrun"),
    ({"LOCAL_RANK": "1"}, "LOCAL_RANK=1 is set, but not RANK and WORLD_SIZE"),
    ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4 is set, but not RANK and MASTER_ADDR and MASTER_PORT"),
    ({**TORCHS, "RANK": "4"}, "RANK=4 is not below WORLD_SIZE=4"),
    ({**TORCHS, "RANK": "x"}, "RANK is 'x'; expected a whole number"),
    ({**TORCHS, "WORLD_SIZE": "0"}, "WORLD_SIZE is '0'"),
    ({name: value for name, value in TORCHS.items() if name != "MASTER_PORT"}, "are set, but not MASTER_PORT"),
    *[
        (signs, f"{next(iter(signs))} is '{next(iter(signs.values()))}': a launcher has started this process among")
        for signs in (
            {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"},
            {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"},
            {"PMI_RANK": "0", "PMI_SIZE": "2"},
            {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "2"},
            {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "2"},
            *({name: "3"} for name in ("PMIX_RANK", "PALS_RANKID", "ALPS_APP_PE", "HOROVOD_RANK")),
        )
    ],
    ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_LOCAL_RANK is not set, but OMPI"),
    ({"OMPI_COMM_WORLD_RANK": "1"}, "OMPI_COMM_WORLD_SIZE is not set, but OMPI_COMM_WORLD_RANK is; a launcher sets"),
]


def test_complete_variables_give_a_place():
    assert [place(variables) for variables in ALONE] == [(0, 1)] * len(ALONE)
    assert place(TORCHS) == place({**TORCHS, "LOCAL_RANK": "0", "PMIX_RANK": "1"}) == (2, 4)
    assert place({**OPEN_MPI, "CHIMERA_RANK": "x", "NAME": "\udcff"}) == (0, 4)


def test_ranks_meet_where_those_of_the_program_do():
    step = STEP | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[07-10]"}
    hosts, host = ({**step, "SLURM_STEP_TASKS_PER_NODE": each} for each in ("1(x4)", "4"))
    assert meeting(known_place(hosts), hosts) == "tcp://n07:20051?rank=0&world_size=4"
    assert re.search(r"/chimera-\d+/rendezvous-.*-python\?rank=0&", meeting(known_place(host), host))
    assert [server(each) for each in (hosts, host, OPEN_MPI)] == [("n07", 20051), None, None]
    assert [is_on_one_host(each) for each in (hosts, host, OPEN_MPI)] == [None, True, None]
    words = "Open MPI has put 2 of 4 processes on this host, and no rendezvous address is set"
    refused(lambda: meeting(known_place(OPEN_MPI), OPEN_MPI), words, LauncherError)


@pytest.mark.parametrize(("variables", "words"), INCOMPLETE)
def test_incomplete_variables_of_launchers_are_refused_by_name(variables, words, monkeypatch):
    error = refused(lambda: place(variables), words, LauncherError)
    assert "CHIMERA_" not in str(error), "the package does not read them"
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    refused(lambda: pipeline_of(perceptron(4).layers), words, cp.ConfigError)
    assert cp.plan("bert-48", workers=4, mini_batch=64, machine="p100-aries").best  # Needs no other process


def test_another_torch_than_that_of_the_build_is_refused(monkeypatch):
    _torch_version.require_same_torch()
    monkeypatch.setattr(_built_for, "TORCH", "1.13")
    error = refused(_torch_version.require_same_torch, "built for torch 1.13, but torch 2.", ImportError)
    assert " is installed; install torch 1.13, or" in str(error)


def alone(rank, told):
    try:
        pipeline_of(perceptron(4).layers)
    except cp.ConfigError as error:
        told.put(str(error))


def in_a_group(rank, told, path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    torch.manual_seed(1)
    model = pipeline_of(perceptron(4).layers)
    told.put((model.rank, model.step(*samples()).loss))
    model.gather()
    torch.distributed.destroy_process_group()


def test_spawned_processes_train_together_or_not_at_all(tmp_path):
    told = multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(alone, (told,), nprocs=2)
    for _ in range(2):
        assert "torch.multiprocessing.spawn started this process, but it has no process group" in told.get()
    torch.multiprocessing.spawn(in_a_group, (told, tmp_path / "meeting"), nprocs=2)
    results = sorted(told.get() for _ in range(2))
    torch.manual_seed(1)
    expected = pipeline_of(perceptron(4).layers).step(*samples()).loss
    assert [rank for rank, _ in results] == [0, 1]
    assert all(loss == pytest.approx(expected, rel=1e-12) for _, loss in results)
