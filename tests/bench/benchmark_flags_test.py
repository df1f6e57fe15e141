#!/usr/bin/env python3
"""Tests the programs `fit` and `validate` of benchmarks/ on their command lines."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
FIT = sys.argv[2]
VALIDATE = sys.argv[3] if len(sys.argv) > 3 else None
P100 = ROOT / "machines/p100-aries.json"


def run(*words):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120)


class FitProgramTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write_runs(self, text):
        (self.folder / "runs.toml").write_text(text)
        return self.folder / "runs.toml"

    def test_a_profile_is_fitted_to_measured_runs(self):
        text = 'model = "bert-48"\nschedule = "1f1b"\nmicro-batches = 8\nmicro-batch-size = 8\n'
        for depth in (2, 4, 8):
            for groups in (1, 4):
                text += f"[[runs]]\nstages = {depth}\ndata-parallel = {groups}\nstep-seconds = 2\n"
        fitted = self.folder / "fitted.json"
        ended = run(FIT, "--runs", self.write_runs(text), "--machine", P100, "--output", fitted)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("p100-aries: fitted to 6 runs", ended.stdout)
        self.assertIn("one run left out", ended.stdout)
        before, after = (json.loads(path.read_text()) for path in (P100, fitted))
        self.assertNotEqual(*(each["layers"][1]["times"][0]["forward"] for each in (before, after)))
        self.assertGreater(after["expected_error"], 0)

    def test_wrong_files_and_scalars_are_refused(self):
        empty = self.write_runs("")
        for words, message in (((empty,), "has no [[runs]]"),
                               ((self.folder / "none.toml",), "none.toml"),
                               ((empty, "--scalars", "layer"), "did you mean 'layers'"),
                               ((empty, "--scalars", "sent,sent"), "names sent twice")):
            ended = run(FIT, "--machine", P100, "--runs", *words)
            self.assertEqual(ended.returncode, 1)
            self.assertIn(message, ended.stderr)


@unittest.skipUnless(VALIDATE, "needs LibTorch")
class ValidateProgramTest(unittest.TestCase):
    def test_flags_that_do_not_fit_are_refused(self):
        for words, message in ((("--only", "gpt4"), "no run of the grid has this name"),
                               (("--machine", "missing.json"), "missing.json: cannot be read"),
                               (("--rounds", "1"), "--rounds"),
                               (("--again", P100, "--rounds", "3"), "excludes --again"),
                               (("--again", P100), "p100-aries.json: top level: field 'machine' is missing")):
            ended = run(VALIDATE, *words)
            self.assertNotEqual(ended.returncode, 0)
            self.assertIn(message, ended.stdout + ended.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
