"""Devices of layers and inputs. Tests that need a GPU are skipped without one."""

import copy
import os
from types import SimpleNamespace

import pytest
import torch
from equality import SCHEDULES
from models import perceptron
from test_pipeline import pipeline_of
from torch import nn
from users import refused

import chimerapipe as cp

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no GPU")


def refusal(layer=None, inputs=None, **options):
    example = perceptron(samples=4)
    if layer is not None:
        example.layers[1] = layer
    given = example.inputs if inputs is None else inputs
    return str(refused(lambda: pipeline_of(example, **options).step(given, example.targets), "", cp.ConfigError))


def test_what_lies_elsewhere_is_refused_in_one_line():
    expected = "layer 1 (Linear) has 'weight' on the device meta, without values; make the layer outside of torch.dev"
    assert refusal(nn.Linear(6, 6, device="meta")).startswith(expected)
    elsewhere = torch.empty(4, 6, device="meta")
    assert refusal(inputs=elsewhere) == "inputs are on meta, but this pipeline computes on cpu; give inputs.to(cpu)"
    assert refusal(device="mps") == "device mps: expected cpu or cuda"


def test_cuda_without_a_gpu_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert refusal(device="cuda").startswith("device cuda: no usable GPU here (")
    assert refusal(device="cuda:3").startswith("device cuda:3: no usable GPU here (")


def variables_where_cuda_starts(monkeypatch, world):
    names = ["CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_SOCKET_IFNAME", "NCCL_RAS_ENABLE"]
    names.append("PYTORCH_CUDA_ALLOC_CONF")
    for name in [*names, "LOCAL_WORLD_SIZE"]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NCCL_RAS_ENABLE", "1")
    seen = {}

    def starts():
        seen.update({name: os.environ.get(name) for name in names})
        return False

    monkeypatch.setattr(torch.cuda, "is_available", starts)
    with pytest.raises(cp.ConfigError):
        cp._devices.own_device("cuda", world)
    for name in names:
        os.environ.pop(name, None)
    return list(seen.values())


def test_processes_set_what_cuda_and_nccl_read_before_cuda_starts(monkeypatch):
    expected = ["32", "=lo", "1", "expandable_segments:True"]
    assert variables_where_cuda_starts(monkeypatch, 2) == expected, "the user's stays"
    assert variables_where_cuda_starts(monkeypatch, 1) == [None, None, "1", None], "threads need none"


def test_variables_that_come_too_late_are_named(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.warns(UserWarning, match="CUDA started before the pipeline; make .* run with .*CONNECTIONS=32"):
        variables_where_cuda_starts(monkeypatch, 2)


def test_communicators_get_few_blocks_and_a_stream_of_high_priority(monkeypatch):
    connect = {"eager_connect_single_device": lambda device: None}
    group = lambda store, rank, size, options: SimpleNamespace(options=options, **connect)
    group.Options = lambda **given: SimpleNamespace(given=given, config=SimpleNamespace())
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", group, raising=False)
    options = cp._processes.new_backend(None, 0, 2, torch.device("cuda"), 2).options
    assert options.given == {"is_high_priority_stream": True}
    assert options.config.max_ctas == 2


def test_canonical_pipelines_set_the_variable_of_cublas_before_cuda_starts(monkeypatch):
    seen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: seen.append(os.environ.get("CUBLAS_WORKSPACE_CONFIG")))
    for reduction in ("natural", "canonical"):
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # restored after the test
        monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
        refusal(device="cuda", reduction=reduction)
    assert seen == [None, ":4096:8"]


def test_a_process_that_sees_one_gpu_takes_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(cp._devices, "_set_gpu_variables", lambda: None)
    monkeypatch.setenv("LOCAL_RANK", "3")
    for gpus, index in ((1, 0), (4, 3)):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert cp._devices.own_device("cuda", 8) == torch.device("cuda", index)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(cp.ConfigError, match="GPU 3 is requested, but this host has 2"):
        cp._devices.own_device("cuda", 8)


def test_too_little_free_memory_is_refused_in_one_line(monkeypatch):
    free = 300 << 20
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 80 << 30))
    cp._devices.require_margin(torch.device("cuda", 0))
    free = 200 << 20
    with pytest.raises(cp.ConfigError, match="^device cuda:0: a step leaves 200 MiB of memory free, 256 are needed"):
        cp._devices.require_margin(torch.device("cuda", 0))


