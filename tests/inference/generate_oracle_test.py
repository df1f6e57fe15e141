"""`chimera generate` continues prompts as `generate` of transformers does, token by token.

Usage: generate_oracle_test.py CHIMERA [CLASS.TEST...]
"""

import json
import sys
import unittest

import oracles

torch, transformers, tokenizers = oracles.require("torch", "transformers", "tokenizers")
import hugging_face  # noqa: E402

SIZES = dict(layers=4, hidden=48, heads=4, feed_forward=80, vocabulary=259, positions=64, norm_epsilon=1e-5)
LLAMA = SIZES | dict(family="llama", key_value_heads=2, head_size=20, attention_bias="none", tied=False)
CASES = {
    "gpt2": SIZES | dict(family="gpt2", tied=True),
    "gpt2-untied": SIZES | dict(family="gpt2", tied=False),
    "llama": LLAMA | {"class": "Llama"},
    "llama3": LLAMA | {"class": "Llama", "tied": True, "attention_bias": "all",
                       "rope_scaling": {"type": "llama3", "factor": 8.0, "low_frequency_factor": 1.0,
                                        "high_frequency_factor": 4.0, "original_positions": 16}},
    "linear": LLAMA | {"class": "Llama", "key_value_heads": 1,
                       "rope_scaling": {"type": "linear", "factor": 3.0}},
    "mistral": LLAMA | {"class": "Mistral", "sliding_window": 64},
    "qwen2": LLAMA | {"class": "Qwen2", "head_size": 12, "attention_bias": "qkv"},
    "qwen3": LLAMA | {"class": "Qwen3", "query_key_norm": True, "tied": True},
}
PROMPTS = ([7], [1, 2, 3], list(range(200, 240)))


def comma(ids):
    return ",".join(map(str, ids))


