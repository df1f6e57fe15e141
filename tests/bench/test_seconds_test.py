#!/usr/bin/env python3
"""tools/test_seconds sorts samples by what they belong to, and refuses in one line. test_seconds_test.py ROOT"""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(sys.argv[1]) / "tools/test_seconds"
loader = importlib.machinery.SourceFileLoader("test_seconds", str(TOOL))
test_seconds = importlib.util.module_from_spec(importlib.util.spec_from_loader("test_seconds", loader))
loader.exec_module(test_seconds)

TORCH = "/tree/.venv/lib/python3.11/site-packages/torch/lib"
PYTHON = "/tree/.venv/lib"
# The kind, and a sample of it: thread, function, file.
SAMPLES = [
    (None, "swapper", "pv_native_safe_halt", "[kernel.kallsyms]"),
    (test_seconds.KERNEL, "ctest", "filemap_add_folio", "[kernel.kallsyms]"),
    (test_seconds.LINKING, "chimera", "do_lookup_x", "/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
    (test_seconds.REGISTERING, "chimera", "torch::jit::SharedParserData::match", f"{TORCH}/libtorch_cpu.so"),
    (test_seconds.REGISTERING, "chimera", "c10::impl::OperatorEntry::registerKernel", f"{TORCH}/libtorch_cpu.so"),
    (test_seconds.REGISTERING, "chimera", "c10::Dispatcher::findOp", f"{TORCH}/libtorch_cpu.so"),
    (test_seconds.COMPUTING, "chimera", "c10::impl::OperatorEntry::lookup", f"{TORCH}/libtorch_cpu.so"),
    (test_seconds.COMPUTING, "pt_autograd_0", "at::(anonymous namespace)::f<(int)2>", f"{TORCH}/libtorch_cpu.so"),
    (test_seconds.COMPUTING, "chimera", "c10::TensorImpl::data", f"{TORCH}/libc10.so"),
    (test_seconds.COMPUTING, "chimera", "__expf_fma", "/usr/lib/x86_64-linux-gnu/libm.so.6"),
    (test_seconds.PYTHON, "python3", "_PyEval_EvalFrameDefault", "/usr/lib/libpython3.11.so.1.0"),
    (test_seconds.PYTHON, "python3", "[unknown]", "/usr/bin/python3.11"),
    (test_seconds.PYTHON, "python3", "[unknown]", f"{PYTHON}/_json.cpython-311-x86_64-linux-gnu.so"),
    (test_seconds.OWN, "python3", "parse", "/tree/build/python/chimerapipe/_scheduling.abi3.so"),
    (test_seconds.OWN, "chimera", "main", "/tree/build/chimera"),
    (test_seconds.OWN, "chimera", "train", "/tmp/prefix/lib/chimera/libchimera_training.so"),
    (test_seconds.LIBC, "a b c: d thread", "malloc", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
    (test_seconds.LIBC, "chimera", "__vdso_clock_gettime", "[vdso]"),
    (test_seconds.OTHER, "ctest", "[unknown]", "/usr/bin/ctest"),
    (test_seconds.OTHER, "ctest", "[unknown]", "[unknown]"),
]


def printed(tenths, thread, function, file):
    """As `perf script -F comm,time,ip,sym,dso -G` does."""
    return f"{thread:>16} {10 + tenths / 10:12.6f}:      7fcde894ee3d {function} ({file})\n"


LINES = [printed(tenths, *sample) for tenths, (_, *sample) in enumerate(SAMPLES)]


def run(*arguments, **more):
    return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True, check=False, **more)


class TestSecondsTest(unittest.TestCase):
    def test_each_sample_counts_for_what_it_belongs_to(self):
        for (kind, *_), line in zip(SAMPLES, LINES):
            with self.subTest(line):
                self.assertEqual(list(test_seconds.Samples([line]).kinds), [kind] if kind else [])

    def test_an_idle_core_counts_for_the_time_alone(self):
        samples = test_seconds.Samples(LINES)
        self.assertEqual(samples.kinds.total(), len(LINES) - 1)
        self.assertEqual(samples.programs["chimera"], 10)
        self.assertEqual(samples.programs["a b c: d thread"], 1)
        self.assertAlmostEqual(samples.wall, 1.9)

    def test_the_tables_add_up(self):
        *tables, sentence = test_seconds.report(test_seconds.Samples(LINES), frequency=2, cores=2)
        self.assertIn(f"| {test_seconds.COMPUTING} | 2.0 | 21.1 % |", tables)
        self.assertIn("| `pt_autograd_0` | 0.5 | 5.3 % |", tables)
        self.assertEqual(tables.count("| all | 9.5 | 100 % |"), 2)
        self.assertEqual(sentence, "It took 1.9 s. 2 cores cannot do 9.5 CPU seconds in less than 4.8 s, and what "
                                   "LibTorch computes alone in less than 1.0 s.")

    def test_it_refuses_in_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = run(env={"PATH": folder})
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertEqual(ended.stderr, "test_seconds: there is no perf; Debian's package is linux-perf\n")
            perf = pathlib.Path(folder) / "perf"  # never gets to run
            perf.touch(mode=0o755)
            ended = run("--data", f"{folder}/absent", env={"PATH": folder})
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertEqual(ended.stderr, f"test_seconds: there is no file {folder}/absent\n")
            ended = run("--data", perf, "-R", "^torch", env={"PATH": folder})
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertIn("-R ^torch", ended.stderr)

    def test_a_recording_that_perf_cannot_read_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            perf = pathlib.Path(folder) / "perf"
            perf.write_text("#!/bin/sh\necho incompatible file format >&2\nexit 1\n", encoding="utf-8")
            perf.chmod(0o755)
            ended = run("--data", perf, env={"PATH": f"{folder}:{os.environ['PATH']}"})
            self.assertEqual((ended.returncode, ended.stdout), (2, ""))
            self.assertEqual(ended.stderr, "test_seconds: perf script: incompatible file format\n")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
