"""Trains a model as torchtitan's trainer does, with chimerapipe.torchtitan, and compares with one process.

torchtitan's parts come from its own functions; torch 2.11 cannot import its trainer and models.
"""

from types import SimpleNamespace

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

from chimerapipe.torchtitan import pipelining

MICRO_BATCHES, SAMPLES, LENGTH, STEPS = 4, 2, 6, 3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(16, 16)

    def forward(self, hidden, positions):
        return hidden + torch.tanh(self.inner(hidden + positions[..., None]))


class Decoder(nn.Module):
    """Like torchtitan's: parts of it lack modules."""

    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(40, 16)
        self.layers = nn.ModuleDict({str(at): Block() for at in range(6)})
        self.norm, self.lm_head = nn.RMSNorm(16), nn.Linear(16, 40)

    def init_weights(self, seed):
        torch.manual_seed(seed)
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def forward(self, hidden, shift=None, *, positions, mask=None):
        """`mask`: no tensor, as FlexAttention's BlockMask."""
        positions = positions if mask is None else mask.scaled(positions)
        if self.tok_embeddings is not None:
            hidden = self.tok_embeddings(hidden) + shift[..., None]
        for layer in self.layers.values():
            hidden = layer(hidden, positions)
        hidden = hidden if self.norm is None else self.norm(hidden)
        return hidden if self.lm_head is None else self.lm_head(hidden)


class Mask:
    def scaled(self, values):
        return values * 2


def loss_fn(output, labels, global_valid_tokens=None):
    total = functional.cross_entropy(output.flatten(0, 1), labels.flatten(), reduction="sum", ignore_index=-100)
    return total if global_valid_tokens is None else total / global_valid_tokens, {}


def micro_batches(step):
    draw = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 40, (2 * MICRO_BATCHES, SAMPLES, LENGTH + 1), generator=draw)
    positions = torch.rand(2 * MICRO_BATCHES, SAMPLES, LENGTH, generator=draw, dtype=torch.float64)
    return list(zip(tokens[..., :-1], tokens[..., 1:], positions, strict=True))


def clipped(parameters, mesh):
    """What torchtitan's clip_grad_norm_ does with a pipeline."""
    total = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if mesh is not None:
        total **= 2.0
        distributed.all_reduce(total, group=mesh.get_group())
        total **= 0.5
    nn.utils.clip_grads_with_norm_(parameters, 0.05, total)
    return float(total)


def on_one_process(model):
    """Returns losses, norms and the weights."""
    optimizer, numbers = torch.optim.AdamW(model.parameters(), lr=0.01), []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = 0.0
        for inputs, labels, positions in micro_batches(step):
            outputs = model(inputs, positions / 7, positions=positions)
            part, _ = loss_fn(outputs, labels, 2 * MICRO_BATCHES * SAMPLES * LENGTH)
            part.backward()
            loss += float(part.detach())
        numbers.append((loss, clipped(list(model.parameters()), None)))
        optimizer.step()
    evaluated = sum(
        float(loss_fn(model(inputs, positions / 7, positions=positions), labels)[0].detach())
        for inputs, labels, positions in micro_batches(9)[:MICRO_BATCHES]
    )
    return numbers, evaluated


SETTINGS = SimpleNamespace(
    pipeline_parallel_microbatch_size=SAMPLES, module_fqns_per_model_part=None,
    pipeline_parallel_first_stage_less_layers=1, pipeline_parallel_last_stage_less_layers=1,
)


def pipelined(schedule, model, mesh, batch_size=MICRO_BATCHES * SAMPLES, loss_fn=loss_fn, **given):
    """Calls the function of pipelining() as torchtitan does."""
    return pipelining(schedule)(
        model, parallel_dims=SimpleNamespace(get_mesh=lambda name: {"pp": mesh}[name]), parallelism=SETTINGS,
        training=SimpleNamespace(local_batch_size=batch_size), device=torch.device("cpu"),
        model_config=SimpleNamespace(layers=range(6)), loss_fn=loss_fn, **given,
    )


def on_a_pipeline(schedule, mesh):
    """Trains as torchtitan does, with two calls of the schedule for an update."""
    with torch.device("meta"):
        whole = Decoder().double()
    asked = []

    def parallelize_fn(part, **settings):
        asked.append(sorted(settings))
        return part

    more = {"compile_config": None, "ac_config": None, "dump_folder": "", "parallelize_fn": parallelize_fn}
    pipeline, parts, has_first, has_last = pipelined(schedule, whole, mesh, **more)
    names = ["ac_config", "compile_config", "dump_folder", "parallel_dims", "parallelism", "training"]
    assert asked == [names] * len(parts)
    torch.manual_seed(1)
    full = Decoder().double()
    full.init_weights(1)
    values = full.state_dict()
    for stage, part in enumerate(parts):
        part.to_empty(device="cpu")
        part.init_weights(100 + mesh.get_local_rank())  # Seeds differ by rank
        if len(parts) == 1 or stage == mesh.get_local_rank():  # The first replica; the others follow
            part.load_state_dict({name: values[name] for name in part.state_dict()})
        part.train()
    parameters = [parameter for part in parts for parameter in part.parameters()]
    optimizer, numbers = torch.optim.AdamW(parameters, lr=0.01), []

    def called(call, given, **more):
        losses = [] if has_last else None
        call(
            arg_mbs=[(inputs, positions / 7) for inputs, _, positions in given] if has_first else None,
            kwarg_mbs=[{"positions": positions / 2, "mask": Mask()} for _, _, positions in given],
            target_mbs=[labels for _, labels, _ in given] if has_last else None, losses=losses, **more,
        )
        return float(torch.sum(torch.stack(losses))) if has_last else None

    for step in range(STEPS):
        optimizer.zero_grad()
        loss = []
        for half in (micro_batches(step)[:MICRO_BATCHES], micro_batches(step)[MICRO_BATCHES:]):
            more = {"loss_kwargs": {"global_valid_tokens": torch.tensor(2 * MICRO_BATCHES * SAMPLES * LENGTH)}}
            loss.append(called(pipeline.step, half, return_outputs=False, **more))
        numbers.append((sum(loss) if has_last else None, clipped(parameters, mesh)))
        optimizer.step()
    return full, numbers, called(pipeline.eval, micro_batches(9)[:MICRO_BATCHES]), parts


def main():
    distributed.init_process_group("gloo")
    for schedule in ("chimera-zb", "chimera", "1f1b", "zb-h1"):
        mesh = init_device_mesh("cpu", (distributed.get_world_size(),), mesh_dim_names=("pp",))
        model, numbers, evaluated, parts = on_a_pipeline(schedule, mesh["pp"])
        expected, expected_loss = on_one_process(model)
        for (loss, norm), (found, found_norm) in zip(expected, numbers, strict=True):
            assert found is None or abs(found - loss) < 1e-12, (schedule, loss, found)
            assert abs(found_norm - norm) < 1e-12, (schedule, norm, found_norm)
        assert evaluated is None or abs(evaluated - expected_loss) < 1e-9, (schedule, evaluated, expected_loss)
        weights = model.state_dict()
        for part in parts:
            for name, value in part.state_dict().items():
                assert torch.allclose(value, weights[name], rtol=0, atol=1e-12), (schedule, name)


if __name__ == "__main__":
    main()
