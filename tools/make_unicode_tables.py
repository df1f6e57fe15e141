#!/usr/bin/env python3
"""Prints src/tokenizer/unicode_tables.inc: the properties of each character in the Python package tokenizers.

The package mixes versions of Unicode, so the script queries it for every code point. Run it with the version in the
first line of the table, or a newer one, and then the tests of tests/tokenizer:

    tools/make_unicode_tables.py > src/tokenizer/unicode_tables.inc
"""
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def matching(pattern):
    """Returns the characters that a pattern matches."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return [c for text, _ in split.pre_tokenize_str("".join(CHARACTERS)) for c in text]


def changed_by(normalizer, result):
    """Returns the characters that a normalizer replaces by `result` of the character."""
    return [c for c in CHARACTERS if normalizer.normalize_str(c) == result(c) != c]


def ranges(characters):
    """Returns [first, last] of each run of adjacent characters."""
    runs = []
    for code in sorted(map(ord, characters)):
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return runs


def bert(**steps):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **steps})


def punctuation():
    words = pre_tokenizers.BertPreTokenizer()
    return [c for c in CHARACTERS if [w for w, _ in words.pre_tokenize_str("a" + c + "a")] == ["a", c, "a"]]


def word_characters():
    """Returns the characters next to which an added token is not a single word. They differ from \w in a pattern."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.add_tokens([AddedToken("<t>", single_word=True, normalized=False)])
    encodings = tokenizer.encode_batch([c + "<t>" for c in CHARACTERS])
    return [c for c, encoding in zip(CHARACTERS, encodings) if not encoding.ids]


def print_rows(name, kind, entries):
    print(f"constexpr {kind} {name}[] = {{")
    row = "   "
    for entry in entries:
        if len(row) + len(entry) > 118:
            print(row)
            row = "   "
        row += f" {entry},"
    print(row)
    print("};\n")


def print_ranges(name, characters):
    print_rows(name, "Range", ["{0x%X, 0x%X}" % tuple(run) for run in ranges(characters)])


def main():
    print(f"// Made by tools/make_unicode_tables.py with tokenizers {tokenizers.__version__}; not edited by hand.\n")
    print_ranges("kLetters", matching(r"\p{L}"))
    print_ranges("kNumbers", matching(r"\p{N}"))
    print_ranges("kSpaces", matching(r"\s"))
    print_ranges("kWordCharacters", word_characters())
    print_ranges("kDroppedByBert", changed_by(bert(clean_text=True), lambda c: ""))
    print_ranges("kBlankForBert", changed_by(bert(clean_text=True), lambda c: " ") + [" "])
    print_ranges("kChinese", changed_by(bert(handle_chinese_chars=True), lambda c: f" {c} "))
    # The parts of a decomposed character are tested as single characters.
    print_ranges("kAccents", changed_by(bert(strip_accents=True), lambda c: ""))
    print_ranges("kPunctuation", punctuation())
    lower = bert(lowercase=True)
    pairs = [(ord(c), lower.normalize_str(c)) for c in CHARACTERS if lower.normalize_str(c) != c]
    print_rows("kLower", "Mapping", ["{0x%X, 0x%X}" % (c, ord(text)) for c, text in pairs if len(text) == 1])
    longer = [(c, text) for c, text in pairs if len(text) != 1]
    assert longer == [(0x130, "i\u0307")], longer  # Handled in unicode.cc


main()
