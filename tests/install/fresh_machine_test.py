#!/usr/bin/env python3
"""tools/fresh_machine removes what it made, and nothing else; packages are named. fresh_machine_test.py ROOT

No system is made: programs of these names stand in for those that would make one, enter it or need root. `rm` removes
below the test's own folder only.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(sys.argv[1]).resolve() / "tools/fresh_machine"
STAND_INS = {
    "id": "echo 0",
    "git": "exit 0",
    "chroot": "exit 0",
    "unshare": "exit 0",
    "mktemp": 'mkdir -p "$SCRATCH/logs" && echo "$SCRATCH/logs"',
    "mmdebstrap": '''for root; do case $root in "$SCRATCH"/*/*.conf | -*) ;; "$SCRATCH"/*) break ;; esac; done
mkdir -p "$root/etc/apt/apt.conf.d" "$root/usr" && exit "${MMDEBSTRAP_EXIT:-0}"''',
    "rm": '''for path; do case $path in -* | "$SCRATCH"/*) ;; *) echo "rm $path" >> "$SCRATCH/strays"; exit 1 ;; esac; done
exec /bin/rm "$@"''',
}


class FreshMachineTest(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())).resolve()
        self.folder = self.scratch / "system"
        (self.scratch / "bin").mkdir()
        for name, line in STAND_INS.items():
            program = self.scratch / "bin" / name
            program.write_text(f"#!/bin/sh\n{line}\n")
            program.chmod(0o755)

    def run_tool(self, *arguments, folder=None, **environment):
        paths = {"PATH": f"{self.scratch}/bin:{os.environ['PATH']}", "SCRATCH": str(self.scratch)}
        done = subprocess.run([TOOL, "--parts", "refusal", "--folder", folder or self.folder, *arguments],
                              env=os.environ | paths | environment, capture_output=True, text=True, check=False)
        self.assertFalse((self.scratch / "strays").exists())
        return done

    def assert_refused(self, done, words):
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, f"^fresh_machine: --folder [^\n]*{words}[^\n]*; give a [^\n]*\n$")

    def test_refuses_the_system_it_runs_on(self):
        (self.scratch / "link").symlink_to("/")
        for folder in ["/", "//", "/usr/..", str(self.scratch / "link")]:
            with self.subTest(folder):
                self.assert_refused(self.run_tool(folder=folder), "this machine's own system")

    def test_refuses_what_it_did_not_make_and_leaves_it(self):
        (self.folder / "usr").mkdir(parents=True)
        self.assert_refused(self.run_tool(), "did not make")
        self.assertTrue((self.folder / "usr").exists())
        file = self.scratch / "file"
        file.touch()
        self.assert_refused(self.run_tool(folder=file), "is no folder")
        self.assertTrue(file.exists())

    def test_removes_a_new_folder_and_empties_an_empty_one(self):
        done = self.run_tool()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(self.folder.exists())
        self.folder.mkdir()
        self.assertEqual(self.run_tool().returncode, 0)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_removes_what_it_made_of_a_system_that_failed(self):
        self.assertEqual(self.run_tool(MMDEBSTRAP_EXIT="1").returncode, 1)
        self.assertFalse(self.folder.exists())

    def test_uses_what_it_kept_again_and_leaves_it(self):
        done = self.run_tool("--keep")
        self.assertRegex(done.stdout, f"kept: {self.folder}\n")
        done = self.run_tool()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotRegex(done.stdout, "system +[0-9]")  # no second one was made
        self.assertRegex(done.stdout, f"kept: {self.folder}\n")
        self.assertTrue((self.folder / "usr").exists())

    def test_does_not_take_half_a_system_for_one(self):
        self.run_tool("--keep", MMDEBSTRAP_EXIT="1")
        self.assertTrue((self.folder / "usr").exists())
        self.assert_refused(self.run_tool(), "did not make")


class PackagesTest(unittest.TestCase):
    def test_what_tools_need_and_what_runs_skipped_tests_is_named(self):
        root = TOOL.parent.parent
        script = f'''cd {root} && . tools/setup.sh && echo $packages $test_packages
eval "$(sed -n '/^say_what_runs_them/,/^is_skipped_for/p' dev)"
skipped="a: zsh is missing
b: transformers cannot be imported; tools/oracles installs it"
say_what_runs_them'''
        done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
        installed, *more = done.stdout.splitlines()
        for tool in TOOL.parent.iterdir():
            for package in re.findall(r"is missing; install ([\w-]+)", tool.read_text(errors="replace")):
                self.assertIn(package, installed.split(), tool)
        self.assertEqual(more, ["to run more of them: apt-get install --no-install-recommends zsh",
                                "to run those that compare with Python packages: tools/oracles (4.9 GB)"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
