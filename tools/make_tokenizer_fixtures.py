#!/usr/bin/env python3
"""Writes tests/fixtures/tokenizers: small tokenizers of every kind, and the results of the Python package tokenizers.

    .venv-oracles/bin/python tools/make_tokenizer_fixtures.py tests/fixtures/tokenizers
"""
import json
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "tokenizer"))
import oracle_tokenizers
import tokenizers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

STRINGS = 70


def case(tokenizer, text, other):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    single, pair = tokenizer.encode(text), tokenizer.encode(text, other)
    return {"text": text, "ids": ids, "single": [single.ids, single.type_ids], "other": other,
            "pair": [pair.ids, pair.type_ids], "decoded": tokenizer.decode(ids),
            "with_special": tokenizer.decode(ids, skip_special_tokens=False)}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path}: {path.stat().st_size} bytes")


def trained(texts, **options):
    """Returns the tokenizer that BpeTrainer learns from files, read line by line."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "text"
        file.write_text(texts, newline="")
        tokenizer.train([str(file)], trainers.BpeTrainer(
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, **options))
    model = json.loads(tokenizer.to_str())["model"]
    return {"text": texts, "options": options, "vocab": model["vocab"], "merges": model["merges"]}


def training_cases():
    rng = random.Random(11)
    cases = [trained("".join(oracle_tokenizers.training_texts()[:150]), vocab_size=420, special_tokens=["<|endoftext|>"]),
             trained("low low low lower lowest\n\n newer  newest\r\nwidest", vocab_size=300, special_tokens=[],
                     min_frequency=2)]
    for letters in ("ab", "abc", "aab \n"):
        text = "".join(rng.choice(letters + " ") for _ in range(300))
        cases.append(trained(text, vocab_size=330, special_tokens=["<s>", "</s>"]))
    return cases


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    oracle_tokenizers.VOCABULARY = 500
    for kind, make in oracle_tokenizers.KINDS.items():
        tokenizer = make()
        rng = random.Random(kind)
        texts = oracle_tokenizers.EDGES + [oracle_tokenizers.random_text(rng) for _ in range(STRINGS)]
        cases = [case(tokenizer, text, rng.choice(texts)[:20]) for text in texts if len(text) < 400]
        write(folder / f"{kind}.json", {"made_with": f"tokenizers {tokenizers.__version__}",
                                        "tokenizer": json.loads(tokenizer.to_str()), "cases": cases})
    write(folder / "training.json", {"made_with": f"tokenizers {tokenizers.__version__}", "cases": training_cases()})


main()
