"""Cases of users on two ranks."""

import copy
import functools
import os
import tempfile
from unittest import mock

import torch
from models import perceptron, plain_step, squares
from test_stored_values import DTYPES, HoldsMore, bits, example
from torch import nn
from users import CASES, SCHEDULES, Item, Later, Pair, Shift, refused, samples

import chimerapipe as cp

RANK = int(os.environ.get("RANK", 0))


def shared_folder():
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    return folder[0]


def pipeline(layers=None, schedule=None, **options):
    return cp.Pipeline(layers or perceptron(4).layers, squares, schedule or cp.schedule("1f1b", 2, 4), **options)


def different_arguments():
    """Each rank gives another value of one argument."""

    def narrow():
        return [*perceptron(4).layers[:3], nn.Linear(6, 6 + RANK).double()]

    for words, options in (
        ("partition: [1, 3] on rank 0, but [2, 2] on rank 1", {"partition": [1, 3] if RANK == 0 else [2, 2]}),
        ("schedule: 1f1b of 2 stages and 4 micro", {"schedule": cp.schedule(["1f1b", "gpipe"][RANK], 2, 4)}),
        ("schedule: 1f1b of 2 stages and 4 micro", {"schedule": cp.schedule("1f1b", 2, 4 + 4 * RANK)}),
        ("reduction: 'natural' on rank 0, but 'canonical'", {"reduction": ["natural", "canonical"][RANK]}),
        ("layer 3, weight: [6, 6] of float64 on rank 0, but [7, 6]", {"layers": narrow()}),
        ("number of layers: 4 on rank 0, but 3", {"layers": perceptron(4 - RANK, layers=4 - RANK).layers}),
    ):
        refused(lambda options=options: pipeline(**options), words, cp.ConfigError)

    def make():
        if RANK == 1:
            raise MemoryError("too large")
        return nn.Linear(6, 6).double()

    refused(lambda: pipeline([*perceptron(4).layers[:3], make]), "too large")
    trains = pipeline()
    torch.manual_seed(3)  # Each rank has drawn other numbers
    inputs, targets = samples()
    refused(lambda: trains.step(inputs, targets, clip=1.0 + RANK), "clip: 1.0 on rank 0, but 2.0 on rank 1")
    refused(lambda: trains.step(inputs[: 4 - RANK], targets), "3 samples, but a step of this process takes 4")
    trains.step(inputs, targets)


def planned_alike():
    layers, example = perceptron(4).layers, samples(8)[0]
    profile = cp.profile(layers, example, repeats=1)
    plan = cp.plan(profile, workers=2, mini_batch=8)
    cut = cp.partition(profile, cp.schedule("1f1b", 2, 4))
    told = [None] * 2
    torch.distributed.init_process_group("gloo") if not torch.distributed.is_initialized() else None
    torch.distributed.all_gather_object(told, [profile, plan, cut])
    assert told[0] == told[1]
    refused(lambda: cp.plan(profile, workers=2, mini_batch=0), "mini_batch", cp.ScheduleError)
    cp.Pipeline(layers, squares, plan.best.schedule, **plan.best.pipeline_options())


def equal_buffers():
    layers = [Shift(1), Shift(RANK + 2), Shift(RANK + 3), Shift(4)]
    made = pipeline(layers, cp.schedule("chimera", 2, 4))
    made.step(*samples())
    expected = {"1.shift": 2.0, "2.shift": 4.0}  # Owned by ranks 0 and 1
    for name, value in made.state_dict().items():
        if name in expected:
            assert (value == expected[name]).all(), name


def changed_copies_are_found():
    made = pipeline(schedule=cp.schedule("chimera", 2, 4))
    made.step(*samples())
    if RANK == 1:
        with torch.no_grad():
            made.state_dict()["0.0.weight"].add_(1e-9)
    with mock.patch.object(cp._run, "_CHECK_COPIES_EVERY", 1):
        refused(lambda: made.step(*samples()), "stage 0: the replicas on ranks 0 and 1 hold different values")


