#!/usr/bin/env python3
"""Compares the ids of `chimera tokenize` with those of the Python package tokenizers, for every kind of tokenizer:

  tests/tokenizer/tokenizers_test.py build/chimera --strings 1000000 [--kind llama3]

The strings are random, and those of a list of edges."""
import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import oracles  # noqa: E402

oracles.require("tokenizers")
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--strings", type=int, default=10_000, help="of each kind")
    parser.add_argument("--kind", choices=[*oracle_tokenizers.KINDS, "files"], action="append")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in flags.kind or [*oracle_tokenizers.KINDS, "files"]:
            if kind == "files":
                compare_files(flags.program, folder, flags.strings)
                continue
            tokenizer = oracle_tokenizers.KINDS[kind]()
            path = folder / f"{kind}.json"
            tokenizer.save(str(path))
            compare(flags.program, kind, tokenizer, path, flags.strings, folder)


main()
