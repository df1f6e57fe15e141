"""Small Hugging Face models in float64."""

import os

import pytest

if os.environ.get("CHIMERA_NEED_ORACLES"):
    import transformers
else:
    transformers = pytest.importorskip("transformers")

SIZES = {"vocab_size": 31, "num_hidden_layers": 2, "num_attention_heads": 2, "tie_word_embeddings": False}


def llama(**sizes):
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_key_value_heads": 1, **SIZES, **sizes}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes)).double().train()


def bert(**sizes):
    quiet = {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0}
    config = transformers.BertConfig(hidden_size=16, intermediate_size=24, **quiet, **{**SIZES, **sizes})
    return transformers.BertForMaskedLM(config).double().train()


def gpt2():
    quiet = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "tie_word_embeddings": False}
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=31, n_positions=16, **quiet)
    return transformers.GPT2LMHeadModel(config).double().train()
