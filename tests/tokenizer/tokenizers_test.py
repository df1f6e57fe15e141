#!/usr/bin/env python3
"""Compares the ids of `chimera tokenize` with those of the Python package tokenizers, for every kind of tokenizer:

  tests/tokenizer/tokenizers_test.py build/chimera --strings 1000000 [--kind llama3]

The strings are random, and those of a list of edges."""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import oracles  # noqa: E402

oracles.require("tokenizers", "transformers")
import oracle_tokenizers  # noqa: E402

BATCH = 50_000


def ids_of_chimera(program, tokenizer, texts, folder):
    lines = folder / "texts.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    run = subprocess.run([program, "tokenize", lines, "--tokenizer", tokenizer, "--output", "-", "--empty", "keep"],
                         stdout=subprocess.PIPE, check=True, text=True)
    return [[int(token) for token in line.split()] for line in run.stdout.splitlines()]


def compare(program, kind, tokenizer, path, strings, folder):
    rng = random.Random(strings)
    tried, texts = 0, list(oracle_tokenizers.EDGES)
    while texts:
        expected = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
        found = ids_of_chimera(program, path, texts, folder)
        assert len(found) == len(texts), f"{kind}: {len(found)} documents instead of {len(texts)}"
        wrong = [i for i in range(len(texts)) if found[i] != expected[i]]
        for i in wrong[:10]:
            print(f"{kind}: {ascii(texts[i])}\n  tokenizers {expected[i]}\n  chimera    {found[i]}")
        if wrong:
            sys.exit(f"{kind}: {len(wrong)} of {len(texts)} strings differ")
        tried += len(texts)
        texts = [oracle_tokenizers.random_text(rng) for _ in range(min(BATCH, strings - tried))]
    print(f"{kind}: the ids of {tried} strings are equal", flush=True)


def compare_files(program, folder, strings):
    """vocab.json with merges.txt, and vocab.txt, by itself and with a tokenizer_config.json."""
    from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer, pre_tokenizers
    gpt2 = oracle_tokenizers.byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), tokens=False)
    gpt2.model.save(str(folder))
    oracle = ByteLevelBPETokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    compare(program, "vocab.json", oracle, folder / "vocab.json", strings, folder)
    words = folder / "words"
    words.mkdir()
    oracle_tokenizers.bert().model.save(str(words))
    oracle = BertWordPieceTokenizer(str(words / "vocab.txt"), lowercase=True)
    compare(program, "vocab.txt", oracle, words, strings, folder)
    (words / "tokenizer_config.json").write_text(json.dumps({"strip_accents": False, "tokenize_chinese_chars": False}))
    oracle = BertWordPieceTokenizer(str(words / "vocab.txt"), lowercase=True, strip_accents=False,
                                    handle_chinese_chars=False)
    compare(program, "vocab.txt with tokenizer_config.json", oracle, words, strings, folder)


def compare_configurations(program, folder):
    """Fields of a tokenizer_config.json beside a tokenizer.json: the ids of AutoTokenizer, or a refusal by name."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer
    texts = ["Hello world", "hello World 123  don't", "<s>a  b \u00c9 \u4e2d\u6587\n\nx<|endoftext|>", " lead"]
    byte_level = oracle_tokenizers.byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    kinds = [(byte_level, ["PreTrainedTokenizerFast", "GPT2Tokenizer"]),
             (oracle_tokenizers.bert(), ["PreTrainedTokenizerFast", "BertTokenizer"])]
    configs = [{}, *({field: value} for value in (True, False) for field in (
        "add_prefix_space", "fix_mistral_regex", "split_special_tokens", "do_lower_case", "strip_accents",
        "tokenize_chinese_chars")), {"eos_token": "a"}, {"pad_token": "a"}, {"additional_special_tokens": ["a"]},
        {"extra_special_tokens": {"x_token": "<|x|>"}},
        {"eos_token": {"__type": "AddedToken", "content": "a", "lstrip": False}}]
    refused = set()
    for number, (tokenizer, classes) in enumerate(kinds):
        for one in classes:
            for config in configs:
                place = folder / f"configuration-{number}"
                place.mkdir(exist_ok=True)
                tokenizer.save(str(place / "tokenizer.json"))
                (place / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": one, **config}))
                auto = AutoTokenizer.from_pretrained(place)
                try:
                    found = ids_of_chimera(program, place, texts, folder)
                except subprocess.CalledProcessError:
                    refused.update(config)
                    continue
                assert found == [auto(text, add_special_tokens=False)["input_ids"] for text in texts], (one, config)
    assert refused == {"add_prefix_space", "fix_mistral_regex", "split_special_tokens", "do_lower_case",
                       "strip_accents", "tokenize_chinese_chars", "extra_special_tokens"}, refused
    print("tokenizer_config.json: equal or refused", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--strings", type=int, default=10_000, help="of each kind")
    parser.add_argument("--kind", choices=[*oracle_tokenizers.KINDS, "files", "configurations"], action="append")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in flags.kind or [*oracle_tokenizers.KINDS, "files", "configurations"]:
            if kind == "configurations":
                compare_configurations(flags.program, folder)
                continue
            if kind == "files":
                compare_files(flags.program, folder, flags.strings)
                continue
            tokenizer = oracle_tokenizers.KINDS[kind]()
            path = folder / f"{kind}.json"
            tokenizer.save(str(path))
            compare(flags.program, kind, tokenizer, path, flags.strings, folder)


main()
