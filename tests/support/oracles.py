"""The Python packages that tests compare with; `./dev oracles` installs them."""

import importlib
import sys


def require(*names):
    """The modules of these names; the test is skipped (exit 77, which CTest knows) where one cannot be imported."""
    modules = []
    for name in names:
        try:
            modules.append(importlib.import_module(name))
        except (ImportError, OSError) as error:
            print(f"skipped: {name} cannot be imported ({error}); ./dev oracles installs it")
            sys.exit(77)
    return modules[0] if len(modules) == 1 else modules
