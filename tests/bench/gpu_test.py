#!/usr/bin/env python3
"""`tools/gpu` where there is no GPU: it refuses in one line, its parts fit into their time, and failures, skips and
time limits show in its summary. `tools/gpu-pack`: a packed build runs elsewhere.
gpu_test.py ROOT [MODELS: the benchmark program, below the build folder that is packed  FAKE: the fake GPU library]"""
import argparse
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(sys.argv[1])
MODELS = sys.argv[2] if len(sys.argv) > 2 else None
FAKE_GPU = sys.argv[3] if len(sys.argv) > 3 else None
sys.path.insert(0, str(ROOT / "benchmarks/gpu"))
import measure  # noqa: E402

TABLE = """Forward and backward of 10 times 4 x 1024 tokens, blocks alone, 1 threads, 7 rounds in turn
model            layers hidden type       median ms   GFLOP/s  of the first's   of peak
gpt2-64               8   1280 bfloat16       100.0  640000.0            1.00    47.7 %
"""
LAUNCHES = """model            type         host ms  device ms   bound by forward k. backward k.   peak MiB
gpt2-64          bfloat16        5.50       9.25    compute        9.0       26.4       4321
"""


def shell(name, script, limit=30, **more):
    return measure.Part(name, ["sh", "-c", script], limit, **more)


