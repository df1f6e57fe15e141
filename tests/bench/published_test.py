#!/usr/bin/env python3
"""Tests the scripts that compare predictions with measurements: published_test.py SOURCE PROGRAM."""
import json
import re
import subprocess
import sys
import unittest
from pathlib import Path

ROOT, PROGRAM = Path(sys.argv[1]), sys.argv[2]


def run(script, *words):
    return subprocess.run([sys.executable, str(ROOT / "benchmarks" / script), "--program", PROGRAM, *words],
                          capture_output=True, text=True)


@unittest.skipIf(sys.version_info < (3, 11), "Python has tomllib since 3.11")
class PublishedTest(unittest.TestCase):
    def test_pipelines_on_the_a100_are_predicted(self):
        ended = run("published.py", "--only", "Zero bubble, 1F1B")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        row = re.search(r"gpt-28.3B +1024 1f1b +1 x 1 x 32 +256 x 1 none +(\S+) +(\S+) +(\S+) %", ended.stdout)
        published, predicted, error = map(float, row.groups())
        self.assertAlmostEqual(published, 0.88 * 1024, delta=0.1)
        self.assertAlmostEqual(predicted / published - 1, error / 100, delta=1e-3)
        summary = re.search(r"\| a100-80gb \| all \| fit \| 12 \| (\S+) % \| (\S+) % \| (\S+) % \|\n", ended.stdout)
        self.assertLess(float(summary[2]), 6)
        self.assertLess(float(summary[3]), 15)
        errors = json.loads(re.search(r"\na100-80gb, eager kernels: (.*)\n$", ended.stdout)[1])
        self.assertEqual(errors["runs"], 12)
        self.assertLess(errors["median"], float(summary[2]) / 100, "a row that is left out of a fit is near the others")

    def test_published_tflops_become_tokens(self):
        ended = run("published.py", "--only", "Llama 3 405B")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        tokens = 430e12 / (6 * 405.85e9 + 12 * 126 * 16384 * 8192)
        published = float(re.search(r"64 x 8 x 16 +32 x 1 none +(\S+)", ended.stdout)[1])
        self.assertAlmostEqual(published, tokens, delta=0.1)

    def test_names_the_tables(self):
        ended = run("published.py", "--only", "nothing")
        self.assertEqual(ended.returncode, 1)
        self.assertIn("no table has this text in its name; there are: BERT-large, one V100, ", ended.stderr)


class FitHereTest(unittest.TestCase):
    def test_a_fit_finds_slower_layers_and_links(self):
        ended = run("fit_here.py", "--dry-run")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertRegex(ended.stdout, r"factor on layer times +1\.3 ")
        self.assertRegex(ended.stdout, r"left out: median error \d+\.\d % before, 0\.0 % after\n$")


class MemoryLimitsTest(unittest.TestCase):
    def test_forecasts_stay_below_their_limits(self):
        ended = run("memory_limits.py", "--dry-run")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        rows = [[float(cell) for cell in row.split("|")[1:3]] for row in ended.stdout.splitlines()[2:]]
        self.assertEqual(len(rows), 5)
        self.assertTrue(all(0.85 * limit < predicted <= limit for limit, predicted in rows), rows)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
