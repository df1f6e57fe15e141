"""PyTorch's own reader and writer of schedules, from the installed torch package.

Where torch cannot be imported (the wheel without its Python dependencies, as in .venv) its schedules.py is loaded
alone: reading and writing files touch no tensor.
"""

import importlib.util
import pathlib
import sys
import types
from unittest import mock

PACKAGE = "torch.distributed.pipelining"


def load_schedules():
    """The module torch.distributed.pipelining.schedules, or None where no torch is installed."""
    try:
        import torch.distributed.pipelining.schedules as schedules

        return schedules
    except (ImportError, OSError):
        return load_alone()


def load_alone():
    for folder in map(pathlib.Path, sys.path):
        package = folder / "torch/distributed/pipelining"
        if (package / "schedules.py").is_file():
            break
    else:
        return None
    for name in [name for name in sys.modules if name == "torch" or name.startswith("torch.")]:
        del sys.modules[name]  # what a failed import left behind
    for name in ("torch", "torch.distributed", "torch._dynamo", "torch.distributed.fsdp", "torch.nn",
                 "torch.nn.modules", "torch.nn.modules.loss", "torch.profiler", f"{PACKAGE}.microbatch",
                 f"{PACKAGE}.stage"):
        sys.modules[name] = mock.MagicMock()
    sys.modules["torch"].nn.Module = type("Module", (), {})  # asked for by isinstance
    sys.modules[PACKAGE] = types.ModuleType(PACKAGE)
    sys.modules[PACKAGE].__path__ = [str(package)]
    for name in ("_utils", "schedules"):
        spec = importlib.util.spec_from_file_location(f"{PACKAGE}.{name}", package / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return sys.modules[f"{PACKAGE}.schedules"]


def version():
    """Of the installed torch package, without importing it."""
    import importlib.metadata

    return importlib.metadata.version("torch").split("+")[0]


def stages_of_worker(num_workers, num_stages):
    """What PyTorch's schedules ask their stages for, of worker 0: it plans the orders of all workers alike."""
    fields = dict(num_stages=num_stages, group_size=num_workers, group_rank=0, has_backward=True, submod=None)
    return [types.SimpleNamespace(stage_index=i, **fields) for i in range(num_stages // num_workers)]


def runtime(schedules, num_workers, num_stages, num_micro_batches):
    """A schedule without order, for _load_csv."""
    stages = stages_of_worker(num_workers, num_stages)
    return schedules._PipelineScheduleRuntime(stages, num_micro_batches)


# Name, class, stages a worker. The first two plan for one stage a worker and write no file themselves: theirs is
# their plan as the others write it, REDUCE_GRAD included.
SCHEDULES = [
    ("gpipe", "ScheduleGPipe", 1),
    ("1f1b", "Schedule1F1B", 1),
    ("looped_bfs", "ScheduleLoopedBFS", 2),
    ("interleaved_1f1b", "ScheduleInterleaved1F1B", 2),
    ("interleaved_zero_bubble", "ScheduleInterleavedZeroBubble", 2),
    ("zbv", "ScheduleZBVZeroBubble", 2),
    ("dualpipev", "ScheduleDualPipeV", 2),
]

# PyTorch 2.11's plan of 1F1B (not what it runs) numbers the forwards of the last worker from 1, so that its own
# validation refuses it.
FAULTY = ["1f1b.csv"]


def write_all(schedules, folder, num_workers, num_micro_batches):
    """Writes every schedule of PyTorch in every dialect it has, NAME.csv and NAME.comms.csv. Returns each path with
    the orders it holds: {worker: [actions]}."""
    written = []
    for name, class_name, chunks in SCHEDULES:
        stages = stages_of_worker(num_workers, chunks * num_workers)
        if chunks == 1:
            schedule = runtime(schedules, num_workers, num_workers, num_micro_batches)
            schedule.pipeline_order = getattr(schedules, class_name)(stages[0], num_micro_batches).pipeline_order
            dialects = ["compute_only"]
        else:
            schedule = getattr(schedules, class_name)(stages, num_micro_batches)
            dialects = ["compute_only", "compute_comms"]
        for dialect in dialects:
            path = pathlib.Path(folder) / (name + (".csv" if dialect == "compute_only" else ".comms.csv"))
            schedule._dump_csv(str(path), dialect)
            only = dialect == "compute_only"
            written.append((path, schedule.pipeline_order if only else schedule.pipeline_order_with_comms))
    return written


def ops_of(actions):
    """The ops of one worker as text: pairs taken apart, idle cells and all that computes nothing left out."""
    ops = []
    for action in actions:
        if action is not None and action.is_compute_op:
            ops += [str(op) for op in action.sub_actions or (action,)]
    return ops
