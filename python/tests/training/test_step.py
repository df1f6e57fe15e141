"""What users of schedule.step and schedule.eval need: outputs, given micro-batches, loss arguments, accumulation."""

import copy
from types import SimpleNamespace

import pytest
import torch
from models import backward_of_mean, perceptron, squares
from torch import nn
from users import SCHEDULES, refused, samples

import chimerapipe as cp


def made(schedule="1f1b", loss=squares, **options):
    example = perceptron(8)
    plain = nn.Sequential(*copy.deepcopy(example.layers))
    schedule = cp.schedule(schedule, 2, 4)
    pipeline = cp.Pipeline(example.layers, loss, schedule, micro_batch_size=2, **options)
    return SimpleNamespace(plain=plain, pipeline=pipeline, inputs=example.inputs, targets=example.targets)


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def expect_gradients(pipeline, plain):
    expected = dict(plain.named_parameters())
    for name, parameter in pipeline.named_parameters():
        close(parameter.grad, expected[name].grad)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_outputs_are_those_of_the_whole_model(schedule):
    each = made(schedule, recompute=[1] if schedule == "1f1b" else False)
    outputs = each.plain(each.inputs)
    step = each.pipeline.step(each.inputs, each.targets, return_outputs=True)
    close(step.outputs, outputs)
    losses = [squares(outputs[first : first + 2], each.targets[first : first + 2]).item() for first in range(0, 8, 2)]
    assert step.losses == pytest.approx(losses, rel=1e-12)
    assert not step.outputs.requires_grad
    assert each.pipeline.step(each.inputs, each.targets).outputs is None
    close(each.pipeline.predict(each.inputs), outputs)
    loss, validated = each.pipeline.validate(each.inputs, each.targets, return_outputs=True)
    close(validated, outputs)
    assert loss == pytest.approx(sum(losses) / each.targets.numel(), rel=1e-12)
    assert each.pipeline.validate(each.inputs, each.targets) == loss


def test_a_prediction_may_come_first():
    each = made("chimera")
    close(each.pipeline.predict(each.inputs), each.plain(each.inputs))
    backward_of_mean(each.plain, each.inputs, each.targets)
    each.pipeline.step(each.inputs, each.targets)
    expect_gradients(each.pipeline, each.plain)


class Counts(nn.Module):
    """Returns a tensor and a number of each micro-batch."""

    def forward(self, x):
        return {"output": x, "largest": x.max()}


def test_outputs_with_numbers_and_targets_of_several_tensors():
    example = perceptron(4)
    layers = [*example.layers, Counts()]
    loss = lambda output, wanted: (
        ((output["output"] - wanted["targets"]).square().sum(1) * wanted["weights"]).sum())
    pipeline = cp.Pipeline(layers, loss, cp.schedule("1f1b", 2, 4), count=lambda wanted: len(wanted["targets"]))
    wanted = {"targets": example.targets, "weights": torch.rand(4).double()}
    step = pipeline.step(example.inputs, wanted, return_outputs=True)
    outputs = nn.Sequential(*example.layers)(example.inputs)
    close(step.outputs, {"output": outputs, "largest": outputs.amax(1)})
    expected = ((outputs - example.targets).square().sum(1) * wanted["weights"]).sum() / 4
    assert step.loss == pytest.approx(expected.item(), rel=1e-12)
    pipeline = cp.Pipeline(layers, loss, cp.schedule("1f1b", 2, 4))
    refused(lambda: pipeline.step(example.inputs, wanted), "count: the targets are a dict; give count=")


class Rows(nn.Module):
    def forward(self, values):
        return values["rows"].mean(1)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_micro_batches_that_are_already_cut(schedule):
    example = perceptron(8)
    pipeline = cp.Pipeline([Rows(), *example.layers], squares, cp.schedule(schedule, 2, 4))
    cuts = [{"rows": torch.randn(2, length, 6).double(), "number": length} for length in (3, 1, 4, 2)]
    wanted = [torch.randn(2, 6).double() for _ in cuts]
    step = pipeline.step(cp.MicroBatches(cuts), cp.MicroBatches(wanted), return_outputs=True)
    plain = nn.Sequential(Rows(), *copy.deepcopy(example.layers))
    outputs = [plain(cut) for cut in cuts]
    loss = sum(map(squares, outputs, wanted)) / 48
    loss.backward()
    assert step.loss == pytest.approx(loss.item(), rel=1e-12)
    close(step.outputs, outputs)
    expect_gradients(pipeline, plain)
    close(pipeline.predict(cp.MicroBatches(cuts)), outputs)
    for given in (cuts[:3], [cut["number"] for cut in cuts]):
        words = "micro-batch has no tensor" if len(given) == 4 else "3 micro-batches, but a step of this process takes"
        refused(lambda given=given: pipeline.step(cp.MicroBatches(given), cp.MicroBatches(wanted)), words)


class Order(nn.Linear):
    """Drops numbers, and notes the micro-batches in the order of its forwards."""

    def forward(self, x):
        self.seen.append(x[0, 0].item())
        return nn.functional.dropout(super().forward(x), 0.3)


