"""The CPU or GPUs of a pipeline."""

import contextlib
import os
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from . import _training
from ._launcher import is_on_one_host, local_rank, server
from ._training import ConfigError

_MARGIN = 256 << 20  # Bytes, as in `chimera train`
_PCI = "/sys/bus/pci/devices"


def own_device(wanted: torch.device | str, world: int, *, deterministic: bool = False) -> torch.device:
    """Returns the device of this process, with its index.

    `cuda` selects the GPU of LOCAL_RANK, or torch's current GPU for rank threads. Raises ConfigError if it does not
    exist. `deterministic`: equal bits in every run, so cuBLAS needs its variable before CUDA starts.
    """
    try:
        device = torch.device(wanted)
    except (RuntimeError, TypeError):
        raise ConfigError(f"device {wanted}: expected cpu or cuda") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise ConfigError(f"device {device}: expected cpu or cuda")
    if world > 1:
        _set_gpu_variables()
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if not torch.cuda.is_available():
        why = "torch finds none" if torch.version.cuda else "this torch is built without CUDA"
        raise ConfigError(f"device {device}: no usable GPU here ({why}); omit device to train on the CPU")
    index, gpus = device.index, torch.cuda.device_count()
    if index is None:
        local = local_rank() if world > 1 else None
        # Some launchers (`srun --gpus-per-task`, Kubernetes) show each process only its own GPU.
        index = torch.cuda.current_device() if local is None else 0 if gpus == 1 else local
    if index >= gpus:
        raise ConfigError(
            f"device cuda: GPU {index} is requested, but this host has {gpus}; start one process per GPU, "
            "or use rank threads, which share a GPU"
        )
    if world > 1:
        torch.cuda.set_device(index)
    return torch.device("cuda", index)


def _set_gpu_variables() -> None:
    """Sets variables of CUDA and NCCL, unless the user has. Warns if CUDA has started, which is too late for them."""
    host, port = (None if is_on_one_host() in (True, None) else server()) or ("", 0)
    missing = {name: value for name, value in _training.gpu_variables(host, port).items() if name not in os.environ}
    os.environ.update(missing)
    if missing and torch.cuda.is_initialized():
        text = " ".join(f"{name}={value}" for name, value in missing.items())
        warnings.warn(f"CUDA started before the pipeline; make the pipeline first, or run with {text}", stacklevel=3)


def bind_near(device: torch.device) -> None:
    """Binds this thread and its later ones to the cores of the GPU's NUMA node, unless a launcher has bound it."""
    gpu = torch.cuda.get_device_properties(device)
    address = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
    with contextlib.suppress(OSError, ValueError):
        own, parts = os.sched_getaffinity(0), Path(_PCI, address, "local_cpulist").read_text().split(",")
        bounds = [list(map(int, part.split("-"))) for part in parts]
        if len(own) == os.cpu_count():
            os.sched_setaffinity(0, own & {core for each in bounds for core in range(each[0], each[-1] + 1)})


def require_margin(device: torch.device) -> None:
    """Raises ConfigError if so little memory is free after the warm-up that an allocation would wait for the GPU."""
    if (free := torch.cuda.mem_get_info(device)[0]) < _MARGIN:
        raise ConfigError(
            f"device {device}: a step leaves {free >> 20} MiB of memory free, {_MARGIN >> 20} are needed; use smaller "
            "micro-batches, recompute, or more stages"
        )


def uses_nccl(device: torch.device, world: int) -> bool:
    return world > 1 and device.type == "cuda"


def require_own_gpus(identities: list[str]) -> None:
    """Raises ConfigError if two ranks have the same GPU: NCCL refuses it unless NCCL_HOSTID tells their hosts apart."""
    for rank, identity in enumerate(identities):
        if (first := identities.index(identity)) != rank and "NCCL_HOSTID" not in os.environ:
            raise ConfigError(
                f"ranks {first} and {rank} use the same GPU ({identity}); start one process per GPU, or use rank "
                "threads, which share a GPU"
            )


def require_on(device: torch.device, name: str, tensor: Tensor) -> None:
    """Raises ConfigError for other values than tensors on the device."""
    if not isinstance(tensor, Tensor):
        raise ConfigError(f"{name}: got a {type(tensor).__name__}; give a tensor with samples in the first dimension")
    if type(tensor).__name__ == "DTensor":
        raise ConfigError(f"{name}: got a DTensor; give this rank's samples as a plain tensor, such as .full_tensor()")
    if tensor.device != device:
        raise ConfigError(
            f"{name} are on {tensor.device}, but this pipeline computes on {device}; give {name}.to({device})"
        )


def bring_to(device: torch.device, module: nn.Module, name: str) -> None:
    """Moves a layer from the CPU. Raises ConfigError if a part of it is on a third device."""
    for own_name, value in [*module.named_parameters(), *module.named_buffers()]:
        if value.is_meta:
            raise ConfigError(
                f"{name} has '{own_name}' on the device meta, without values; make the layer outside of torch.device("
                "'meta'), or call layer.to_empty(device='cpu') and set its values"
            )
        if value.device not in (device, torch.device("cpu")):
            hint = "move the layer to the CPU" if device.type == "cuda" else "move it there, or give device='cuda'"
            raise ConfigError(
                f"{name} has '{own_name}' on {value.device}, but this pipeline computes on {device}; {hint}"
            )
    module.to(device)
