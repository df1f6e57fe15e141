"""Hugging Face models on rank threads, compared with the unpipelined model."""

import pytest
import torch
from equality import TOLERANCE
from hugging_face_models import gpt2, llama
from models import cross_entropy

import chimerapipe as cp


@pytest.mark.parametrize("name", ["1f1b", "chimera", "zb-h1", "zb-v"])
def test_gradients_are_those_of_the_model_itself(name):
    """GPT-2; test_equality.py tests Llama and BERT."""
    model = gpt2()
    ids, targets = torch.randint(31, (8, 5)), torch.randint(31, (8, 5))
    loss = cross_entropy(model(ids).logits, targets) / targets.numel()
    loss.backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    schedule = cp.schedule(name, 2, 2)
    pipeline = cp.Pipeline(model, cross_entropy, schedule, micro_batch_size=2, data_parallel=2)
    step = pipeline.step(ids, targets)
    assert step.loss == pytest.approx(loss.item(), rel=TOLERANCE)
    for name, parameter in model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=TOLERANCE, msg=name)


def test_a_tied_matrix_and_unknown_models_are_refused():
    with pytest.raises(Exception, match="tie_word_embeddings=False"):
        cp.layers_of(llama(tie_word_embeddings=True))
    with pytest.raises(Exception, match="expected LlamaForCausalLM.*not Linear"):
        cp.layers_of(torch.nn.Linear(2, 2))


def test_a_model_is_profiled_by_its_layers():
    found = cp.profile(llama(), torch.randint(31, (2, 5)), repeats=1)
    assert len(found) == 4 and found[3].weights == 16 * 31 * 8 + 16 * 8  # Head and norm, in float64
    best = cp.plan(found, workers=2, mini_batch=4, stages=[2], memory=1e9).best
    assert sum(best.partition) == 4
    with pytest.raises(Exception, match="expected LlamaForCausalLM.*not Linear"):
        cp.profile(torch.nn.Linear(2, 2), torch.randn(2, 2))
    cut = cp.partition(llama(), 2, torch.randint(31, (2, 5)), memory=1e9)
    assert sum(cut.layers) == 4 and cut.layer_costs[3].weights == found[3].weights
