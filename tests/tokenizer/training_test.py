#!/usr/bin/env python3
"""Compares what `chimera tokenizer train` learns with what the Python package tokenizers learns of the same files: every
merge, every id; and loads the file with the package.

  tests/tokenizer/training_test.py build/chimera [FILE...]

Without files: this repository's documents, and random texts of few letters, which have many ties."""
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
from tokenizers import Tokenizer, models, pre_tokenizers, trainers  # noqa: E402


def learned_by_tokenizers(files, vocabulary, special):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train([str(file) for file in files], trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return json.loads(tokenizer.to_str())["model"]


def compare(program, files, vocabulary, special, output):
    command = [program, "tokenizer", "train", "--vocabulary", str(vocabulary), *files, "--output", output, "--overwrite"]
    for token in special:
        command += ["--special", token]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    found = json.loads(output.read_text())["model"]
    expected = learned_by_tokenizers(files, vocabulary, special)
    assert found["merges"] == expected["merges"], f"{files}: other merges"
    assert found["vocab"] == expected["vocab"], f"{files}: other ids"
    text = "The heaven and the earth.\n\n  x = 12; 漢字 é"
    loaded = Tokenizer.from_file(str(output))
    assert loaded.decode(loaded.encode(text).ids, skip_special_tokens=False) == text
    return len(expected["merges"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--vocabulary", type=int, default=2000)
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = flags.files or sorted(Path(__file__).parents[2].glob("docs/*.md"))
        merges = compare(flags.program, files, flags.vocabulary, ["<|endoftext|>"], folder / "out.json")
        print(f"{len(files)} files: all {merges} merges are equal")
        if flags.files:
            return
        rng = random.Random(3)
        merges = 0
        for _ in range(40):
            letters = rng.choice(["a", "ab", "abc", "aab ", "ab \n", "abcdefgh ", "é漢 ab"])
            file = folder / "text"
            file.write_text("".join(rng.choice(letters) for _ in range(rng.choice([20, 200, 2000]))))
            special = rng.choice([["<s>"], ["a", "<s>"]])  # one that is the letter of a byte too
            merges += compare(flags.program, [file], rng.choice([257, 260, 300, 600]), special, folder / "out.json")
        print(f"40 random texts: all {merges} merges are equal")


main()
