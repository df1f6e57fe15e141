"""Types, docstrings and imports of the package."""

import graphlib
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import chimerapipe as cp

PROJECT = Path(__file__).parents[3]


def test_mypy_is_content(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import chimerapipe as cp\n"
        "makespan: float = cp.schedule('chimera', stages=4, micro_batches=8).simulate().makespan\n"
        "rows: list[str] = [violation.message for violation in cp.Schedule(['0F0 0B0']).check()]\n"
        "wrong: str = makespan\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", f"--config-file={PROJECT / 'pyproject.toml'}"]
    command += [f"--cache-dir={tmp_path}", str(Path(cp.__file__).parent), str(program)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    assert [line for line in found.splitlines() if "error" in line and not line.startswith("Found")] == [
        line for line in found.splitlines() if "program.py:4" in line
    ], found
    assert "program.py:4" in found


def test_everything_that_is_exported_is_explained():
    for name in cp.__all__:
        if name in cp._OF_TORCH and importlib.util.find_spec("torch") is None:
            continue
        value = getattr(cp, name)
        assert inspect.getdoc(value), name
        if not inspect.isclass(value):
            continue
        for member, method in vars(value).items():
            if not member.startswith("_") and (inspect.isfunction(method) or isinstance(method, property)):
                assert inspect.getdoc(method), f"{name}.{member}"


def test_it_needs_no_torch():
    code = "import sys, chimerapipe; sys.exit(sys.modules.get('torch') is not None)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_modules_have_no_import_cycle():
    files = Path(cp.__file__).parent.glob("_[a-z]*.py")
    imports = {file.stem: re.findall(r"^ *from \.(_\w+) import", file.read_text(), re.MULTILINE) for file in files}
    assert "_profile" in imports["_measure"]
    graphlib.TopologicalSorter(imports).prepare()  # Raises CycleError
