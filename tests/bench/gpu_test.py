#!/usr/bin/env python3
"""`tools/gpu` where there is no GPU: it refuses in one line, its parts fit into their time, and failures, skips and
time limits show in its summary. gpu_test.py ROOT [MODELS: the benchmark program]"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
MODELS = sys.argv[2] if len(sys.argv) > 2 else None
sys.path.insert(0, str(ROOT / "benchmarks/gpu"))
import measure  # noqa: E402

TABLE = """Forward and backward of 10 times 4 x 1024 tokens, blocks alone, 1 threads, 7 rounds in turn
model            layers hidden type       median ms   GFLOP/s  of the first's   of peak
gpt2-64               8   1280 bfloat16       100.0  640000.0            1.00    64.7 %
"""


def shell(name, script, limit=30, **more):
    return measure.Part(name, ["sh", "-c", script], limit, **more)


class GpuTest(unittest.TestCase):
    def run_parts(self, *parts, seconds=60):
        with tempfile.TemporaryDirectory() as folder:
            outcomes = measure.run_all(parts, pathlib.Path(folder), seconds)
        return outcomes, measure.summary(outcomes)

    @unittest.skipIf(os.path.exists("/dev/nvidiactl"), "this machine has a GPU")
    def test_without_a_gpu_it_refuses_in_one_line(self):
        ended = subprocess.run([ROOT / "dev", "gpu"], capture_output=True, text=True, check=False)
        self.assertEqual((ended.returncode, ended.stdout), (2, ""))
        self.assertEqual(ended.stderr, "dev: gpu: this machine has no GPU (no /dev/nvidiactl)\n")

    def test_the_parts_are_named_with_their_limits(self):
        ended = subprocess.run([ROOT / "dev", "gpu", "--dry-run"], capture_output=True, text=True, check=True)
        names = [line.split()[0] for line in ended.stdout.splitlines()]
        self.assertEqual(names[:5], ["build", "tests", "python-tests", "blocks", "train"])
        self.assertEqual([name for name in names if name.startswith("nccl")],
                         ["nccl-1f1b", "nccl-chimera-cuda-graphs", "nccl-chimera", "nccl-chimera-canonical"])
        self.assertEqual(len(names), len(set(names)))

    def test_the_limits_of_all_parts_fit_into_the_time(self):
        ended = subprocess.run([ROOT / "dev", "gpu", "--dry-run"], capture_output=True, text=True, check=True)
        limits = [int(line.split()[1]) for line in ended.stdout.splitlines()]
        self.assertLessEqual(sum(limits), measure.SECONDS)
        self.assertLessEqual(measure.SECONDS, 600)

    def verdict(self, verdict, printed):
        outcomes, lines = self.run_parts(shell("blocks", f"cat <<'END'\n{printed}\nEND", verdict=verdict))
        return outcomes[0].state, lines

    def test_a_small_share_of_the_peak_or_none_is_a_failure(self):
        state, lines = self.verdict(measure.too_small_a_share, TABLE.replace("64.7", "59.9"))
        self.assertEqual(state, "FAILED")
        self.assertIn("59.9 % of the peak, asked are 60 %", lines[0])
        self.assertEqual(self.verdict(measure.too_small_a_share, TABLE.replace("64.7 %", ""))[0], "FAILED")
        self.assertEqual(self.verdict(measure.too_small_a_share, TABLE)[0], "passed")

    def test_a_filter_that_matches_no_test_is_a_failure(self):
        self.assertEqual(self.verdict(measure.no_test_ran, "[==========] 0 tests\n[  PASSED  ] 0 tests.")[0], "FAILED")
        self.assertEqual(self.verdict(measure.no_test_ran, "[  PASSED  ] 2 tests.")[0], "passed")

    def test_others_that_measure_nothing_have_failed(self):
        part = shell("blocks", "cat <<'END'\n" + TABLE + "END")
        outcomes, lines = self.run_parts(part, shell("peer-silent", "true", verdict=measure.no_milliseconds))
        self.assertEqual([o.state for o in outcomes], ["passed", "FAILED"])
        self.assertIn("it printed no milliseconds", lines[1])
        self.assertEqual(self.run_parts(part, shell("peer-silent", "true"))[1][-1][:11], "gpt2-64's b")

    def test_a_skip_is_a_failure(self):
        outcomes, lines = self.run_parts(shell("tests", "echo '[  SKIPPED ] DeviceTest.OnAGpu (0 ms)'"))
        self.assertEqual(outcomes[0].state, "FAILED")
        self.assertIn("DeviceTest.OnAGpu", lines[0])
        outcomes, _ = self.run_parts(shell("python", "echo 'SKIPPED [1] test_devices.py:9: no GPU'"))
        self.assertEqual(outcomes[0].state, "FAILED")

    def test_what_takes_too_long_is_ended_and_leaves_the_others_their_time(self):
        outcomes, lines = self.run_parts(shell("build", "true"), shell("slow", "sleep 60 & sleep 60", limit=1),
                                         shell("next", "true"))
        self.assertEqual([o.state for o in outcomes], ["passed", "FAILED", "passed"])
        self.assertIn("not done within 1 s", lines[1])

    def test_after_all_the_time_nothing_begins(self):
        outcomes, _ = self.run_parts(shell("build", "true"), shell("next", "touch /nowhere"), seconds=0)
        self.assertEqual([o.why for o in outcomes], ["no time is left", "nothing is built"])

    def test_without_a_build_nothing_runs(self):
        outcomes, lines = self.run_parts(shell("build", "echo cannot compile; exit 3"), shell("tests", "exit 1"))
        self.assertEqual([o.state for o in outcomes], ["FAILED", "not run"])
        self.assertIn("exit code 3: cannot compile", lines[0])

    def test_the_summary_has_share_and_others(self):
        part = shell("blocks", "cat <<'END'\n" + TABLE + "END")
        other = shell("peer-pipelining", """echo '{"peer": "pipelining", "micro_batches": 10, "milliseconds": 150.0}'""")
        lines = self.run_parts(part, other, shell("peer-other", "true", skip="it is not there"))[1]
        self.assertIn("64.7 % of the GPU's peak in bfloat16 (as asked)", lines[3])
        self.assertIn("pipelining: 150.0 ms where ours take 100.0 ms: 1.50 times", lines[4])
        self.assertIn("it is not there", lines[2])

    def test_the_summary_has_what_graphs_change(self):
        def steps(*seconds):
            return "".join(f'{{"step": {i + 1}, "step_seconds": {s}}}\n' for i, s in enumerate(seconds))

        def run(*seconds):
            return shell("small-graphs", f"cat <<'END'\n{steps(*seconds)}END", verdict=measure.no_steps)

        plain = shell("small", f"cat <<'END'\n{steps(9, 9, 9, 0.02, 0.02, 0.03)}END", verdict=measure.no_steps)
        lines = self.run_parts(plain, run(9, 9, 9, 0.01, 0.01, 0.07))[1]
        self.assertEqual(lines[2:], ["--cuda-graphs: a step of gpt2-mini takes 10.00 ms in place of 20.00: 2.00 times"])
        self.assertEqual(self.run_parts(plain, run(9, 9, 9))[0][1].state, "FAILED")

    @unittest.skipUnless(MODELS, "built without LibTorch")
    def test_it_reads_what_the_benchmark_prints(self):
        command = [MODELS, "--blocks", "--models", "gpt2-64", "--dtypes", "float32", "--layers", "1", "--sequence", "8",
                   "--micro-batch-size", "1", "--micro-batches", "2", "--rounds", "1", "--peak", "1"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertGreater(measure.share_of_peak(text), 0)
        self.assertGreater(measure.our_milliseconds(text), 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