def other_samples():
    """Ranks that work on the same samples get other ones, as from DistributedSampler's defaults."""
    inputs, targets = samples(8)
    own = slice(4 * RANK, 4 * RANK + 4)
    order = list(range(4)) if RANK == 0 else [1, 0, 2, 3]
    words = "pass different samples, but work on the same ones; load them by group"
    for given, name in (
        ((inputs[own], targets[own]), "inputs: ranks 0 and 1 "),
        ((inputs[:4], targets[own]), "targets: ranks 0 and 1 "),
        ((inputs[:4][order], targets[:4][order]), "inputs: ranks 0 and 1 "),
        ((inputs[:4].nextafter(inputs[:4] + RANK), targets[:4]), "inputs: ranks 0 and 1 "),
    ):
        made = pipeline()
        for call in (made.step, made.validate):
            refused(lambda call=call, given=given: call(*given), name + words, cp.ConfigError)
        made.step(inputs[:4], targets[:4])
    keyed = [cp.KeyedLayer(perceptron(4).layers[0], "x", "x", drops=["mask"]), Item("x"), *perceptron(4).layers[:2]]
    made = pipeline(keyed)
    masks = torch.arange(4) + RANK
    refused(lambda: made.step({"x": inputs[:4], "mask": masks}, targets[:4]), "inputs: ranks 0 and 1 " + words)
    made = pipeline(check_data=False)
    made.step(inputs[own], targets[own])
    made = pipeline()
    for _ in range(2):
        made.step(inputs[:4], targets[:4])
    refused(lambda: [made.step(inputs[own], targets[own]) for _ in range(100)], words)
    assert made._run.steps == 63


def equal_samples_of_groups():
    """Both groups get the same batches, as from a stream without shards."""
    inputs, targets = samples(4)
    schedule = cp.schedule("gpipe", 1, 2)
    made = pipeline(schedule=schedule, micro_batch_size=2, data_parallel=2)
    words = "ranks 0 and 1 of data-parallel groups 0 and 1 pass equal samples; each group takes its own share"
    refused(lambda: made.step(inputs, targets), words, cp.ConfigError)
    made.validate(inputs, targets)
    made.step(inputs + RANK, targets)
    pipeline(schedule=schedule, micro_batch_size=2, data_parallel=2, check_data=False).step(inputs, targets)


def sharded_tensors():
    """Tensors that are shards over the ranks of the pipeline itself."""
    from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    mesh = torch.distributed.init_device_mesh("cpu", (2,))
    inputs, targets = samples()

    class Gives(nn.Linear):
        def forward(self, x):
            return DTensor.from_local(super().forward(x), mesh, [Replicate()])

    for schedule in ("1f1b", "chimera"):
        layers = perceptron(4).layers
        parallelize_module(layers[1], mesh, {"0": ColwiseParallel()})
        words = "layer 1 (Sequential): '0.weight' is distributed over ranks [0, 1], of which several are ranks of this"
        refused(lambda s=schedule, ls=layers: pipeline(ls, cp.schedule(s, 2, 4)), words, cp.ConfigError)
        layers = perceptron(4).layers
        layers[1].register_buffer("shard", distribute_tensor(torch.zeros(4), mesh))
        words = "layer 1 (Sequential): 'shard' is distributed over ranks [0, 1], of which several"
        refused(lambda s=schedule, ls=layers: pipeline(ls, cp.schedule(s, 2, 4)), words, cp.ConfigError)
        made = pipeline(schedule=cp.schedule(schedule, 2, 4))
        given = DTensor.from_local(inputs, mesh, [Replicate()])
        refused(lambda m=made, g=given: m.step(g, targets), "inputs: got a DTensor", cp.ConfigError)
        made.step(inputs, targets)
    made = pipeline([Gives(6, 6).double(), *perceptron(4).layers[:3]], partition=[1, 3])
    words, kind = ("layer 0 (Gives) returns a DTensor: it is", TypeError) if RANK == 0 else ("", cp.PeerLostError)
    refused(lambda: made.step(inputs, targets), words, kind)


