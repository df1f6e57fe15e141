"""The Python packages that tests compare with. `tools/oracles` installs them."""

import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest


def require(*names):
    """Returns the modules. If an import fails, skips the test (exit code 77 for CTest), or fails if
    CHIMERA_NEED_ORACLES is set."""
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except (ImportError, OSError) as error:
            if os.environ.get("CHIMERA_NEED_ORACLES"):
                raise
            print(f"skipped: {name} cannot be imported ({error}); tools/oracles installs it")
            sys.exit(77)
    return modules[0] if len(modules) == 1 else modules


class OracleTest(unittest.TestCase):
    """Has a folder of its own, and the program that is the first argument."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def chimera(self, *words, **more):
        """Returns the output of the program, which must succeed."""
        result = subprocess.run([sys.argv[1], *map(str, words)], capture_output=True, encoding="utf-8", check=False, **more)
        self.assertEqual(result.returncode, 0, f"{words}\n{result.stderr}")
        return result.stdout
