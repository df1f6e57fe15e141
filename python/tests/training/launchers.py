"""Pairs of processes with the variables of launchers other than torchrun. Prints the losses of each pair.

Usage: launchers.py [RANK ADDRESS PORT]: with arguments it is one of two ranks that a launcher has started on hosts.
"""

import os
import socket
import sys

import torch
from models import perceptron, squares

import chimerapipe as cp
from chimerapipe import _processes

JOB = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_STEP_ID": "0"}


def slurm(rank, hosts):
    node, local, tasks = (0, rank, "2") if hosts == 1 else (rank, 0, "1(x2)")
    place = {"SLURM_PROCID": rank, "SLURM_STEP_NUM_TASKS": 2, "SLURM_NODEID": node, "SLURM_LOCALID": local, **JOB}
    return place | {"SLURM_STEP_TASKS_PER_NODE": tasks}


def open_mpi(rank):
    of_world = {"OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_SIZE": 2, "PMIX_RANK": rank}
    return of_world | {"OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": 2}


def torch_on_hosts(rank):
    return {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 1, "MASTER_ADDR": ADDRESS, "MASTER_PORT": PORT}


LAUNCHERS = {
    "Open MPI": open_mpi,
    "MPICH": lambda rank: {"PMI_RANK": rank, "PMI_SIZE": 2, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": 2},
    "SLURM": lambda rank: slurm(rank, 1),
    "SLURM on hosts": lambda rank: slurm(rank, 2) | {"SLURM_STEP_NODELIST": "localhost"},
    "torch on hosts": torch_on_hosts,
}
with socket.socket() as free:
    free.bind(("", 0))
    _, ADDRESS, PORT = sys.argv[1:] or (None, "127.0.0.1", free.getsockname()[1])


def train(name, rank):
    os.environ.update({key: str(value) for key, value in LAUNCHERS[name](rank).items()})
    torch.manual_seed(1)
    example = perceptron(4)
    pipeline = cp.Pipeline(example.layers, squares, cp.schedule("chimera", 2, 4))
    loss = pipeline.step(example.inputs, example.targets).loss
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
    sys.stdout.write(f"{name}: rank {pipeline.rank}, loss {loss}, {interface}\n")
    sys.stdout.flush()
    _processes._close_all()


def launch(name):
    """Starts two ranks. It runs in a process of its own, as launchers do."""
    children = []
    for rank in (0, 1):
        children.append(os.fork())
        if children[-1] == 0:
            train(name, rank)
            os._exit(0)
    return [os.waitpid(child, 0)[1] for child in children]


torch.set_num_threads(1)
if sys.argv[1:]:
    train("torch on hosts", int(sys.argv[1]))
    sys.exit()
for name in LAUNCHERS:
    launcher = os.fork()
    if launcher == 0:
        os._exit(launch(name) != [0, 0])
    assert os.waitpid(launcher, 0)[1] == 0, name
