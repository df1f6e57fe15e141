"""The Python packages that tests compare with. `tools/oracles` installs them."""

import importlib
import os
import sys


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