def test_a_rank_is_bound_to_the_cores_near_its_gpu(monkeypatch, tmp_path):
    near, bound = tmp_path / "0000:1b:00.0" / "local_cpulist", []
    near.parent.mkdir()
    near.write_text("0-1,3\n")
    gpu = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x1B, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: gpu)
    monkeypatch.setattr(cp._devices, "_PCI", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: bound.append(cores))
    for cores in ({0, 1, 2, 3}, {2, 3}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, cores=cores: cores)
        cp._devices.bind_near(torch.device("cuda", 0))
    near.write_text("?")
    cp._devices.bind_near(torch.device("cuda", 0))
    assert bound == [{0, 1, 3}], "a launcher has bound the second one"


def test_ranks_with_one_gpu_are_named(monkeypatch):
    monkeypatch.delenv("NCCL_HOSTID", raising=False)
    cp._devices.require_own_gpus(["a", "b", "c"])
    with pytest.raises(cp.ConfigError, match=r"ranks 1 and 2 use the same GPU \(b\); start one process per GPU"):
        cp._devices.require_own_gpus(["a", "b", "b"])
    monkeypatch.setenv("NCCL_HOSTID", "rank 1")
    cp._devices.require_own_gpus(["a", "b", "b"])


def test_numbers_of_targets_are_summed_without_the_gpu(monkeypatch):
    from chimerapipe import _run

    class Processes:
        world, joined = 2, False

        def rows(self, row, dtype):
            return torch.tensor([row, [5.0]], dtype=dtype)

        def join_gpus(self, *_):
            self.joined = True

    sums, processes = [], Processes()
    monkeypatch.setattr(_run, "uses_nccl", lambda device, world: True)
    run = SimpleNamespace(_engine=SimpleNamespace(sum_targets=sums.append), _processes=processes)
    run._layers, run._shape = SimpleNamespace(device="cuda"), SimpleNamespace(world=2, plan=None)
    _run.Run._connect(run)
    assert processes.joined and sums[0](3) == 8


def test_steps_take_the_given_number_of_targets():
    example = perceptron(samples=4)
    pipeline = pipeline_of(example)
    loss = pipeline.step(example.inputs, example.targets).loss
    pipeline._run._engine.sum_targets(lambda count: 10.0 * example.targets.numel())
    assert pipeline.step(example.inputs, example.targets).loss == pytest.approx(loss / 10, rel=1e-12)


@needs_gpu
def test_more_processes_than_gpus_are_refused():
    assert "this host has" in refusal(device=f"cuda:{torch.cuda.device_count()}")


@needs_gpu
@pytest.mark.parametrize("name", SCHEDULES)
def test_rank_threads_on_one_gpu_train_as_the_cpu_does(name):
    example = perceptron(samples=8)
    on_gpu = copy.deepcopy(example)
    results = []
    for made, device in ((example, "cpu"), (on_gpu, "cuda")):
        pipeline = pipeline_of(made, name, 2, 4, micro_batch_size=2, recompute=[0], device=device)
        optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
        inputs, targets = made.inputs.to(pipeline.device), made.targets.to(pipeline.device)
        results.append([pipeline.step(inputs, targets, optimizer=optimizer, clip=0.1).loss for _ in range(3)])
    assert results[1] == pytest.approx(results[0], rel=1e-9)


@needs_gpu
def test_checkpoints_of_a_gpu_go_on_there_and_on_the_cpu(tmp_path):
    losses = []
    for device in ("cuda", "cuda", "cpu"):
        torch.manual_seed(1)
        example = perceptron(samples=4)
        pipeline = pipeline_of(example, device=device)
        optimizer = torch.optim.AdamW(pipeline.parameters(), lr=0.01)
        inputs, targets = example.inputs.to(pipeline.device), example.targets.to(pipeline.device)
        if losses:
            pipeline.load_checkpoint(tmp_path, optimizer=optimizer)
        else:
            pipeline.step(inputs, targets, optimizer=optimizer)
            pipeline.save_checkpoint(tmp_path, optimizer=optimizer, wait=False).wait()
        losses.append(pipeline.step(inputs, targets, optimizer=optimizer).loss)
    assert losses[1:] == pytest.approx(losses[:1] * 2, rel=1e-9)
