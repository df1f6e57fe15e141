"""Canonical reduction: equal bits for all schedules, depths and widths."""

import pytest
import torch
from equality import SCHEDULES
from models import perceptron, squares
from test_pipeline import pipeline_of

import chimerapipe as cp


def bits(name, width, stages=2, clip=0.0, reduction="canonical", **options):
    torch.manual_seed(7)
    example = perceptron(samples=16, layers=8)
    example = type(example)([layer.float() for layer in example.layers], example.loss, example.inputs, example.targets)
    options |= {"micro_batch_size": 2, "data_parallel": width, "reduction": reduction}
    pipeline = pipeline_of(example, name, stages, 8 // width, **options)
    step = pipeline.step(example.inputs.float(), example.targets.float(), clip=clip)
    return step, {name: parameter.grad.clone() for name, parameter in pipeline.named_parameters()}


def expect_equal(found, expected):
    assert found[0] == expected[0]
    for name, gradient in expected[1].items():
        assert torch.equal(found[1][name], gradient), name


def test_every_schedule_gives_the_bits_of_every_other_on_one_and_two_groups():
    expected = bits("1f1b", width=1)
    for name in SCHEDULES:
        for width in (1, 2):
            expect_equal(bits(name, width), expected)


def test_depth_recomputation_and_clipping_leave_the_bits():
    expected = bits("1f1b", width=1, clip=0.01)
    assert expected[0].gradient_norm > 0.01
    expect_equal(bits("chimera", width=1, stages=4, clip=0.01), expected)
    expect_equal(bits("zb-h1", width=2, clip=0.01, recompute=True), expected)
    _, natural = bits("chimera", width=2, stages=4, clip=0.01, reduction="natural")
    assert any(not torch.equal(natural[name], gradient) for name, gradient in expected[1].items())


def test_only_canonical_pipelines_use_deterministic_kernels():
    for reduction in ("canonical", "natural"):
        example = perceptron(samples=4)
        seen = []

        def loss(output, target, example=example, seen=seen):
            only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
            seen.append((torch.are_deterministic_algorithms_enabled(), only_warns))
            return example.loss(output, target)

        pipeline = cp.Pipeline(example.layers, loss, cp.schedule("1f1b", 2, 4), reduction=reduction)
        pipeline.step(example.inputs, example.targets)
        assert set(seen[-4:]) == {(reduction == "canonical", False)}
        assert not torch.are_deterministic_algorithms_enabled()


def test_refusals():
    with pytest.raises(Exception, match="'natrual' is none.*canonical|reduction.*natural"):
        cp.Pipeline(perceptron(4).layers, lambda x, y: x, cp.schedule("1f1b", 2, 4), reduction="natrual")


def test_stages_that_share_a_parameter_are_refused_by_name():
    layers, schedule = perceptron(4).layers, cp.schedule("1f1b", 2, 4)
    layers[1][0].weight = layers[0][0].weight
    cp.Pipeline(layers, squares, schedule, partition=[2, 2], reduction="canonical")
    with pytest.raises(cp.ConfigError, match="canonical: stages share the parameter 0.0.weight; use natural$"):
        cp.Pipeline(layers, squares, schedule, partition=[1, 3], reduction="canonical")
