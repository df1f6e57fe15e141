"""Compares the loss of `chimera evaluate` with transformers, for the same windows of the same file.

Usage: evaluate_test.py CHIMERA [CLASS.TEST...]
"""

import json
import random
import struct
import sys
import unittest

import oracles

torch, transformers = oracles.require("torch", "transformers")
oracles.require("safetensors")
import hugging_face  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

# Both add in different orders.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
SIZES = dict(layers=3, vocabulary=300, positions=40, feed_forward=80, norm_epsilon=1e-5)
GPT2 = dict(family="gpt2", hidden=48, heads=4, **SIZES)
LLAMA = dict(family="llama", hidden=48, heads=4, key_value_heads=2, head_size=20, rope_theta=1e4,
             attention_bias="none", **SIZES)
CASES = {
    "gpt2-tied": GPT2 | dict(tied=True),
    "gpt2-untied": GPT2 | dict(tied=False),
    "llama": LLAMA | {"class": "Llama", "tied": False, "rope_scaling": dict(
        type="llama3", factor=8.0, low_frequency_factor=1.0, high_frequency_factor=4.0, original_positions=32)},
    "qwen3": LLAMA | {"class": "Qwen3", "tied": True, "query_key_norm": True},
}


def sentences(words):
    generator = random.Random(7)
    known = ["the", "king", "went", "to", "his", "house", "and", "spoke"]
    return " ".join(generator.choice(known) + ("." if i % 9 == 8 else "") for i in range(words))


def loss_of(model, tokens, length):
    """Returns the mean loss over windows of length + 1 tokens that start every `length` tokens, in float64."""
    sums = 0.0
    starts = range(0, len(tokens) - length, length)
    with torch.no_grad():
        for start in starts:
            window = torch.tensor(tokens[start:start + length + 1])
            logits = model(input_ids=window[None, :-1]).logits[0].double()
            sums += cross_entropy(logits, window[1:], reduction="sum").item()
    return sums / (len(starts) * length)


class EvaluateOracleTest(oracles.OracleTest):
    def setUp(self):
        super().setUp()
        torch.set_num_threads(1)
        torch.manual_seed(5)

    def evaluate(self, model, data, length, *flags):
        return json.loads(self.chimera("evaluate", "--from", model, "--data", data, "--sequence", length, "--format",
                                       "json", *flags))

    def test_the_loss_is_that_of_transformers(self):
        tokens = [random.Random(3).randrange(SIZES["vocabulary"]) for _ in range(700)]
        data = self.folder / "tokens.bin"
        data.write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
        for name, case in CASES.items():
            for dtype, tolerance in TOLERANCES.items():
                with self.subTest(name, dtype=dtype):
                    model = hugging_face.build(case, dtype)
                    path = self.folder / f"{name}-{dtype}"
                    model.save_pretrained(path)
                    report = self.evaluate(path, data, 33, "--dtype", str(dtype).removeprefix("torch."),
                                           "--micro-batch-size", 4)
                    expected = loss_of(model, tokens, 33)
                    self.assertEqual(report["tokens"], 699 // 33 * 33)
                    self.assertAlmostEqual(report["loss"], expected, delta=tolerance * expected)

    def test_trained_through_four_stages_and_exported_it_is_still_that_of_transformers(self):
        """Makes a Llama with transformers, trains it with D = 4, and loads the export with transformers."""
        config = transformers.LlamaConfig(
            vocab_size=256, max_position_embeddings=64, hidden_size=48, num_hidden_layers=4, num_attention_heads=4,
            num_key_value_heads=2, intermediate_size=80, bos_token_id=None, eos_token_id=None, pad_token_id=None)
        source, output = self.folder / "made", self.folder / "trained"
        transformers.LlamaForCausalLM(config).save_pretrained(source)
        text = sentences(3000)
        data = self.folder / "text.txt"
        data.write_text(text)
        self.chimera("train", "--from", source, "--data", data, "--schedule", "chimera", "--stages", 4,
                     "--micro-batches", 4, "--micro-batch-size", 2, "--sequence", 32, "--steps", 12, "--learning-rate",
                     3e-3, "--export", output)
        losses = {}
        for folder in (source, output):
            report = self.evaluate(folder, data, 64)
            model = transformers.LlamaForCausalLM.from_pretrained(folder).eval()
            losses[folder] = loss_of(model, list(text.encode()), 64)
            self.assertAlmostEqual(report["loss"], losses[folder], delta=1e-5)
        self.assertLess(losses[output], losses[source] - 1)


unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
