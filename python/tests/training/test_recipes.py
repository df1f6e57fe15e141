"""Runs the recipes of docs/bring_your_model.md on rank threads."""

import contextlib
import io
import re
from pathlib import Path

import pytest
from models import oracle

PAGE = Path(__file__).parents[3] / "docs" / "bring_your_model.md"
RECIPES = re.findall(
    r"^## ([^\n]*)\n(?:(?!^## ).)*?^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize(("title", "program"), RECIPES, ids=[title for title, _ in RECIPES])
def test_a_recipe_runs(title, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for module in re.findall(r"^from (peft|transformers) import", program, re.MULTILINE):
        oracle(module)
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(program, names)
    loss = names["trained"].training_loss if title == "Trainer" else names["step"].loss
    assert loss > 0


def test_there_are_seven():
    assert len(RECIPES) == 7
