"""Records torch's schedules on Gloo ranks, and compares what `chimera diagnose` reads with the orders of torch.

Usage: torch_test.py CHIMERA.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import oracles

oracles.require("torch")
CHIMERA = sys.argv[1]
RECORDER = pathlib.Path(__file__).parent / "record_traces.py"
SCHEDULES = ["gpipe", "looped_bfs", "interleaved_1f1b", "interleaved_zb", "zbv", "dualpipev"]
NAMES = {"gpipe": "gpipe", "interleaved_1f1b": "interleaved-1f1b", "interleaved_zb": "interleaved-zb", "zbv": "zb-v",
         "dualpipev": "dualpipev"}


def record(schedule, folder, *options):
    """Returns the orders of torch."""
    command = [sys.executable, RECORDER, schedule, folder, "--steps", "2", "--width", "8", *options]
    result = subprocess.run([str(each) for each in command], capture_output=True, text=True, timeout=300)
    if result.returncode != 0:
        raise RuntimeError(result.stderr[-4000:])
    return json.loads((pathlib.Path(folder) / "orders.txt").read_text())


def diagnose(*arguments):
    command = [CHIMERA, "diagnose", *map(str, arguments), "--search-seconds", "0.1"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def read(folder):
    result = diagnose(folder, "--format", "json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    ops = json.loads(answer["schedule"])["workers"]
    return answer, [[f"{op['stage']}{op['op']}{op['micro_batch']}" for op in row] for row in ops]


class TorchTraces(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_orders_are_exact(self):
        for schedule, ranks in [*((each, 2) for each in SCHEDULES), ("interleaved_zb", 4), ("dualpipev", 4)]:
            with self.subTest(schedule, ranks=ranks):
                folder = self.folder / f"{schedule}{ranks}"
                orders = record(schedule, folder, "--ranks", ranks, "--micro-batches", 2 * ranks)
                answer, ops = read(folder)
                if orders:
                    self.assertEqual(ops, orders)
                self.assertEqual(answer["name"], NAMES.get(schedule, "own order"))
                self.assertEqual(len(answer["steps"]), 2)

    def test_data_parallel_ranks_in_compressed_files(self):
        orders = record("interleaved_1f1b", self.folder, "--data-parallel", 2, "--zip")
        answer, ops = read(self.folder)
        self.assertEqual(ops, orders)
        self.assertEqual(answer["ranks"], [0, 1])

    def test_1f1b_of_torch_is_refused_with_the_remedy(self):
        record("1f1b", self.folder)
        result = diagnose(self.folder)
        self.assertEqual(result.returncode, 2)
        remedy = re.search(r"`chimera (schedule 1f1b [^`]*)`", result.stderr)[1].replace(" D ", " 2 ").replace(" N ", " 4 ")
        csv = subprocess.run([CHIMERA, *remedy.split()], capture_output=True, text=True, check=True).stdout
        (self.folder / "1f1b.csv").write_text(csv)
        record(self.folder / "1f1b.csv", self.folder / "again")
        self.assertEqual(read(self.folder / "again")[0]["name"], "1f1b")

    def test_written_files_run_in_torch_and_read_back(self):
        record("looped_bfs", self.folder / "first")
        result = diagnose(self.folder / "first", "--output", self.folder / "out")
        self.assertEqual(result.returncode, 0, result.stderr)
        files = sorted((self.folder / "out").glob("better-*.csv"))
        self.assertTrue(files)
        for number, file in enumerate([self.folder / "out" / "ran.csv", files[0]]):
            folder = self.folder / f"again{number}"
            record(file, folder)
            rows = [re.findall(r"\d+[FBIW]\d+", row) for row in file.read_text().splitlines()]
            self.assertEqual(read(folder)[1], rows)


unittest.main(argv=sys.argv[:1], verbosity=2)
