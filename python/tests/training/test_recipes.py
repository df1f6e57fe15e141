"""Runs the recipes of docs/bring_your_model.md, on rank threads or on processes."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from forked_ranks import forked
from models import oracle

PAGE = Path(__file__).parents[3] / "docs" / "bring_your_model.md"
RECIPES = re.findall(r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


ON_MESHES = [each for each in RECIPES if "init_device_mesh" in each[1]]
ON_THREADS = [each for each in RECIPES if each not in ON_MESHES]


@pytest.mark.parametrize(("title", "program"), ON_THREADS, ids=[title for title, _ in ON_THREADS])
def test_a_recipe_runs(title, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in re.findall(r"^from (peft|transformers) import", program, re.MULTILINE):
        oracle(module)
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(program, names)
    loss = names["trained"].training_loss if title == "Trainer" else names["step"].loss
    assert loss > 0


@pytest.mark.parametrize(("title", "program"), ON_MESHES, ids=[title for title, _ in ON_MESHES])
def test_a_recipe_runs_on_processes(title, program, tmp_path):
    """`python` starts them for the first recipe, as torchrun does for all."""
    recipe = tmp_path / "recipe.py"
    recipe.write_text(program)
    printed = forked(0 if title == ON_MESHES[0][0] else 4, recipe, folder=tmp_path)
    assert len(printed.splitlines()) == 1 and float(printed.split()[0]) > 0, printed


def test_there_are_nine():
    assert len(RECIPES) == 9
