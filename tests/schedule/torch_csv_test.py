"""PyTorch reads what `chimera schedule --format csv` writes, and `chimera` what PyTorch writes.

Usage: torch_csv_test.py CHIMERA FIXTURES. Exits with 77 (skipped) where no torch package is installed.
"""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch_csv

CHIMERA, FIXTURES = sys.argv[1:]
SHAPES = [(2, 4), (4, 8), (4, 16)]  # D, N


def chimera(*arguments):
    return subprocess.run([CHIMERA, *map(str, arguments)], capture_output=True, text=True, check=False)


def op_text(op):
    return f"{op['stage']}{op['op']}{op['micro_batch']}"


def single_replica_schedules():
    """Name, flags and JSON of every registered schedule that a PyTorch file can hold."""
    for entry in json.loads(chimera("schedules", "--format", "json").stdout):
        for stages, micro_batches in SHAPES:
            flags = ["--stages", stages, "--micro-batches", micro_batches]
            result = chimera("schedule", entry["name"], *flags, "--format", "json")
            if result.returncode != 0:
                continue  # no such shape
            schedule = json.loads(result.stdout)
            if len(schedule["replicas"]) == 1 and schedule.get("synchronous", True):
                yield entry["name"], flags, schedule


class TorchCsvTest(unittest.TestCase):
    def test_pytorch_reads_our_files(self):
        names = set()
        for name, flags, schedule in single_replica_schedules():
            expected = [[op_text(op) for op in ops] for ops in schedule["workers"]]
            for dialect, more in (("compute_only", []), ("compute_comms", ["--communication"])):
                with self.subTest(name, flags=flags, dialect=dialect), tempfile.TemporaryDirectory() as folder:
                    path = f"{folder}/schedule.csv"
                    written = chimera("schedule", name, *flags, "--format", "csv", *more, "--output", path)
                    self.assertEqual(written.returncode, 0, written.stderr)
                    reader = torch_csv.runtime(SCHEDULES, len(expected), schedule["stages"], schedule["micro_batches"])
                    reader._load_csv(path, dialect)  # validates the order, and lowers compute_only
                    orders = reader.pipeline_order if dialect == "compute_only" else reader.pipeline_order_with_comms
                    self.assertEqual([torch_csv.ops_of(orders[w]) for w in range(len(expected))], expected)
                    self.dry_run(reader)
                    names.add(name)
        self.assertGreaterEqual(len(names), 2, "gpipe and 1f1b at least")
        print("PyTorch read:", ", ".join(sorted(names)))

    def dry_run(self, reader):
        """PyTorch's own, which knows ops and messages only, no pairs (not those of its DualPipeV either); raises where
        receives and sends block each other."""
        orders = {worker: [action for cell in actions for action in cell.sub_actions or [cell]
                           if str(action.computation_type.value) not in ("UNSHARD", "RESHARD", "REDUCE_GRAD")]
                  for worker, actions in reader.pipeline_order_with_comms.items()}
        holder = reader.stage_index_to_group_rank
        SCHEDULES._simulate_comms_compute(orders, lambda stage: holder[stage], reader._num_stages)

    def test_we_read_pytorchs_files(self):
        for workers, micro_batches in SHAPES:
            if micro_batches < 2 * workers:
                continue  # DualPipeV needs as many micro-batches as stages
            with tempfile.TemporaryDirectory() as folder:
                for path, orders in torch_csv.write_all(SCHEDULES, folder, workers, micro_batches):
                    with self.subTest(path.name, workers=workers, micro_batches=micro_batches):
                        self.assert_read(path, orders)

    def assert_read(self, path, orders):
        verdict = chimera("check", path)
        if path.name in torch_csv.FAULTY:
            self.assertEqual(verdict.returncode, 1, verdict.stderr)
            return
        self.assertEqual(verdict.returncode, 0, verdict.stdout + verdict.stderr)
        timeline = json.loads(chimera("simulate", "--file", path, "--format", "json").stdout)
        ours = [[op_text(op) for op in worker["ops"]] for worker in timeline["workers"]]
        self.assertEqual(ours, [torch_csv.ops_of(orders[w]) for w in range(len(orders))])

    def test_our_orders_are_pytorchs(self):
        for name, class_name in (("interleaved-1f1b", "ScheduleInterleaved1F1B"),
                                 ("interleaved-zb", "ScheduleInterleavedZeroBubble")):
            for workers, micro_batches, chunks in itertools.product((2, 3, 4, 8), (4, 6, 8, 12, 16), (2, 3)):
                with self.subTest(name, workers=workers, micro_batches=micro_batches, chunks=chunks):
                    ours = chimera("schedule", name, "--stages", workers, "--micro-batches", micro_batches,
                                   "--chunks", chunks, "--format", "json")
                    stages = torch_csv.stages_of_worker(workers, chunks * workers)
                    try:
                        theirs = getattr(SCHEDULES, class_name)(stages, micro_batches).pipeline_order
                    except ValueError:  # N does not split into equal rounds
                        self.assertEqual(ours.returncode, 2, ours.stdout)
                        continue
                    self.assertEqual([[op_text(op) for op in ops] for ops in json.loads(ours.stdout)["workers"]],
                                     [torch_csv.ops_of(theirs[w]) for w in range(workers)])

    def test_fixtures_are_what_pytorch_writes(self):
        if torch_csv.version() != "2.11.0":
            self.skipTest("recorded with PyTorch 2.11.0")
        with tempfile.TemporaryDirectory() as folder:
            for path, _ in torch_csv.write_all(SCHEDULES, folder, 4, 8):
                self.assertEqual(path.read_bytes(), (pathlib.Path(FIXTURES) / path.name).read_bytes(), path.name)


SCHEDULES = torch_csv.load_schedules()
if SCHEDULES is None:
    print("no torch package")
    sys.exit(77)
unittest.main(argv=sys.argv[:1], verbosity=2)
