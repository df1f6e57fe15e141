"""Compares docs/errors.md with the program: the fixed words of each message must be in the strings of one source file.

Usage: errors_test.py SOURCES. Quoted words, words with a digit, `book.txt` and `...` are variable. The exit codes must
be those of `chimera --help`.
"""

import pathlib
import re
import sys
import unittest

SOURCES = pathlib.Path(sys.argv[1])
OF_LIBTORCH = {"can't allocate memory", "CUDA out of memory"}
VARIES = re.compile(r"\.\.\.|(?<!\w)'[^']*'|\S*\d\S*|\w+\.txt\b")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
EXIT_CODES = re.compile(r"(?:: |; )(\d+) ")


def strings_of(source):
    """Returns the string literals of a C++ source, with adjacent literals joined and without comments."""
    code = re.sub(r"^\s*//.*$", "", source.read_text(), flags=re.MULTILINE).replace("'\"'", "")
    return "\n".join(LITERAL.findall(re.sub(r'"\s*\n\s*"', "", code)))


ALL_STRINGS = [strings_of(source) for room in ["src", "apps"] for source in sorted((SOURCES / room).rglob("*.cc"))]


def fixed_words(message):
    pieces = re.split(r"[,;:?()=]", VARIES.sub(";", message))
    return [piece.strip() for piece in pieces if piece.strip() and piece.strip() not in OF_LIBTORCH]


def is_printed(message):
    return any(all(words in strings for words in fixed_words(message)) for strings in ALL_STRINGS)


class ErrorsTest(unittest.TestCase):
    page = (SOURCES / "docs/errors.md").read_text()

    def test_each_message_is_one_that_the_program_prints(self):
        rows = [line.split(" | ")[0] for line in self.page.splitlines() if line.startswith("| `")]
        messages = [message for row in rows for message in re.findall(r"`([^`]*)`", row)]
        self.assertGreater(len(messages), 15)
        for message in messages:
            self.assertTrue(is_printed(message), f"no source has all of {fixed_words(message)}, of '{message}'")

    def test_finds_what_no_source_has(self):
        for message in ["--micro-batches ...: N must be ...", "... more stages than layers",
                        "the activations of stage 0 ... changed on the way"]:
            self.assertFalse(is_printed(message), message)

    def test_exit_codes_are_those_of_the_help(self):
        listed = self.page[self.page.index("Exit codes:"):]
        help_text = next(text for text in ALL_STRINGS if "Exit codes: 0 success" in text)
        help_text = help_text[help_text.index("Exit codes: 0 success"):]
        self.assertEqual(EXIT_CODES.findall(listed.replace("\n", " ")), EXIT_CODES.findall(help_text))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
