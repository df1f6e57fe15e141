#!/usr/bin/env python3
"""Trains on a disk that fails again and again.

  benchmarks/disks.py [--failures 100] [--seed 1] [--program build/chimera]

gpt2-tiny on four ranks saves every ten steps to a small file system in memory (needs root). The file system is filled,
or remounted read-only, until a save fails. Then the previous checkpoint must be intact. After space is available again,
the run must save a new one without intervention. At the end, every step must have the parameters of the undisturbed
run. Exits with 1 if a condition fails, with 77 if this machine does not permit the test.
"""
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faulted import SKIPPED, Run, campaign_parser, describe, failures, own_text, require, require_undisturbed

SIZE = 24 << 20  # Bytes of the file system


class Disk:
    """A file system in a mount namespace of this process and its children."""

    def __init__(self, path):
        self.path = path
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", path], check=True)

    def close(self):
        subprocess.run(["umount", "--lazy", self.path], check=True)

    def remount(self, how):
        return subprocess.run(["mount", "-o", f"remount,{how}", self.path], capture_output=True).returncode == 0

    def fill(self):
        with open(self.path / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 16))
            except OSError:
                pass

    def spoil(self, kind):
        if kind == "full":
            self.fill()
        else:
            while not self.remount("ro"):  # The system refuses it while a file is open for writing
                time.sleep(0.001)

    def mend(self, kind):
        if kind == "full":
            (self.path / "filler").unlink()
        else:
            require(self.remount("rw"), "the file system cannot be mended")


def checkpoints(folder):
    return sorted(int(path.parent.name[5:]) for path in folder.glob("step-*[0-9]/manifest.json"))


def fail(options, run, disk, kind):
    """Runs one failure until the next checkpoint. Returns the seconds from the end of the failure to that checkpoint.
    """
    said = run.messages().count("is not saved")
    disk.spoil(kind)
    newest = run.newest()
    while run.messages().count("is not saved") == said and run.process.poll() is None:
        time.sleep(0.005)
    require(run.await_step_after(max(newest, run.newest())), f"{kind}: no steps any more: {run.messages()[-500:]}")
    kept = checkpoints(disk.path / "run")
    verified = subprocess.run([options.program, "checkpoint", "verify", disk.path / "run"], capture_output=True)
    require(verified.returncode == 0, f"{kind}: the checkpoint before it is not whole: {verified.stderr.decode()}")
    start = time.monotonic()
    disk.mend(kind)
    while max(checkpoints(disk.path / "run")) <= max(kept) and time.monotonic() < start + 120:
        time.sleep(0.005)
    require(max(checkpoints(disk.path / "run")) > max(kept), f"{kind}: no checkpoint after it: {run.messages()[-500:]}")
    return time.monotonic() - start


def campaign(options, chance, folder):
    disk = Disk(folder / "disk")
    try:
        flags = ["--checkpoint", str(disk.path / "run"), "--save-every", "10", "--keep", "2", "--flight-record", "none"]
        run = Run(options, folder, 1_000_000, flags)
        run.start()
        while not checkpoints(disk.path / "run"):
            time.sleep(0.01)
        kinds = [chance.choice(["full", "read-only"]) for _ in range(options.failures)]
        seconds = [fail(options, run, disk, kind) for kind in kinds]
        run.process.send_signal(signal.SIGTERM)
        require(run.end() == 75, f"the run did not save at its end: {run.messages()[-500:]}")
        run.close()
        describe(f"{len(kinds)} failures ({kinds.count('full')} x full, {kinds.count('read-only')} x read-only), from there being "
                 "room to the next checkpoint", seconds)
        print(f"{run.messages().count('is not saved')} lines said that a checkpoint is not saved")
        require_undisturbed(run, "in the end", folder)
    finally:
        disk.close()


def main():
    parser = campaign_parser(__doc__)
    parser.add_argument("--failures", type=int, default=100)
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("skipped: needs what root may do", file=sys.stderr)
        return SKIPPED
    if not os.environ.get("CHIMERA_OWN_MOUNTS"):  # Restarts this program in its own mount namespace
        own = os.environ | {"CHIMERA_OWN_MOUNTS": "1"}
        os.execvpe("unshare", ["unshare", "--mount", sys.executable, *sys.argv], own)
    with own_text(options), tempfile.TemporaryDirectory() as folder:
        campaign(options, random.Random(options.seed), Path(folder))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