def scaled_alike():
    """An overflow on one rank skips the update on all; without it, results equal those without a scaler."""
    pair = Pair(perceptron(4).layers, "1f1b", lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    pair.step(*samples())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    step = functools.partial(pair.pipeline.step, *samples(), optimizer=pair.optimizers[1], scaler=scaler)
    if RANK == 1:
        hook = pair.layers[3][0].weight.register_hook(lambda gradient: gradient * torch.inf)
    before = {name: value.clone() for name, value in pair.pipeline.state_dict().items()}
    assert step().skipped and scaler.get_scale() == 2.0
    assert all(torch.equal(before[name], value) for name, value in pair.pipeline.state_dict().items())
    if RANK == 1:
        hook.remove()
    assert not pair.step(*samples(), scaler=scaler).skipped
    scaler._growth_interval = 3 + RANK
    if RANK == 1:
        scaler.update(8.0)
    refused(step, "scale: 2.0 on rank 0, but 8.0 on rank 1")


def resumed_with_dropout():
    """Each process draws from its own generators, whose states are in the checkpoint."""

    def trainer():
        torch.manual_seed(3 + RANK)
        layers = [nn.Sequential(*perceptron(4).layers[:1], nn.Dropout(0.3)) for _ in range(2)]
        made = pipeline(layers)
        return made, torch.optim.AdamW(made.parameters(), lr=0.01)

    def train(made, optimizer):
        return [made.step(*batch, optimizer=optimizer).loss for batch in batches]

    batches = [samples() for _ in range(2)]
    folder = shared_folder()
    made, optimizer = trainer()
    train(made, optimizer)
    made.save_checkpoint(folder, optimizer=optimizer)
    expected = train(made, optimizer)
    made, optimizer = trainer()
    made.load_checkpoint(folder, optimizer=optimizer)
    assert train(made, optimizer) == expected


def gathered_types():
    """Buffers of all types, and extra state, start equal in replicas and come back from other processes."""
    for schedule in ("1f1b", "chimera"):
        layers = [HoldsMore([example(dtype, (2, 3)) for dtype in DTYPES], extra={"of": RANK}) for _ in range(4)]
        made = pipeline(layers, cp.schedule(schedule, 2, 4))
        torch.manual_seed(3)
        made.step(*samples())
        made.gather()
        assert [layer.extra["of"] for layer in layers] == [0, 0, 1, 1]
        told = [None, None]
        torch.distributed.all_gather_object(told, [bits(value) for layer in layers for value in layer.buffers()])
        assert told[0] == told[1]


class Fails(nn.Linear):
    at = 0

    def forward(self, x):
        Fails.at -= 1
        if Fails.at == 0:
            raise ValueError("deliberate")
        return super().forward(x)


def a_caught_exception_lets_all_ranks_go_on():
    for schedule in SCHEDULES:
        layers = perceptron(4).layers
        layers[3] = Fails(6, 6).double()
        made = pipeline(layers, cp.schedule(schedule, 2, 4))
        made.step(*samples())
        Fails.at = 2 if RANK == 1 else 0
        try:
            made.step(*samples())
        except ValueError:
            assert RANK == 1
        except cp.PeerLostError:
            assert RANK == 0
        else:
            raise AssertionError("no exception")
        Fails.at = 0
        refused(lambda made=made: made.step(*samples()), "failed before")
        Pair(perceptron(4).layers, schedule).step(*samples())


def the_surface_of_torchs_schedules():
    """Ranks without the first or the last stage pass None; outputs are on the ranks of the last stage, or on all."""
    for schedule, holders in (("1f1b", [1]), ("chimera", [0, 1])):
        torch.manual_seed(3)
        example = perceptron(4)
        plain = nn.Sequential(*copy.deepcopy(example.layers))
        made = pipeline(example.layers, cp.schedule(schedule, 2, 4))
        assert made.has_last_stage == (RANK in holders)
        inputs = example.inputs if made.has_first_stage else None
        targets = example.targets if made.has_last_stage else None
        outputs = plain(example.inputs)
        step = made.step(inputs, targets, return_outputs=True)
        assert (step.outputs is not None) == (RANK in holders) == bool(step.losses)
        if RANK in holders:
            torch.testing.assert_close(step.outputs, outputs, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(made.predict(inputs, gather=True), outputs, rtol=1e-12, atol=1e-12)
        made.step(inputs, targets, zero_gradients=False)
        norm = made.step(inputs, targets, zero_gradients=False).gradient_norm
        squares(outputs, example.targets).mul(3 / example.targets.numel()).backward()
        total = nn.utils.get_total_norm([parameter.grad for parameter in plain.parameters()])
        assert abs(norm - total.item()) < 1e-10
        refused(lambda: made.step(inputs, targets, return_outputs=RANK == 0), "call: step")
        inputs = inputs if inputs is None else inputs * (1e200 if RANK == 0 else 1)
        infinite = made.step(inputs, targets, scale_loss=lambda loss: loss * 1e100)
        assert infinite.skipped and any(not p.grad.isfinite().all() for p in made.parameters())


def other_calls_of_ranks():
    """Each rank calls another method; all learn of both."""
    inputs, targets = samples()
    folder = shared_folder()
    calls = {
        "step": lambda made: made.step(inputs, targets),
        "validate": lambda made: made.validate(inputs, targets),
        "gather": lambda made: made.gather(),
        "save_checkpoint": lambda made: made.save_checkpoint(folder),
        "save_checkpoint with wait=False": lambda made: made.save_checkpoint(folder, wait=False),
        "load_checkpoint": lambda made: made.load_checkpoint(folder),
        "cp.Muon": cp.Muon,
        "cp.Muon.step": lambda made: optimizer.step(),
    }
    made = pipeline(schedule=cp.schedule("chimera", 2, 4))
    optimizer = cp.Muon(made)
    made.step(inputs, targets)
    for one, other in zip(calls, [*list(calls)[1:], "step"], strict=True):
        own = (one, other)[RANK]
        words = f"call: {one} on rank 0, but {other} on rank 1; all ranks must give the same"
        refused(lambda own=own: calls[own](made), words, cp.ConfigError)
    save = lambda: made.save_checkpoint(f"{folder}{RANK}")
    refused(save, f"folder: {folder}0 on rank 0, but {folder}1 on rank 1; all ranks must give the same", cp.ConfigError)
    for call in (made.save_checkpoint, made.load_checkpoint):
        own = {"optimizer": optimizer} if RANK else {}
        refused(lambda call=call, own=own: call(folder, **own), "optimizer: NoneType on rank 0, but Muon on rank 1")
    wrong = (lambda: made.step(inputs[:2], targets)) if RANK == 0 else made.gather
    refused(wrong, "inputs: 2 samples, but a step of this process takes 4")
    made.step(inputs, targets, optimizer=optimizer)
    optimizer.step()
    made.gather()


def two_pipelines_over_the_same_layers():
    """Another placement needs the values that other processes have trained."""
    layers = perceptron(4).layers
    plain = nn.Sequential(*copy.deepcopy(layers))
    first = pipeline(layers)
    moved = cp.Schedule(["1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3", "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"])
    second = pipeline(layers, moved)
    words = ": another pipeline has trained it in another process, so its values here are old; call gather()"
    for model in (first, second, pipeline(layers, cp.schedule("chimera", 2, 4)), first, second):
        model.step(*samples())  # Without an update, values stay
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (plain, first, second)]

    def train(model, optimizer):
        loss, _ = plain_step(plain, optimizers[0], inputs, targets)
        assert abs(model.step(inputs, targets, optimizer=optimizer).loss - loss) < 1e-12

    for _ in range(2):
        inputs, targets = samples()
        train(first, optimizers[1])
        refused(lambda: second.step(inputs, targets), words)
        refused(lambda: second.validate(inputs, targets), words)
        refused(lambda: second.gather(), words)
        refused(lambda: pipeline(layers, moved), words)
        pipeline(layers).step(inputs, targets)
        first.gather()
        train(second, optimizers[2])
        refused(lambda: first.step(inputs, targets), words)
        second.gather()
    train(pipeline(layers, moved), optimizers[2])


def dropout_as_on_threads():
    """Processes drop as rank threads do, also in replicas, in recomputed stages and after a checkpoint of threads."""
    folder, told = shared_folder(), [None]
    batches = [samples() for _ in range(4)]
    options = {"recompute": [0]}

    def train(made, optimizer, steps):
        return [made.step(*batch, optimizer=optimizer).loss for batch in steps]

    def trainer(schedule, **more):
        torch.manual_seed(5)
        layers = [nn.Sequential(*perceptron(4).layers[:1], nn.Dropout(0.3)) for _ in range(3)]
        layers.insert(1, Later(6, 6).double())
        made = cp.Pipeline(layers, squares, cp.schedule(schedule, 2, 4), **options, **more)
        return made, torch.optim.SGD(made.parameters(), lr=0.01, momentum=0.9)

    if RANK == 0:
        with mock.patch.object(cp._processes, "place", lambda: (0, 1)):  # Rank threads
            made, optimizer = trainer("chimera")
            told = [train(made, optimizer, batches[:2])]
            made.save_checkpoint(folder, optimizer=optimizer)
            told[0] += train(made, optimizer, batches[2:])
    torch.distributed.broadcast_object_list(told)
    for schedule in ("1f1b", "chimera", "chimera-zb", "zb-h1"):
        made, optimizer = trainer(schedule)
        for found, expected in zip(train(made, optimizer, batches), told[0], strict=True):
            assert abs(found - expected) < 1e-12, schedule
        torch.manual_seed(RANK)
        made, optimizer = trainer(schedule)
        made.load_checkpoint(folder, optimizer=optimizer)
        for found, expected in zip(train(made, optimizer, batches[2:]), told[0][2:], strict=True):
            assert abs(found - expected) < 1e-12, schedule


def calls_of_other_pipelines():
    """Ranks that wait in different calls find each other: of two pipelines, and of one that only rank 0 makes."""
    made = [pipeline(), pipeline()]
    for each in made:
        each.step(*samples())
    cp._waiting.SECONDS = 0.1
    number = made[0]._processes._pipeline
    words = f"call: step of pipeline {number} on rank 0, but step of pipeline {number + 1} on rank 1; all ranks must"
    refused(lambda: made[RANK].step(*samples()), words, cp.ConfigError)
    made = pipeline()
    call = pipeline if RANK == 0 else lambda: made.validate(*samples())
    refused(call, "call: cp.Pipeline on rank 0, but validate on rank 1; all ranks must give the same", cp.ConfigError)


def a_rank_without_trained_parameters():
    """Its optimizer has nothing to update."""
    layers = perceptron(4).layers
    pair = Pair([layer.requires_grad_(index > 1) for index, layer in enumerate(layers)], "1f1b", partition=[2, 2])
    pair.step(*samples())
    assert bool(dict(pair.pipeline.named_parameters())) == (RANK == 1)


OF_RANKS = [different_arguments, equal_buffers, changed_copies_are_found, planned_alike, other_samples]
OF_RANKS += [equal_samples_of_groups, scaled_alike, resumed_with_dropout, dropout_as_on_threads, other_calls_of_ranks]
OF_RANKS += [a_rank_without_trained_parameters, two_pipelines_over_the_same_layers, sharded_tensors, gathered_types]
OF_RANKS += [the_surface_of_torchs_schedules, a_caught_exception_lets_all_ranks_go_on]
OF_RANKS += [calls_of_other_pipelines]  # The last: afterwards ranks have made different numbers of pipelines


def main():
    torch.set_num_threads(1)
    for case in CASES:
        for schedule in SCHEDULES:
            torch.manual_seed(3)
            case(schedule)
    for case in OF_RANKS:
        torch.manual_seed(3)
        case()


if __name__ == "__main__":
    main()
