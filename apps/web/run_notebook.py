"""Runs the cells of a notebook in order and prints their outputs as JSON: run_notebook.py FILE.ipynb

One list per code cell, with pairs of a kind (text, svg, html) and its text, as Jupyter would show them.
"""

import ast
import contextlib
import io
import json
import sys


def shown(value):
    for kind in ["svg", "html"]:
        text = getattr(value, f"_repr_{kind}_", lambda: None)()
        if text:
            return [(kind, text)]
    return [] if value is None else [("text", repr(value))]


def run(source, names):
    """Returns the outputs of a cell: what it prints, then the value of its last expression."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        value = eval(compile(last, "cell", "eval"), names) if last else None
    return [("text", printed.getvalue())] * bool(printed.getvalue()) + shown(value)


with open(sys.argv[1], encoding="utf-8") as file:
    cells = json.load(file)["cells"]
scope = {}
json.dump([run("".join(cell["source"]), scope) for cell in cells if cell["cell_type"] == "code"], sys.stdout)