@pytest.mark.parametrize(("schedule", "width"), [("1f1b", 1), ("chimera-zb", 1), ("zb-h1", 2)])
def test_work_permutes_micro_batches_and_changes_no_result(schedule, width):
    """Also of tensors, with several groups on threads."""
    layers = [Order(6, 6).double() for _ in range(2)]
    for layer in layers:
        layer.seen = []
    inputs, targets = samples(8 * width)
    work = [1, 1, 1, 9, 1, 4, 1, 1] * width

    def run(**options):
        adapt = {"adapt": options.pop("adapt")} if "adapt" in options else {}
        torch.manual_seed(3)
        model = cp.Pipeline(layers, squares, cp.schedule(schedule, 2, 8), data_parallel=width, **adapt)
        model.predict(inputs)
        layers[0].seen.clear()
        given = map(cp.MicroBatches, (inputs.split(1), targets.split(1))) if adapt else (inputs, targets)
        step = model.step(*given, return_outputs=True, **options)
        outputs = torch.cat(step.outputs) if adapt else step.outputs
        return step, outputs, [p.grad.clone() for p in model.parameters()], list(layers[0].seen), model

    expected, *numbers, order, model = run()
    for options in ({"adapt": "documents"}, {"adapt": "none"}, {}):
        step, *found, permuted, _ = run(work=work, **options)
        assert (step.loss, step.gradient_norm) == pytest.approx((expected.loss, expected.gradient_norm), rel=1e-12)
        assert step.losses == pytest.approx(expected.losses, rel=1e-12)
        close(found, numbers)
        if width == 1 and schedule == "1f1b":  # Its forwards on stage 0 are in one thread
            assert (permuted != order) == (options.get("adapt") != "none")
    assert model.validate(inputs, targets, return_outputs=True)[1].shape == inputs.shape
    for given, words in [
        (work[1:], f"work: {8 * width - 1} numbers for the {8 * width} micro-batches of this process"),
        ([*work[1:], -1], f"work: micro-batch {8 * width - 1} has -1.0; give a finite number of at least 0"),
        ([float("nan"), *work[1:]], "work: micro-batch 0 has nan"),
        ([float("inf"), *work[1:]], "work: micro-batch 0 has inf"),
        (["a", *work[1:]], "work: give a number for each micro-batch"),
    ]:
        refused(lambda given=given: model.step(inputs, targets, work=given), words, cp.ConfigError)
    model.step(inputs, targets, work=work)  # It stays usable


def test_what_cannot_be_adapted_is_refused():
    each = made("1f1b", reduction="canonical")
    refused(lambda: each.pipeline.step(each.inputs, each.targets, work=[1, 2, 3, 4]), "work: reduction='canonical'")
    for given, words in (("all", "as `chimera train --adapt all` does"), ("fast", "got 'fast'; give 'documents' or")):
        refused(lambda given=given: made(adapt=given), words, cp.ConfigError)


def test_arguments_of_the_loss():
    weighted = lambda output, target, weight=1.0, power=2: (weight * (output - target).abs() ** power).sum()
    each = made("chimera", weighted)
    for given in ({"weight": 3.0}, {"power": 4, "weight": torch.rand(6).double()}, {}):
        step = each.pipeline.step(each.inputs, each.targets, loss_kwargs=given)
        expected = weighted(each.plain(each.inputs), each.targets, **given) / each.targets.numel()
        assert step.loss == pytest.approx(expected.item(), rel=1e-12)
        validated = each.pipeline.validate(each.inputs, each.targets, loss_kwargs=given)
        assert validated == pytest.approx(step.loss, rel=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "chimera-zb"])
@pytest.mark.parametrize("ties", [False, True])
def test_gradients_add_up_over_steps(schedule, ties):
    example = perceptron(4)
    if ties:
        example.layers[3][0].weight = example.layers[0][0].weight
    plain = nn.Sequential(*copy.deepcopy(example.layers))
    pipeline = cp.Pipeline(example.layers, squares, cp.schedule(schedule, 2, 4))
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in (plain, pipeline)]
    for _ in range(2):
        optimizers[0].zero_grad()
        for number in range(3):
            inputs, targets = samples()
            backward_of_mean(plain, inputs, targets, factor=1 / 3)
            last = number == 2
            step = pipeline.step(
                inputs, targets, scale_loss=1 / 3, zero_gradients=number == 0, clip=0.01 if last else 0.0,
                optimizer=optimizers[1] if last else None,
            )
        norm = nn.utils.clip_grad_norm_(plain.parameters(), 0.01).item()
        assert step.gradient_norm == pytest.approx(norm, rel=1e-9) and norm > 0.01
        optimizers[0].step()
        for name, parameter in pipeline.named_parameters():
            torch.testing.assert_close(parameter, dict(plain.named_parameters())[name], rtol=1e-9, atol=1e-10)


def test_the_recipe_of_a_grad_scaler():
    """One of four steps has an infinite gradient: the scaler skips it on the rank whose gradients are finite too."""
    each = made("1f1b")
    optimizer = torch.optim.SGD(each.pipeline.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    for number in range(4):
        before = [parameter.detach().clone() for parameter in each.pipeline.parameters()]
        inputs = each.inputs * (1e300 if number == 2 else 1)
        step = each.pipeline.step(inputs * inputs if number == 2 else inputs, each.targets, scale_loss=scaler.scale)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(each.pipeline.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        assert step.skipped == (number == 2)
        same = all(map(torch.equal, before, each.pipeline.parameters()))
        assert same == step.skipped
    assert scaler.get_scale() == 32.0
    refused(lambda: each.pipeline.step(each.inputs, each.targets, scale_loss="2"), "scale_loss: got '2'")
    both = {"scaler": scaler, "scale_loss": 2.0, "optimizer": optimizer}
    refused(lambda: each.pipeline.step(each.inputs, each.targets, **both), "give one of both")
