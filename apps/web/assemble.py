"""Writes the playground as one HTML file: style, drawing code, rooms, machine profiles and the compiled engine.

The engine is embedded as gzip in base64, and a web worker made from a blob runs it, so the page loads no other file.
Equal sources give equal bytes.
"""

import argparse
import base64
import gzip
import json
import pathlib

DRAWING = ["data.js", "draw.js", "view.js", "picture.js", "totals.js", "plot.js"]
ROOMS = ["engine.js", "state.js", "controls.js", "chart.js", "scenario.js", "follow.js", "order.js", "sweep.js",
         "schedules.js", "editor.js", "marks.js", "finder.js", "own.js", "model.js", "plan.js", "app.js"]
MOST_BYTES = 3_000_000  # small enough for e-mail


def text_of(folder, names):
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def embedded(value):
    """Returns JSON that is safe in a script element: without `</script>` and `<!--`."""
    return json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")


def machines_of(folder):
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.json"))}


def assemble(options):
    wasm = options.engine.with_suffix(".wasm").read_bytes()
    fields = {
        "@style@": text_of(options.drawing, ["plot.css"]) + text_of(options.page, ["style.css"]),
        "@script@": text_of(options.drawing, DRAWING) + text_of(options.page, ROOMS),
        "@machines@": embedded(machines_of(options.machines)),
        "@engine@": embedded({"script": options.engine.read_text(encoding="utf-8"),
                              "wasm": base64.b64encode(gzip.compress(wasm, 9, mtime=0)).decode("ascii")}),
        "@version@": options.version,
    }
    page = (options.page / "page.html").read_text(encoding="utf-8")
    for field, text in fields.items():
        assert page.count(field) == 1, field
    parts = [page]
    for field, text in fields.items():  # inserted text is not searched for fields
        at = next(i for i, part in enumerate(parts) if i % 2 == 0 and field in part)
        before, after = parts[at].split(field)
        parts[at:at + 1] = [before, text, after]
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ["page", "drawing", "machines", "engine", "output"]:
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    options = parser.parse_args()
    page = assemble(options).encode("utf-8")
    if len(page) > MOST_BYTES:
        raise SystemExit(f"assemble.py: the page has {len(page)} bytes, more than {MOST_BYTES}")
    options.output.write_bytes(page)


if __name__ == "__main__":
    main()
