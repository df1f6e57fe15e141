"""Trains torchtitan's debug model by torchtitan's own trainer on CPU processes, by its 1F1B and by schedules of
chimerapipe, and compares losses, gradient norms and weights.

Usage: under two ranks, with torchtitan 0.3.0 and a torch that it supports (tools/newest-torch). The trainer wants a
GPU; a few functions of torch.cpu make it take the CPU.
"""

import dataclasses
import sys
import types
import zlib
from dataclasses import dataclass

import torch
from torch import distributed
from torch.nn import functional

torch._utils._get_available_device_type = lambda: "cpu"
for name, result in {
    "get_device_name": "CPU",
    "current_device": 0,
    "get_device_properties": types.SimpleNamespace(total_memory=1 << 30),
    "memory_stats": {},
    "reset_peak_memory_stats": None,
    "empty_cache": None,
}.items():
    setattr(torch.cpu, name, lambda *_, result=result: result)

from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.models.common import attention  # noqa: E402
from torchtitan.models.common.config_utils import decoder_vocab_size  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402

from chimerapipe.torchtitan import pipelining  # noqa: E402

STEPS, LENGTH, VOCABULARY = 5, 32, 2048


def causal(q, k, v, *, scale, enable_gqa, **settings):
    """Takes the place of flex_attention, which has no backward on a CPU. Each sample of Tokens is one document."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=enable_gqa), None


attention.FlexAttention._compiled_flex_attn = causal
attention._compiled_create_block_mask = attention.create_block_mask


class Tokens(BaseDataLoader):
    """Numbers that are equal in all runs and processes."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config, *, local_batch_size, **settings):
        self.samples = local_batch_size

    def __iter__(self):
        draw = torch.Generator().manual_seed(5)
        positions = torch.arange(LENGTH).repeat(self.samples, 1)
        while True:
            tokens = torch.randint(VOCABULARY // 64, (self.samples, LENGTH + 1), generator=draw)
            yield {"input": tokens[:, :-1], "positions": positions}, tokens[:, 1:]

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, **settings):
        super().__init__()

    def encode(self, *given, **named):
        return []

    def decode(self, *given, **named):
        return ""

    def get_vocab_size(self):
        return VOCABULARY


def on_cpus():
    """The debug model with samples of its own."""
    config = llama3_debugmodel()
    config.tokenizer, config.dataloader = NoTokenizer.Config(), Tokens.Config()
    config.loss = CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(config.model_spec))
    return config


def with_schedule(name):
    def make():
        config = on_cpus()
        if name == "chimera-zb":
            config.activation_checkpoint = None  # SelectiveAC, the default, allows one backward
        config.model_spec = dataclasses.replace(config.model_spec, pipelining_fn=pipelining(name))
        return config

    return make


SCHEDULES = ("chimera-zb", "chimera")
for schedule in SCHEDULES:
    globals()[schedule.replace("-", "_")] = with_schedule(schedule)


def own_names(part):
    """Yields parameters with the names of the whole model."""
    for name, parameter in part.named_parameters():
        yield name.replace("_checkpoint_wrapped_module.", ""), parameter


def local_of(value):
    return value.to_local() if hasattr(value, "to_local") else value


def trained(config):
    """Returns the logged numbers, and the weights by name."""
    arguments = {
        "training.seq_len": LENGTH,
        "training.steps": STEPS,
        "training.local_batch_size": 8,
        "training.global_batch_size": 16,
        "training.mixed_precision_param": "float32",
        "parallelism.pipeline_parallel_degree": 2,
        "parallelism.pipeline_parallel_schedule": "1F1B",
        "parallelism.pipeline_parallel_microbatch_size": 2,
        "dump_folder": sys.argv[1],
    }
    flags = [f"--{name}={value}" for name, value in arguments.items()]
    module = ["--module", "torchtitan_trainer", "--config", config, "--training.disable_cuda_graphs"]
    trainer = ConfigManager().parse_args([*module, *flags]).build()
    with torch.no_grad():  # Torchtitan draws first values with other seeds in each rank
        for part in trainer.model_parts:
            for name, parameter in own_names(part):
                draw = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                values = torch.randn(parameter.shape, generator=draw)
                local_of(parameter).copy_(0.02 * values + ("norm" in name))
    logged = []
    trainer.metrics_processor.log = lambda step, loss, most, norm, **more: logged.append((loss, norm))
    trainer.train()
    weights = {name: local_of(p.detach()).clone() for part in trainer.model_parts for name, p in own_names(part)}
    trainer.close()
    return logged, weights


def main():
    expected = trained("on_cpus")
    told = [None, None]
    distributed.all_gather_object(told, expected)
    losses, norms = [[pair[at] for pair in told[1][0]] for at in (0, 1)]  # The loss is on the last stage
    weights = told[0][1] | told[1][1]
    assert len(losses) == STEPS and losses[-1] < losses[0]
    for schedule in SCHEDULES:
        numbers, found = trained(schedule.replace("-", "_"))
        loss = max(abs(a - b) for (a, _), b in zip(numbers, losses, strict=True) if a > 0)
        norm = max(abs(a - b) for (_, a), b in zip(numbers, norms, strict=True))
        worst = max(float((value - weights[name]).abs().max()) for name, value in found.items())
        assert max(loss, norm, worst) < 1e-5, (schedule, loss, norm, worst)  # float32
        if distributed.get_rank() == 0:
            print(f"{schedule}: differences: loss {loss:.1e}, norm {norm:.1e}, weights {worst:.1e}", flush=True)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
