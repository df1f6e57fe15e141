"""Models of Hugging Face on rank threads, beside the unpipelined model itself."""

import os

import pytest
import torch
from models import cross_entropy
from test_pipeline import TOLERANCE

import chimerapipe as cp

if os.environ.get("CHIMERA_NEED_ORACLES"):
    import transformers
else:
    transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 31, "num_hidden_layers": 2, "num_attention_heads": 2, "tie_word_embeddings": False}


def llama(**sizes):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_key_value_heads": 1, **SIZES, **sizes}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).double().train()


def bert():
    quiet = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    config = transformers.BertConfig(hidden_size=16, intermediate_size=24, **quiet, **SIZES)
    return transformers.BertForMaskedLM(config).double().train()


def gpt2():
    quiet = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "tie_word_embeddings": False}
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=31, n_positions=16, **quiet)
    return transformers.GPT2LMHeadModel(config).double().train()


@pytest.mark.parametrize("name", ["1f1b", "chimera", "zb-h1", "zb-v"])
@pytest.mark.parametrize("make", [llama, bert, gpt2])
def test_gradients_are_those_of_the_model_itself(make, name):
    model = make()
    ids, targets = torch.randint(31, (8, 5)), torch.randint(31, (8, 5))
    loss = cross_entropy(model(ids).logits, targets) / targets.numel()
    loss.backward()
    expected = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    schedule = cp.schedule(name, 2, 2)
    pipeline = cp.Pipeline(cp.layers_of(model), cross_entropy, schedule, micro_batch_size=2, data_parallel=2)
    step = pipeline.step(ids, targets)
    assert step.loss == pytest.approx(loss.item(), rel=TOLERANCE)
    for name, parameter in model.named_parameters():
        if name in expected:
            torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=TOLERANCE, msg=name)


def test_a_tied_matrix_and_unknown_models_are_refused():
    with pytest.raises(Exception, match="tie_word_embeddings=False"):
        cp.layers_of(llama(tie_word_embeddings=True))
    with pytest.raises(Exception, match="Linear is none of"):
        cp.layers_of(torch.nn.Linear(2, 2))