class DriverTest(unittest.TestCase):
    def test_an_old_driver_is_named(self):
        kinds = {"x86_64 Kernel Module  535.104.05  Sat": 1, "Open Kernel Module for x86_64  580.65.06  Release": 0, "": 0}
        for kind, code in kinds.items():
            with self.subTest(kind), tempfile.NamedTemporaryFile("w") as version:
                version.write(f"NVRM version: NVIDIA UNIX {kind} Build\nGCC version: gcc\n")
                version.flush()
                command = ["sh", "-c", f". tools/setup.sh; require_driver {version.name}"]
                found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
                self.assertEqual(found.returncode, code, found.stderr)
                self.assertEqual("driver here is 535, and CUDA 13" in found.stderr, code == 1)


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

    def dry_run(self, *flags):
        """Returns the parts' names, limits and commands."""
        command = [ROOT / "dev", "gpu", "--dry-run", *flags]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        return [(name, int(limit), text) for name, limit, _, text in
                (line.split(None, 3) for line in ended.stdout.splitlines() if not line.startswith(" "))]

    def test_the_halves_have_the_parts_in_their_order(self):
        first, second = ([name for name, _, _ in self.dry_run("--packed", "nowhere", "--half", half)] for half in "12")
        self.assertEqual(first[:5], ["start", "idle", "tests", "compare", "compare-odd"])
        self.assertEqual(first[-6:], ["no-graphs", "graphs", "op-graphs", "timeline", "llama-8b-4", "queues"])
        self.assertEqual([name for name in second if name.startswith("nccl")],
                         ["nccl-chimera", "nccl-1f1b-cuda-graphs", "nccl-chimera-canonical",
                          "nccl-chimera-recover-reroute", "nccl-chimera-recover-twin", "nccl-8", "nccl-64",
                          "nccl-split", "nccl-split-whole", "nccl-channels"])
        for name in ("python", "memory", "killed", "stopped", "compiled", "peer-pipelining"):
            self.assertIn(name, second)
        for names in (first, second):
            self.assertEqual(len(names), len(set(names)))

    def test_a_dry_run_prints_what_is_expected(self):
        ended = subprocess.run([ROOT / "dev", "gpu", "--dry-run", "--packed", "nowhere", "--parts", "head-50257"],
                               capture_output=True, text=True, check=True)
        self.assertEqual(ended.stdout.splitlines()[-1], "    expected: within 5 % of 50,304")

    def test_some_parts_can_be_chosen(self):
        names = [name for name, _, _ in self.dry_run("--packed", "nowhere", "--parts", "graphs,idle")]
        self.assertEqual(names, ["start", "idle", "graphs"])

    def test_a_packed_build_runs_every_program_and_builds_nothing(self):
        programs = {"tests": "chimera_program_tests", "blocks": "benchmarks/models", "compare": "benchmarks/models",
                    "head-50257": "chimera train", "graphs": "chimera train"}
        parts = {name: command for name, _, command in self.dry_run("--packed", "nowhere")}
        for name, program in programs.items():
            self.assertIn(f"nowhere/run {program} ", parts[name])
        self.assertNotIn("build/chimera", " ".join(parts.values()))

    def test_without_a_run_script_there_is_no_packed_build(self):
        with unittest.mock.patch.object(measure.pathlib.Path, "exists", lambda path: path.name == "nvidiactl"):
            self.assertEqual(measure.refusal(pathlib.Path("/nowhere")),
                             "/nowhere/run does not exist; tools/gpu-pack makes it, where this can be built")

    def test_ranks_share_one_gpu_and_the_summary_says_so(self):
        def part(gpus):
            with unittest.mock.patch.object(measure, "count_gpus", lambda: gpus):
                options = argparse.Namespace(packed=None, output=pathlib.Path("out"), peak=None, rehearse=None)
                return measure.Runs(options).over_nccl("chimera")

        shared, own = part(1), part(4)
        self.assertIn("CHIMERA_SHARE_GPU=1", shared.command[-1])
        self.assertNotIn("CHIMERA_SHARE_GPU", own.command[-1])
        self.assertIn("--stages 4", own.command[-1])
        lines = self.run_parts(shell("nccl", "true", note=shared.note))[1]
        self.assertIn("ranks share one GPU: a test of correctness, not of speed", lines[0])

    def verdict(self, verdict, printed):
        outcomes, lines = self.run_parts(shell("blocks", f"cat <<'END'\n{printed}\nEND", verdict=verdict))
        return outcomes[0].state, lines

    def test_a_small_share_of_the_peak_or_none_is_a_failure(self):
        state, lines = self.verdict(measure.share_of_at_least(45), TABLE.replace("47.7", "44.9"))
        self.assertEqual(state, "FAILED")
        self.assertIn("44.9 % of the peak, expected are 45 %", lines[0])
        self.assertEqual(self.verdict(measure.share_of_at_least(45), TABLE.replace("47.7 %", ""))[0], "FAILED")
        self.assertEqual(self.verdict(measure.share_of_at_least(45), TABLE)[0], "passed")

    def test_a_run_that_lost_no_rank_did_not_recover(self):
        steps = '{"step": 1, "loss": 2.0}\n'
        self.assertEqual(measure.no_recovery_or_other_losses(steps + "chimera: recovery 1 of 100", steps), "")
        self.assertIn("no rank was lost", measure.no_recovery_or_other_losses(steps, steps))

    def test_a_filter_that_matches_no_test_is_a_failure(self):
        self.assertEqual(self.verdict(measure.no_test_ran, "[==========] 0 tests\n[  PASSED  ] 0 tests.")[0], "FAILED")
        self.assertEqual(self.verdict(measure.no_test_ran, "[  PASSED  ] 2 tests.")[0], "passed")

    def test_others_that_measure_nothing_have_failed(self):
        part = shell("blocks", "cat <<'END'\n" + TABLE + "END")
        outcomes, lines = self.run_parts(part, self.peer("true"))
        self.assertEqual([o.state for o in outcomes], ["passed", "FAILED"])
        self.assertIn("it printed no milliseconds", lines[1])
        outcomes, lines = self.run_parts(shell("blocks", "true"), self.peer("echo '{\"milliseconds\": 90.0}'"))
        self.assertIn("no milliseconds of ours", lines[1])

    def peer(self, script):
        return shell("peer-other", script, verdict=measure.faster_than_ours, against="blocks")

    def test_others_may_not_be_faster(self):
        part = shell("blocks", "cat <<'END'\n" + TABLE + "END")
        for milliseconds, state in [(99.0, "FAILED"), (100.0, "passed")]:
            peer = self.peer(f"echo '{{\"milliseconds\": {milliseconds}}}'")
            outcomes, lines = self.run_parts(part, peer)
            self.assertEqual(outcomes[1].state, state)
            self.assertIn(f"other: {milliseconds} ms where ours take 100.0 ms", lines[-1])
        self.assertEqual(measure.ASKED_RATIO, 1.0)

    def test_losses_far_from_the_cpus_are_a_failure(self):
        def run(name, *losses, **more):
            steps = "".join(f'{{"step": {i + 1}, "loss": {loss}}}\n' for i, loss in enumerate(losses))
            return shell(name, f"cat <<'END'\n{steps}END", **more)

        def why_not(*losses):
            part = run("gpu", *losses, verdict=measure.other_losses, against="cpu")
            return self.run_parts(run("cpu", 5.0, 4.0), part)[0][1].why

        self.assertEqual(why_not(5.004, 4.003), "")
        self.assertEqual(why_not(5.0, 4.5), "the loss of step 2 is 4.5, on the CPU 4")
        self.assertEqual(why_not(5.0, "NaN"), "the loss of step 2 is nan, on the CPU 4")
        self.assertEqual(why_not(5.0), "it printed 1 losses, the CPU 2")
        part = run("gpu", 5.0, verdict=measure.other_losses, against="cpu")
        self.assertIn("no losses of the CPU", self.run_parts(shell("cpu", "true"), part)[0][1].why)

    def test_the_summary_names_the_first_differing_tensor(self):
        line = "gpt2-mini float32 on cuda: first differing tensor of 120: block 1: output: 0.5 of 2 (tolerance 0.0001)"
        outcomes, lines = self.run_parts(shell("compare", f"echo '{line}'; echo more; exit 1"))
        self.assertEqual((outcomes[0].state, lines[1:]), ("FAILED", [line]))

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
        outcomes, _ = self.run_parts(shell("start", "true"), shell("next", "touch /nowhere"), seconds=0)
        self.assertEqual([o.why for o in outcomes], ["no time is left", "the start failed"])

    def test_the_build_takes_no_time_from_the_others(self):
        for name, state in [("build", "passed"), ("start", "FAILED")]:
            times = itertools.chain([0, 0] if name == "build" else [0, 0, 0], itertools.repeat(100))  # It takes 100 s
            with unittest.mock.patch.object(measure.time, "monotonic", lambda: next(times)):
                outcomes, _ = self.run_parts(shell(name, "true"), shell("next", "true"))
            self.assertEqual([o.state for o in outcomes], ["passed", state])

    def test_logs_and_the_summary_so_far_are_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            look = shell("look", f"cat {folder}/summary.txt")
            outcomes = measure.run_all([shell("first", "echo told"), look], pathlib.Path(folder), 60)
            kept = pathlib.Path(folder)
            self.assertEqual((kept / "first.log").read_text(), "told\n")
            self.assertIn("first", outcomes[1].text)
            self.assertEqual(len((kept / "summary.txt").read_text().splitlines()), 2)

    def test_without_a_build_nothing_runs(self):
        outcomes, lines = self.run_parts(shell("build", "echo cannot compile; exit 3"), shell("tests", "exit 1"))
        self.assertEqual([o.state for o in outcomes], ["FAILED", "not run"])
        self.assertIn("exit code 3: cannot compile", lines[0])

    def test_the_summary_has_share_launches_and_others(self):
        part = shell("blocks", f"cat <<'END'\n{TABLE}{LAUNCHES}END", verdict=measure.share_of_at_least(45))
        other = shell("peer-pipelining", """echo '{"peer": "pipelining", "milliseconds": 150.0}'""")
        lines = self.run_parts(part, other, shell("peer-other", "true", skip="it is not there"))[1]
        self.assertEqual(lines[3], "blocks: 47.7 % of the GPU's peak in bfloat16; "
                         "compute-bound (a micro-batch takes the host 5.50 ms, the device 9.25 ms); "
                         "9.0 + 26.4 kernels per block; 4321 MiB")
        self.assertIn("pipelining: 150.0 ms where ours take 100.0 ms: 1.50 times", lines[4])
        self.assertIn("it is not there", lines[2])
        bound = LAUNCHES.replace(" compute", "launches")
        lines = self.run_parts(shell("blocks-1", f"cat <<'END'\n{TABLE}{bound}END"))[1]
        self.assertIn("blocks-1: 47.7 % of the GPU's peak in bfloat16; launch-bound (", lines[1])

    def test_the_summary_has_what_graphs_change(self):
        def steps(*seconds):
            return "".join(f'{{"step": {i + 1}, "step_seconds": {s}}}\n' for i, s in enumerate(seconds))

        def run(*seconds):
            return shell("graphs", f"cat <<'END'\n{steps(*seconds)}END", verdict=measure.no_steps)

        plain = shell("no-graphs", f"cat <<'END'\n{steps(9, 9, 9, 0.02, 0.02, 0.03)}END", verdict=measure.no_steps)
        lines = self.run_parts(plain, run(9, 9, 9, 0.01, 0.01, 0.07))[1]
        self.assertEqual(lines[2:], ["--cuda-graphs: a step of gpt2-mini takes 10.00 ms in place of 20.00: 2.00 times"])
        self.assertEqual(self.run_parts(plain, run(9, 9, 9))[0][1].state, "FAILED")

    def steps(self, *steps):
        return "".join(json.dumps({"step": i + 1, **step}) + "\n" for i, step in enumerate(steps))

    def test_a_slow_odd_vocabulary_is_a_failure(self):
        def run(name, rate, **more):
            steps = self.steps(*[{"tokens_per_second": 1}] * 3, *[{"tokens_per_second": rate}] * 2)
            return shell(name, f"cat <<'END'\n{steps}END", **more)

        for rate, why in [(96, ""), (90, "90 tokens a second, the other vocabulary 100")]:
            part = run("odd", rate, verdict=measure.much_slower, against="even")
            self.assertEqual(self.run_parts(run("even", 100), part)[0][1].why, why)

    def test_memory_that_grows_is_a_failure(self):
        def verdict(verdict, *mebibytes, fewer=()):
            text = self.steps(*[{"used_memory_bytes": m << 20} for m in mebibytes])
            return verdict(text, self.steps(*[{"used_memory_bytes": m << 20} for m in fewer])) if fewer else verdict(text)

        self.assertEqual(verdict(measure.grows_by_recording, 90, 100, 100, 104), "")
        self.assertEqual(verdict(measure.grows_by_recording, 90, 100, 200, 200), "100 MiB in step 2, 200 MiB in step 4")
        self.assertEqual(verdict(measure.grows_with_micro_batches, 101, fewer=[100]), "")
        self.assertEqual(verdict(measure.grows_with_micro_batches, 120, fewer=[100]), "100 MiB with fewer, 120 MiB")

    def test_the_summary_has_what_is_expected_and_found(self):
        verdict = measure.asks(lambda found: found["speedup"] >= 1.1, lambda found: f"{found['speedup']:.2f} times")
        part = shell("compiled", """echo '{"probe": "compiled", "speedup": 1.0}'""", verdict=verdict,
                     expect="1.1 times", facts=measure.of_probe)
        outcomes, lines = self.run_parts(part)
        self.assertEqual((outcomes[0].state, outcomes[0].why), ("FAILED", "1.00 times"))
        self.assertEqual(lines[1], "    expected: 1.1 times; found: speedup 1")

    def test_probes_without_a_gpu(self):
        for probe, key in (("idle", "mebibytes_eager"), ("killed", "names_rank"), ("stopped", "names_rank")):
            command = [sys.executable, ROOT / "benchmarks/gpu/probes.py", probe, "--device", "cpu"]
            if probe != "idle":  # A job whose only child is ended by the signal
                job = """echo '{"step": 1}\n{"step": 2}\n{"step": 3}' > "$2"; sleep 100 & wait $!; echo rank 1 ended"""
                command += ["--", "sh", "-c", job, "job"]
            if probe == "stopped":
                continue
            ended = subprocess.run(command, capture_output=True, text=True, check=True)
            self.assertIn(key, json.loads(ended.stdout.splitlines()[-1]))

    @unittest.skipUnless(MODELS, "built without LibTorch")
    def test_it_reads_what_the_benchmark_prints(self):
        command = [MODELS, "--blocks", "--models", "gpt2-64", "--dtypes", "float32", "--layers", "1", "--sequence", "8",
                   "--micro-batch-size", "1", "--micro-batches", "2", "--rounds", "1", "--peak", "1"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertGreater(measure.share_of_peak(text), 0)
        self.assertGreater(measure.our_milliseconds(text), 0)

    @unittest.skipUnless(MODELS, "built without LibTorch")
    def test_it_reads_what_the_comparison_prints(self):
        command = [MODELS, "--compare", "--models", measure.COMPARED, "--dtypes", "float32", "--sequence", "8",
                   "--micro-batch-size", "1"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        self.assertEqual(len(measure.of_tensors(text)), 3)

    def rehearse(self, half):
        """Returns the states of the parts on the fake device."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, ROOT / "benchmarks/gpu/measure.py", "--rehearse", FAKE_GPU, "--half", half,
                       "--output", folder]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(ended.returncode, 0, ended.stdout)
        return dict(re.findall(r"^(\S+) +(passed|FAILED|not run) ", ended.stdout, re.MULTILINE))

    @unittest.skipUnless(FAKE_GPU, "built without LibTorch")
    def test_the_list_runs_on_the_fake_device(self):
        first, second = (self.rehearse(half) for half in "12")
        self.assertEqual([name for name, state in first.items() if state == "not run"],
                         ["idle", "tests", "products", "queues"])
        self.assertEqual([name for name, state in second.items() if state == "passed"],
                         ["start", "losses-cpu", "losses-gpu", "nccl-chimera", "nccl-chimera-canonical",
                          "nccl-chimera-recover-reroute", "nccl-chimera-recover-twin", "nccl-split", "nccl-split-whole",
                          "nccl-channels", "wrong-token", "blocks"])

    def test_a_rehearsal_judges_losses_and_tensors_but_not_speed(self):
        options = argparse.Namespace(packed=None, output=pathlib.Path("out"), peak=None, half=2, rehearse=FAKE_GPU or "x")
        parts = {part.name: part for part in measure.parts_of(options)}
        self.assertIs(parts["losses-gpu"].verdict, measure.other_losses)
        self.assertIsNone(parts["blocks"].verdict)
        self.assertEqual(parts["nccl-8"].skip, "needs a GPU")

    @unittest.skipUnless(MODELS, "built without LibTorch")
    def test_without_a_gpu_no_kernels_are_counted(self):
        ended = subprocess.run([MODELS, "--kernels"], capture_output=True, text=True, check=False)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr.count("\n")), (2, "", 1))
        self.assertIn("--device cuda", ended.stderr)


@unittest.skipUnless(MODELS == str(ROOT / "build/benchmarks/models"), "only build/ is packed, with LibTorch")
class PackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.packed = pathlib.Path(cls.folder.name) / "packed"
        cls.pack(cls.packed, "benchmarks/models").check_returncode()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @staticmethod
    def pack(output, *programs):
        command = [ROOT / "tools/gpu-pack", "--output", output, *programs]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def run_packed(self, *words, **environment):
        return subprocess.run([self.packed / "run", *words], capture_output=True, text=True, check=False, cwd="/",
                              env={**os.environ, "TMPDIR": self.folder.name, **environment})

    def torch(self):
        """Returns the folder of the torch that the build uses."""
        linked = subprocess.run(["ldd", MODELS], capture_output=True, text=True, check=True).stdout
        return str(pathlib.Path(re.search(r"libtorch_cpu\.so => (\S+)", linked).group(1)).parents[1])

    def test_a_packed_program_runs_with_another_torch(self):
        ended = self.run_packed("benchmarks/models", "--compare", "--models", "gpt2-tiny", "--dtypes", "float32",
                                "--sequence", "8", TORCH_DIR=self.torch())
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertEqual(len(measure.of_tensors(ended.stdout)), 1)

    def test_an_unknown_program_is_refused_with_the_known_ones(self):
        ended = self.run_packed("chimera", TORCH_DIR=self.torch())
        self.assertEqual((ended.returncode, ended.stderr),
                         (2, "run: no program 'chimera' is packed; there are: benchmarks/models \n"))

    def test_without_torch_it_is_refused_in_one_line(self):
        ended = self.run_packed("benchmarks/models", TORCH_DIR="/nowhere")
        self.assertEqual((ended.returncode, ended.stderr),
                         (2, "run: python3 has no torch; install it, or set TORCH_DIR\n"))

    def test_another_version_of_torch_is_named(self):
        with tempfile.TemporaryDirectory() as other:
            os.symlink(self.torch() + "/lib", other + "/lib")
            pathlib.Path(other, "version.py").write_text("__version__ = '1.0.0+cpu'\n")
            ended = self.run_packed("benchmarks/models", "--help", TORCH_DIR=other)
        self.assertIn(f"but {other} is 1.0.0\n", ended.stderr)

    def test_what_is_not_built_or_no_packed_folder_is_refused(self):
        ended = self.pack(self.packed, "benchmarks/models", "nothing")
        self.assertEqual((ended.returncode, ended.stderr),
                         (2, "gpu-pack: build/nothing is missing; run tools/cuda-build, which builds it\n"))
        self.assertTrue((self.packed / "run").exists())
        ended = self.pack(self.folder.name, "benchmarks/models")
        self.assertEqual(ended.returncode, 2)
        self.assertIn("is no packed build", ended.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
