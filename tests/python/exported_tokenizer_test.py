"""Compares the tokenizer of an exported folder: AutoTokenizer must give the ids that Chimera trained on.

Usage: exported_tokenizer_test.py CHIMERA [CLASS.TEST...]
"""

import sys
import unittest

import oracles

transformers, _ = oracles.require("transformers", "tokenizers")

TEXTS = ["The king went to his house.", "  two  blanks\n\n\ta tab\r\n", "h\u00e9llo \u4e16\u754c \U0001f40d", "\u0000\u007f\u0120" + 99 * " word",
         "don't 1234 1 2", ""]
SENTENCES = "The king went to his house, and the people went with him. " * 80


class ExportedTokenizerTest(oracles.OracleTest):
    def setUp(self):
        super().setUp()
        self.data = self.folder / "text.txt"
        self.data.write_text(SENTENCES)

    def train(self, model, output, *flags):
        self.chimera("train", "--data", self.data, "--schedule", "none", "--micro-batches", 1, "--sequence", 32,
                     "--steps", 1, *(["--model", model] if model else []), "--export", output, *flags)
        return transformers.AutoTokenizer.from_pretrained(output)

    def ids_of_chimera(self, tokenizer, text):
        if not text:
            return []
        ids = self.chimera("tokenize", "-", "--tokenizer", tokenizer, "--output", "-", input=text)
        return [int(word) for word in ids.split()]

    def assert_encodes_alike(self, tokenizer, folder):
        for text in TEXTS:
            ids = tokenizer.encode(text, add_special_tokens=False)
            self.assertEqual(ids, self.ids_of_chimera(folder, text), repr(text))
            self.assertEqual(tokenizer.decode(ids), text)

    def test_bytes_of_every_family(self):
        for model in ("gpt2-tiny", "llama-tiny", "bert-tiny"):
            with self.subTest(model):
                output = self.folder / model
                tokenizer = self.train(model, output)
                self.assert_encodes_alike(tokenizer, output)
                for text in TEXTS:
                    self.assertEqual(tokenizer.encode(text, add_special_tokens=False), list(text.encode()))

    def test_berts_special_tokens(self):
        tokenizer = self.train("bert-tiny", self.folder / "bert")
        self.assertEqual([tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id,
                          tokenizer.mask_token_id], [256, 257, 258, 259])
        both = tokenizer("a", "b")
        self.assertEqual(both["input_ids"], [257, ord("a"), 258, ord("b"), 258])
        self.assertEqual(tokenizer("a[MASK]")["input_ids"], [257, ord("a"), 259, 258])

    def test_saved_anew_bytes_stay_bytes(self):
        """Resumes training from a folder saved by transformers. Only bytes may be invalid UTF-8."""
        self.data.write_bytes(SENTENCES.encode() + b"\xff")
        for model in ("gpt2-tiny", "bert-tiny"):
            with self.subTest(model):
                first = self.folder / model
                self.train(model, first).save_pretrained(self.folder / "saved")
                (first / "tokenizer.json").write_bytes((self.folder / "saved" / "tokenizer.json").read_bytes())
                self.train(None, self.folder / f"{model}-second", "--from", first)

    def test_a_tokenizer_that_was_given_comes_along(self):
        learned = self.folder / "learned.json"
        self.chimera("tokenizer", "train", "--vocabulary", 300, self.data, "--output", learned)
        for model in ("gpt2-tiny", "llama-tiny"):
            with self.subTest(model):
                output = self.folder / model
                tokenizer = self.train(model, output, "--tokenizer", learned, "--vocabulary", 300)
                self.assertEqual((output / "tokenizer.json").read_bytes(), learned.read_bytes())
                self.assert_encodes_alike(tokenizer, learned)
                again = self.folder / f"{model}-again"
                self.chimera("export", output, "--output", again)
                self.assert_encodes_alike(transformers.AutoTokenizer.from_pretrained(again), learned)

    def test_vocabulary_and_merges_come_along(self):
        source = self.folder / "gpt2"
        source.mkdir()
        learned = self.folder / "learned.json"
        self.chimera("tokenizer", "train", "--vocabulary", 300, self.data, "--output", learned)
        import tokenizers
        tokenizers.Tokenizer.from_file(str(learned)).model.save(str(source))
        tokenizer = self.train("gpt2-tiny", self.folder / "out", "--tokenizer", source / "vocab.json", "--vocabulary", 300)
        self.assert_encodes_alike(tokenizer, source)

    def test_export_adds_a_tokenizer(self):
        output = self.folder / "out"
        self.train("gpt2-tiny", output)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (output / file).unlink()
        self.chimera("export", output, "--output", self.folder / "named", "--tokenizer", "bytes")
        self.assert_encodes_alike(transformers.AutoTokenizer.from_pretrained(self.folder / "named"), "bytes")


unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
