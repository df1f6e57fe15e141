"""Runs the programs of docs/python.md that need no torch, and the notebooks."""

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "python.md"


def test_programs_print_what_the_page_shows():
    blocks = re.findall(r"^```python\n(.*?)^```\n\n```\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    names: dict[str, object] = {}
    for program, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(program, names)
        assert printed.getvalue() == expected


def test_the_readme_shows_the_example():
    example = PAGE.parents[1] / "examples" / "first_pipeline.py"
    assert f"```python\n{example.read_text()}```" in (PAGE.parents[1] / "README.md").read_text()


@pytest.mark.parametrize("notebook", sorted((PAGE.parents[1] / "examples").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_cells_of_notebooks_run_in_order(notebook):
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    if any("import torch" in "".join(cell["source"]) for cell in cells):
        pytest.importorskip("torch")
        pytest.importorskip("chimerapipe._built_for")
    names: dict[str, object] = {}
    for cell in cells:
        with contextlib.redirect_stdout(io.StringIO()):
            exec("".join(cell["source"]), names)
    for value in names.values():
        for way in ("_repr_html_", "_repr_svg_"):
            shown = getattr(value, way)() if not isinstance(value, type) and hasattr(value, way) else None
            assert shown is None or shown.lstrip().startswith(("<svg", "<table", "<?xml"))
