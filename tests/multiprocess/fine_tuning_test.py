"""Going on from a folder of `transformers` on text of one's own: with the folder's tokenizer, or from files of tokens.

Usage: fine_tuning_test.py CHIMERA [CLASS.TEST...]
"""

import json
import random
import sys
import unittest

import oracles

torch, transformers, tokenizers = oracles.require("torch", "transformers", "tokenizers")
oracles.require("safetensors")
from safetensors.torch import load_file  # noqa: E402
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers  # noqa: E402

import hugging_face  # noqa: E402

SEQUENCE = 16
SIZES = dict(layers=4, hidden=32, heads=4, feed_forward=64, positions=40, tied=False)
LLAMA = {"class": "Llama", "key_value_heads": 2, "head_size": 8, "norm_epsilon": 1e-5, "attention_bias": "none"}
FAMILIES = {"gpt2": {}, "llama": LLAMA, "bert": {}}


def text():
    """Sentences of words, some of which the tokenizers below have to put together."""
    generator = random.Random(7)
    words = "the king went to his house and spoke unto all the people of Ninive café naïve 1611 twenty-two".split()
    return "".join(" ".join(generator.choices(words, k=9)) + ".\n" for _ in range(500))


def byte_level_bpe():
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([text()], trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer


def word_piece():
    tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator([text()], trainers.WordPieceTrainer(
        vocab_size=90, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    return tokenizer


def is_window(row, ids):
    return any(ids[i:i + len(row)] == row for i in range(len(ids) - len(row) + 1))


class FineTuningOracle(oracles.OracleTest):
    def setUp(self):
        super().setUp()
        self.text = self.folder / "text.txt"
        self.text.write_text(text(), encoding="utf-8")

    def make_folder(self, family):
        """A small random model with a tokenizer of its own."""
        tokenizer = word_piece() if family == "bert" else byte_level_bpe()
        case = {"family": family, **SIZES, "vocabulary": tokenizer.get_vocab_size(), **FAMILIES[family]}
        torch.manual_seed(1)
        model = hugging_face.build(case, torch.float32)
        folder = self.folder / family
        model.save_pretrained(folder)
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
        return model, tokenizer, folder

    def words(self, folder, data):
        return ("--from", folder, "--data", data, "--stages", 2, "--micro-batches", 2, "--micro-batch-size", 2, "--sequence",
                SEQUENCE, "--steps", 3, "--learning-rate", 1e-3)

    def losses(self, name, folder, data, *more):
        metrics = self.folder / f"{name}.jsonl"
        self.chimera("train", *self.words(folder, data), "--validate-every", 3, "--metrics", metrics, *more)
        steps = [json.loads(line) for line in metrics.read_text().splitlines()]
        self.assertEqual(len(steps), 3)
        return [step["loss"] for step in steps] + [steps[-1]["validation_loss"]]

    def test_text_and_files_of_its_tokens_train_alike(self):
        for family in FAMILIES:
            with self.subTest(family):
                _, _, folder = self.make_folder(family)
                expected = self.losses(f"{family}-text", folder, self.text)
                for output_format in ("megatron", "raw"):
                    tokens = self.folder / f"{family}-{output_format}"
                    self.chimera("tokenize", self.text, "--tokenizer", folder, "--output", tokens, "--output-format",
                                     output_format, "--end-of-document", "none")
                    self.assertEqual(self.losses(tokens.name, folder, f"{tokens}.bin"), expected)

    def test_the_first_step_is_that_of_transformers_with_the_same_tokenizer(self):
        for family in FAMILIES:
            with self.subTest(family):
                model, tokenizer, folder = self.make_folder(family)
                batches = self.folder / f"{family}-batches"
                self.chimera("bench", *self.words(folder, self.text), "--export", batches)
                batch = {key: value[0] for key, value in load_file(batches / "batches.safetensors").items()}
                loss = self.losses(family, folder, self.text)[0]
                self.assertAlmostEqual(loss, hugging_face.loss_of(model, batch), delta=1e-5 * loss)
                if family == "bert":
                    continue  # masks and marks stand between the tokens of its samples
                ids = tokenizer.encode(text()).ids
                self.assertTrue(all(is_window(row, ids) for row in batch["tokens"].tolist()))


unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
