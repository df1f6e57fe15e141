"""Pipelines on some of four ranks."""

import os

import torch
from models import perceptron, squares
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from users import Pair, refused, samples
from users_ranks import RANK

import chimerapipe as cp


def trained(mesh, seed, schedule="chimera"):
    """Trains on a mesh of two ranks, and compares with the whole model."""
    torch.manual_seed(seed)
    pair = Pair(perceptron(4).layers, schedule, mesh=mesh)
    for _ in range(3):
        inputs, targets = samples()
        outputs = pair.plain(inputs).detach()
        step = pair.step(inputs, targets, return_outputs=True)
        if pair.pipeline.has_last_stage:
            torch.testing.assert_close(step.outputs, outputs, rtol=1e-12, atol=1e-12)
    pair.pipeline.gather()
    gathered = nn.Sequential(*pair.layers).state_dict()
    torch.testing.assert_close(gathered, pair.plain.state_dict(), rtol=1e-9, atol=1e-10)
    return pair.pipeline


def plans_alone(mesh):
    """The other ranks of the job do not take part, and the first rank of the mesh measures."""
    layers, inputs = perceptron(4).layers, torch.ones(4, 6).double()
    profile = cp.profile(layers, inputs, repeats=1, mesh=mesh)
    cut = cp.partition(profile, cp.schedule("1f1b", 2, 4), mesh=mesh)
    measured = cp.partition(layers, 2, inputs, mesh=mesh)
    plan = cp.plan(profile, workers=2, mini_batch=8, mesh=mesh)
    told = [None] * 2
    distributed.all_gather_object(told, [profile, cut, measured, plan], group=mesh.get_group())
    assert told[0] == told[1]
    ask = lambda: cp.plan(profile, workers=2, mini_batch=2 + RANK, mesh=mesh)
    ask() if RANK == 2 else refused(ask, "plan: rank 0 has the arguments", cp.ScheduleError)


def some_ranks_have_other_roles():
    mesh = DeviceMesh("cpu", [2, 0])
    group = distributed.new_group([1, 3])
    if RANK in (0, 2):
        pipeline = trained(mesh, 5)
        assert pipeline.rank == (1 if RANK == 0 else 0)
        refused(lambda: trained(group, 5), f"mesh: rank {RANK} is not in", cp.ConfigError)
        plans_alone(mesh)
    else:
        refused(lambda: trained(mesh, 5), f"mesh: rank {RANK} is not in it; only its ranks [2, 0]", cp.ConfigError)
        assert trained(group, 6).rank == RANK // 2


def two_pipelines_side_by_side():
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    column = mesh["dp"].get_local_rank()
    pipeline = trained(mesh["pp"], 10 + column, "zb-h1")
    folder = os.path.join(os.environ["FOLDER"], f"column {column}")
    pipeline.save_checkpoint(folder)
    assert pipeline.load_checkpoint(folder).step == 3
    folder = os.path.join(os.environ["FOLDER"], "of both")
    claimed = [None] * 4
    try:
        pipeline.save_checkpoint(folder)
    except cp.ConfigError as error:
        assert f"step-00000003 is written by the pipeline of ranks [{1 - column}, {3 - column}]; give" in str(error)
        distributed.all_gather_object(claimed, False)
    else:
        distributed.all_gather_object(claimed, True)
    assert claimed[:2] == claimed[2:] and sum(claimed) == 2
    refused(lambda: trained(mesh, 1), "mesh: has 2 dimensions; give the pipeline's alone, as mesh['pp'] of pp, dp")
    sharded = fully_shard(nn.Linear(6, 6), mesh=mesh["dp"])
    words = "profile: layer 1 (FSDPLinear) is distributed, and one rank alone would run it; profile the layers before"
    refused(lambda: cp.profile([nn.Linear(6, 6), sharded], torch.ones(2, 6), mesh=mesh["pp"]), words, ValueError)
    schedule = cp.schedule("1f1b", 3, 3)
    layers = perceptron(3).layers
    words = "1 groups of 3 workers need 3 processes, but the mesh has 2"
    refused(lambda: cp.Pipeline(layers, squares, schedule, mesh=mesh["pp"]), words, cp.ConfigError)
    words = "need 2 processes, but 4 were started; give mesh= if some ranks have other roles"
    refused(lambda: cp.Pipeline(layers, squares, cp.schedule("1f1b", 2, 3)), words, cp.ConfigError)
    refused(lambda: cp.Pipeline(layers, squares, schedule, mesh=[0, 1]), "mesh: got a list; give a DeviceMesh")


def two_groups_in_a_mesh():
    """`data_parallel` counts groups inside of the mesh."""
    torch.manual_seed(4)
    example = perceptron(8)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("all",))
    pipeline = cp.Pipeline(example.layers, squares, cp.schedule("1f1b", 2, 4), data_parallel=2, mesh=mesh)
    assert pipeline.width == 2
    example.expect_unpipelined(pipeline)


def main():
    torch.set_num_threads(1)
    refused(lambda: cp.Pipeline([nn.Linear(1, 1)], squares, cp.schedule("1f1b", 1, 1), mesh=3), "no process group")
    distributed.init_process_group("gloo")
    some_ranks_have_other_roles()
    two_pipelines_side_by_side()
    two_groups_in_a_mesh()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