class GenerateOracleTest(oracles.OracleTest):
    def setUp(self):
        super().setUp()
        torch.manual_seed(11)

    def save(self, name, end=None):
        """A random model and its folder; `end`: its eos_token_id."""
        model = hugging_face.build(CASES[name], torch.float32)
        model.config.eos_token_id = model.config.bos_token_id = None
        model.generation_config = transformers.GenerationConfig(eos_token_id=end, use_cache=True)
        path = self.folder / name
        model.save_pretrained(path)
        return model, path

    def said(self, *words):
        prompts = json.loads(self.chimera("generate", *words, "--format", "json"))["prompts"]
        return [prompt["ids"] for prompt in prompts]

    def expected(self, model, ids, tokens):
        """Of transformers' generate, greedily, and that no two scores were too near each other to compare."""
        prompt = torch.tensor([ids])
        output = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens, do_sample=False,
                                pad_token_id=0, return_dict_in_generate=True, output_scores=True)
        for scores in output.scores:
            best = scores[0].topk(2).values
            self.assertGreater(float(best[0] - best[1]), 1e-4)
        return output.sequences[0, len(ids):].tolist()

    def test_greedy_tokens_are_those_of_transformers(self):
        for name in CASES:
            with self.subTest(name):
                model, path = self.save(name)
                flags = [word for ids in PROMPTS for word in ("--prompt-ids", comma(ids))]
                expected = [self.expected(model, ids, 24) for ids in PROMPTS]
                self.assertEqual(self.said("--from", path, *flags, "--tokens", 24), expected)
                self.assertGreater(len(set(expected[0])), 2, "a model that repeats itself shows little")

    def test_stages_say_the_same(self):
        for name in ("gpt2", "qwen3"):
            model, path = self.save(name)
            for stages in (2, 4):
                with self.subTest(name, stages=stages):
                    ids = self.said("--from", path, "--prompt-ids", comma(PROMPTS[1]), "--tokens", 24, "--stages", stages)
                    self.assertEqual(ids, [self.expected(model, PROMPTS[1], 24)])

    def test_ends_where_transformers_ends(self):
        model, path = self.save("llama")
        whole = self.expected(model, PROMPTS[1], 24)
        for end in (whole[9], [250, whole[5]]):
            with self.subTest(end):
                model.generation_config.eos_token_id = end
                model.save_pretrained(path)
                expected = self.expected(model, PROMPTS[1], 24)
                self.assertLess(len(expected), 24)
                self.assertEqual(self.said("--from", path, "--prompt-ids", comma(PROMPTS[1]), "--tokens", 24), [expected])

    def check_rules(self, model, path, end, usual, rules):
        model.generation_config = transformers.GenerationConfig(eos_token_id=end, use_cache=True, **rules)
        model.save_pretrained(path)
        expected = self.expected(model, PROMPTS[1], 24)
        self.assertNotEqual(expected, usual, "rules without effect show nothing")
        for stages in (1, 2):
            words = ("--from", path, "--prompt-ids", comma(PROMPTS[1]), "--tokens", 24, "--stages", stages)
            self.assertEqual(self.said(*words), [expected])

    def test_rules_of_generation_config_are_those_of_transformers(self):
        model, path = self.save("llama")
        usual = self.expected(model, PROMPTS[1], 24)
        end = usual[9]
        usual = usual[:usual.index(end) + 1]
        tokens = len(usual)
        for rules in (dict(repetition_penalty=0.7), dict(suppress_tokens=[usual[0], usual[3]]),
                      dict(begin_suppress_tokens=usual[:1]), dict(bad_words_ids=[[usual[2]], usual[4:6], [end]]),
                      dict(bad_words_ids=[PROMPTS[1] + usual[:1], [9, *PROMPTS[1], usual[0]]]),
                      dict(min_new_tokens=tokens + 3), dict(min_length=tokens + 2 + len(PROMPTS[1])),
                      dict(repetition_penalty=1.2, no_repeat_ngram_size=2, suppress_tokens=usual[1:2],
                           min_new_tokens=20, bad_words_ids=[[250], [251, 252]])):
            with self.subTest(rules):
                self.check_rules(model, path, end, usual, rules)

    def test_rules_against_repetition_are_those_of_transformers(self):
        model, path = self.save("gpt2")
        with torch.no_grad():  # Each token makes itself likely, so that texts repeat
            model.transformer.wte.weight *= 4
        model.save_pretrained(path)
        usual = self.expected(model, PROMPTS[1], 24)
        self.assertLess(len(set(usual)), 12)
        for rules in (dict(repetition_penalty=1.4), dict(no_repeat_ngram_size=1), dict(no_repeat_ngram_size=3)):
            with self.subTest(rules):
                self.check_rules(model, path, None, usual, rules)

    def test_a_single_likeliest_token_is_the_greedy_one(self):
        model, path = self.save("gpt2")
        for flags in (("--top-k", 1), ("--top-p", 1e-6)):
            words = ("--from", path, "--prompt-ids", "1,2", "--tokens", 12, "--temperature", 0.7, *flags)
            self.assertEqual(self.said(*words), [self.expected(model, [1, 2], 12)])

    def test_draws_are_as_frequent_as_transformers_probabilities(self):
        """The tokens that processors of transformers leave are drawn, each about as often as it should be."""
        model, path = self.save("gpt2")
        scores = model(torch.tensor([[5, 6]])).logits[0, -1].detach()
        temperature = float(scores.std())  # so that a few dozen tokens are likely
        processors = transformers.LogitsProcessorList([transformers.TemperatureLogitsWarper(temperature),
                                                       transformers.TopKLogitsWarper(8),
                                                       transformers.TopPLogitsWarper(0.9)])
        probabilities = processors(torch.tensor([[5, 6]]), scores[None].clone())[0].softmax(0)
        kept = probabilities.nonzero().flatten().tolist()
        draws = 2000
        flags = ["--prompt-ids", "5,6"] * draws
        said = self.said("--from", path, *flags, "--tokens", 1, "--temperature", temperature, "--top-k", 8, "--top-p", 0.9)
        tokens = [ids[0] for ids in said]
        self.assertEqual(sorted(set(tokens)), kept)
        chi_square = sum((tokens.count(t) - draws * float(probabilities[t])) ** 2 / (draws * float(probabilities[t]))
                         for t in kept)
        self.assertLess(chi_square, 30)  # at most 7 degrees of freedom: one seed in ten thousand is above

    def test_text_goes_through_the_folders_tokenizer(self):
        model, path = self.save("gpt2")
        tokenizer = tokenizers.ByteLevelBPETokenizer()
        tokenizer.train_from_iterator(["the king went to his house and spoke"] * 3, vocab_size=259, min_frequency=1)
        tokenizer.save(str(path / "tokenizer.json"))
        text = "the king spoke"
        expected = self.expected(model, tokenizer.encode(text).ids, 20)
        words = ("generate", "--from", path, "--prompt", text, "--tokens", 20)
        found = json.loads(self.chimera(*words, "--format", "json"))
        self.assertEqual(found, {"prompts": [{"ids": expected, "text": tokenizer.decode(expected)}]})
        self.assertEqual(self.chimera(*words), tokenizer.decode(expected) + "\n")


unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
