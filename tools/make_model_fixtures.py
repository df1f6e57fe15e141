#!/usr/bin/env python3
"""Writes tests/model/fixtures/*.safetensors: small random models of Hugging Face `transformers`.

Each file has inputs, logits, loss and gradients in float64, so that the C++ tests need no Python.

    tools/oracles
    .venv-oracles/bin/python tools/make_model_fixtures.py

Tensors: weights/NAME, gradients/NAME (names as in src/model_config/parameters.h), tokens, targets, logits, loss; BERT
also has token_types, attention_mask, next_sentence, sentence_logits. Metadata: the model file and the package versions.
"""

import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests" / "support"))
import hugging_face  # noqa: E402

FIXTURES = ROOT / "tests" / "model" / "fixtures"
# All sizes differ, so that no two can be confused.
SIZES = dict(layers=2, hidden=8, heads=2, feed_forward=20, vocabulary=23, positions=9)
LLAMA = dict(family="llama", layers=2, hidden=8, heads=4, feed_forward=10, vocabulary=19, positions=16, tied=False,
             norm_epsilon=1e-5, key_value_heads=2, head_size=6, rope_theta=100.0, attention_bias="none",
             query_key_norm=False)
LLAMA3 = dict(type="llama3", factor=8.0, low_frequency_factor=0.2, high_frequency_factor=0.6, original_positions=6)
CASES = {
    "gpt2_untied": dict(family="gpt2", **SIZES, tied=False),
    "gpt2_tied": dict(family="gpt2", **SIZES, tied=True),
    "bert_untied": dict(family="bert", **SIZES, tied=False),
    "bert_tied": dict(family="bert", **SIZES, tied=True),
    "llama": LLAMA | {"class": "Llama", "attention_bias": "all", "feed_forward_bias": True,
                      "rope_scaling": dict(type="linear", factor=3.0)},
    "llama3": LLAMA | {"class": "Llama", "tied": True, "rope_scaling": LLAMA3},
    "mistral": LLAMA | {"class": "Mistral", "sliding_window": 16, "key_value_heads": 1},
    "qwen2": LLAMA | {"class": "Qwen2", "attention_bias": "qkv", "key_value_heads": 4},
    "qwen3": LLAMA | {"class": "Qwen3", "query_key_norm": True, "tied": True, "norm_epsilon": 1e-6},
}


def main():
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name, case in CASES.items():
        torch.manual_seed(20210914)
        model = hugging_face.build(case, torch.float64)
        inputs = hugging_face.inputs_of(case, sequences=3, length=7)
        results = hugging_face.run(model, inputs)
        path = FIXTURES / f"{name}.safetensors"
        hugging_face.save(path, case, torch.float64, inputs, hugging_face.weights_of(model), results)
        print(f"{path.name}: {path.stat().st_size} bytes, loss {results['loss'].item():.6f}")


if __name__ == "__main__":
    main()
