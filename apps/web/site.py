"""Writes the site as plain files: start page, playground, lessons, records, documents, notebooks.

The pages are assembled from apps/web/site, the scripts of the playground and the documents. Node runs the compiled
engine for pictures and numbers. Notebooks show outputs if the Python package is built (./dev python).
"""

import argparse
import base64
import gzip
import html
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import markdown

import assemble

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
PARTS = FOLDER / "site"
SHARED = ["engine.js", "state.js", "controls.js", "chart.js", "scenario.js", "order.js", "editor.js", "marks.js",
          "finder.js"]
PAGES = [("Playground", "playground/"), ("Lessons", "lessons/"), ("Records", "records/"), ("Documents", "documents/"),
         ("Notebooks", "notebooks/")]
POLICY = ("default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self' 'wasm-unsafe-eval'; "
          "worker-src 'self'; connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'")
FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{up}assets/site.css">
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<nav class="site" aria-label="site"><a class="name" href="{up}index.html">Chimera</a>{links}</nav>
{body}
<footer>Chimera {version}, {date}. No cookies, no analytics; nothing is loaded from elsewhere.</footer>
{scripts}
</body>
</html>
"""
SHOWN = [
    ("GPipe", "gpipe", "All forwards, then all backwards: workers are idle for {bubble} of the step."),
    ("1F1B", "1f1b", "The same time, but a backward runs as soon as it can, so fewer activations are kept."),
    ("Chimera", "chimera", "Two pipelines in opposite directions fill each other's bubbles: {bubble} idle. Each worker "
     "holds two stages."),
    ("Chimera, split backward", "chimera-zb", "The part of a backward that nobody waits for fills most of the rest: "
     "{bubble} idle."),
]


def book():
    """Returns the module tools/make_book."""
    loader = importlib.machinery.SourceFileLoader("make_book", str(ROOT / "tools" / "make_book"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("make_book", loader))
    loader.exec_module(module)
    return module


def ask(engine, requests):
    """Returns the engine's answers."""
    lines = subprocess.run(["node", ROOT / "tests" / "answers" / "ask.js", engine], text=True, check=True,
                           input="\n".join(map(json.dumps, requests)) + "\n", stdout=subprocess.PIPE).stdout
    answers = [json.loads(line) for line in lines.splitlines()]
    for answer in answers:
        if "error" in answer:
            raise SystemExit(f"site.py: {answer['error']}")
    return answers


def number(value):
    return f"{value:.6g}"


def data(name, value):
    return f'<script type="application/json" id="{name}">{assemble.embedded(value)}</script>'


class Site:
    def __init__(self, options):
        self.options = options
        self.output = options.output

    def write(self, path, text):
        file = self.output / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def page(self, path, title, body, scripts=(), values=()):
        up = "../" * path.count("/")
        links = "".join(f'<a href="{up}{place}index.html"' + (' aria-current="page"' if path.startswith(place) else "")
                        + f">{name}</a>" for name, place in PAGES)
        parts = [*values]
        if "shared" in scripts:
            parts.append(data("engine", {"folder": f"{up}engine/"}))
        parts += [f'<script src="{up}assets/{name}.js"></script>' for name in scripts]
        self.write(path, FRAME.format(policy=POLICY, title=html.escape(title), up=up, links=links, body=body,
                                      version=self.options.version, date=self.options.date, scripts="\n".join(parts)))

    def assets(self):
        drawing, rooms = ROOT / "src" / "render" / "page", FOLDER / "page"
        self.write("assets/site.css", assemble.text_of(drawing, ["plot.css"]) + assemble.text_of(rooms, ["style.css"])
                   + assemble.text_of(PARTS, ["site.css"]))
        shared = assemble.text_of(drawing, assemble.DRAWING) + assemble.text_of(rooms, SHARED)
        self.write("assets/shared.js", shared)
        self.write("assets/playground.js",
                   assemble.text_of(rooms, [name for name in assemble.ROOMS if name not in SHARED]))
        self.write("assets/lessons.js", assemble.text_of(PARTS, ["lesson_list.js", "lessons.js"]))
        self.write("assets/records.js", assemble.text_of(PARTS, ["records.js"]))
        self.write("assets/start.js", assemble.text_of(PARTS, ["start.js"]))
        self.write("assets/fold.js", assemble.text_of(PARTS, ["fold.js"]))
        engine = self.options.engine
        serve = re.search(r"^function serve\(\) \{\n.*?^\}\n", shared, re.DOTALL | re.MULTILINE)[0]
        self.write("engine/engine.js", engine.read_text(encoding="utf-8") + "\n" + serve + "serve();\n")
        packed = gzip.compress(engine.with_suffix(".wasm").read_bytes(), 9, mtime=0)
        (self.output / "engine" / "engine.bin").write_bytes(packed)  # no .gz: some hosts unpack such files

    def start(self):
        shape = {"stages": 4, "micro_batches": 4}
        catalog, *answers = ask(self.options.engine, [{"do": "catalog"}, *(
            {"do": "simulate", "schedule": {"name": name, **shape}} for _, name, _ in SHOWN)])
        schedules = [{"title": title, "panel": answer["panel"],
                      "words": words.format(bubble=f"{100 * answer['totals']['bubble_ratio']:.0f} %")}
                     for (title, _, words), answer in zip(SHOWN, answers)]
        self.page("index.html", "Chimera: pipelines and their bubbles",
                  (PARTS / "start.html").read_text().replace("@downloads@", self.downloads()), ["shared", "start"],
                  [data("shown", {"page": catalog["page"], "schedules": schedules})])

    def downloads(self):
        """Copies what is built, and returns the list of links."""
        found = [(ROOT / "build" / "web" / "playground.html",
                  "the playground as one file, which works without a network")]
        found += [(path, "Python package") for path in sorted((ROOT / "build" / "wheels").glob("**/*.whl"))]
        found += [(path, "program") for path in sorted((ROOT / "build" / "packages").glob("chimera*.*"))
                  if path.suffix in (".deb", ".gz")]
        rows = []
        (self.output / "downloads").mkdir(parents=True, exist_ok=True)
        for path, words in found:
            if path.is_file():
                shutil.copyfile(path, self.output / "downloads" / path.name)
                rows.append(f'<li><a href="downloads/{path.name}" download>{path.name}</a>: {words} '
                            f"({path.stat().st_size / 1e6:.1f} MB)</li>")
        return "\n".join(rows)

    def playground(self):
        body = ('<header id="head"><h1>Playground</h1><div role="tablist" aria-label="views" id="tabs"></div></header>'
                '<p id="waiting" role="status">Loading…</p>'
                '<noscript><p>The playground needs JavaScript.</p></noscript>'
                '<main id="content"><div id="rooms"></div></main>')
        self.page("playground/index.html", "Chimera playground", body, ["shared", "playground"],
                  [data("machines", assemble.machines_of(ROOT / "machines"))])

    def lessons(self):
        self.page("lessons/index.html", "Chimera: lessons", (PARTS / "lessons.html").read_text(),
                  ["fold", "shared", "lessons"])

    def records(self):
        folder = ROOT / "benchmarks" / "records"
        records = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        pictures = ask(self.options.engine, [
            {"do": "export", "format": "svg", "schedule": {"text": json.dumps(record["schedule"])},
             "costs": {"file": json.dumps(record["costs"])}} for record in records])
        rows, shapes = [], []
        for record, picture in zip(records, pictures):
            name = record["name"]
            self.write(f"records/{name}.svg", picture["text"])
            shutil.copyfile(folder / f"{name}.json", self.output / "records" / f"{name}.json")
            shapes.append(shape_of(record))
            rows.append(record_row(record))
        solved = sum(gap_of(record) == 0 for record in records)
        body = (PARTS / "records.html").read_text().replace("@rows@", "\n".join(rows)).replace(
            "@solved@", str(solved)).replace("@open@", str(len(records) - solved))
        self.page("records/index.html", "Chimera: records", body, ["shared", "records"], [data("records", shapes)])

    def documents(self):
        with tempfile.TemporaryDirectory() as scratch:
            pages = pathlib.Path(scratch) / "pages"
            make_book = book()
            reference = ROOT / "build" / "reference"
            make_book.make(argparse.Namespace(
                output=pages, reference=str(reference) if (reference / "markdown").is_dir() else None))
            shutil.copytree(pages / "images", self.output / "documents" / "images", dirs_exist_ok=True)
            groups = groups_of_book()
            names = {file: file.relative_to(pages).with_suffix(".html") for file in sorted(pages.glob("**/*.md"))}
            for file, name in names.items():
                text = html_of(file.read_text(), make_book.slug)

                def kept(match):
                    """Keeps a link to a page; a link to another file of the sources becomes its words."""
                    target = os.path.normpath(name.parent / match[1].partition("#")[0]) if match[1][0] != "#" else name
                    return match[0] if pathlib.Path(target) in names.values() else match[2]

                text = re.sub(r'<a href="(?![a-z]+:)([^"]+)">(.*?)</a>', kept, text, flags=re.DOTALL)
                self.document(f"documents/{name.as_posix()}", text, groups)

    def document(self, path, text, groups):
        title = html.unescape(re.sub(r"<[^>]*>", "", re.search(r"<h1[^>]*>(.*?)</h1>|$", text)[1] or path))
        up = "../" * (path.count("/") - 1)
        items = []
        for group, entries in groups:
            links = "".join(
                f'<li><a href="{up}{target}"' + (' aria-current="page"' if path == f"documents/{target}" else "")
                + f">{html.escape(words)}</a></li>"
                for words, target in entries
                if not target.startswith("reference/") or (ROOT / "build/reference").is_dir())
            items.append(f"<p>{html.escape(group)}</p><ul>{links}</ul>" if group else f"<ul>{links}</ul>")
        body = ('<div class="with-list"><details class="side-list"><summary>All documents</summary>'
                f'<nav aria-label="documents">{"".join(items)}</nav></details>'
                f'<main class="document" id="content">{text}</main></div>')
        self.page(path, f"Chimera: {title}", body, ["fold"])

    def notebooks(self):
        links = []
        for path in sorted((ROOT / "examples").glob("*.ipynb")):
            parts, outputs = [], iter(outputs_of(path))
            for cell in json.loads(path.read_text())["cells"]:
                source = "".join(cell["source"])
                if cell["cell_type"] == "markdown":
                    parts.append(html_of(source))
                else:
                    parts.append(f'<div class="cell"><pre><code>{html.escape(source)}</code></pre></div>')
                    parts += [output_html(kind, text) for kind, text in next(outputs, [])]
            title = re.sub(r"<[^>]*>", "", re.search(r"<h1[^>]*>(.*?)</h1>", parts[0])[1]) if "<h1" in parts[0] \
                else path.stem
            shutil.copyfile(path, self.output / "notebooks" / path.name)
            self.page(f"notebooks/{path.stem}.html", f"Chimera: {title}",
                      f'<main class="page document" id="content">{"".join(parts)}<p><a href="{path.name}" download>'
                      f"Download {path.name}</a></p></main>")
            links.append(f'<li><a href="{path.stem}.html">{html.escape(title)}</a></li>')
        self.page("notebooks/index.html", "Chimera: notebooks",
                  '<main class="page document" id="content"><h1>Notebooks</h1><p>They run with the Python package '
                  f'(<a href="../documents/python.html">chimerapipe</a>).</p><ul>{"".join(links)}</ul></main>')

    def make(self):
        shutil.rmtree(self.output, ignore_errors=True)
        for folder in ["engine", "records", "documents", "notebooks"]:
            (self.output / folder).mkdir(parents=True)
        for part in [self.assets, self.start, self.playground, self.lessons, self.records, self.documents,
                     self.notebooks]:
            part()


def outputs_of(notebook):
    """Returns the outputs of each code cell; none if the Python package is not built or cannot run the notebook."""
    pythons = [ROOT / venv / "bin" / "python3" for venv in [".venv-oracles", ".venv"]]
    python = next((path for path in pythons if path.exists()), None)
    if python is None or not list((ROOT / "build" / "python" / "chimerapipe").glob("_scheduling*.so")):
        return []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "build" / "python"), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([python, FOLDER / "run_notebook.py", notebook], env=environment, text=True, timeout=120,
                         capture_output=True)
    return json.loads(ran.stdout) if ran.returncode == 0 else []


def output_html(kind, text):
    if kind == "svg":
        picture = base64.b64encode(text.encode()).decode("ascii")
        return f'<p><img alt="Picture of a schedule" src="data:image/svg+xml;base64,{picture}"></p>'
    if kind == "html":
        return scrolling(text)
    return f'<div class="cell output"><pre>{html.escape(text)}</pre></div>'


def scrolling(table):
    return f'<div class="table" tabindex="0" role="region" aria-label="table">{table}</div>'


def html_of(text, slug=None):
    toc = {"slugify": (lambda value, _: slug(value))} if slug else {}
    made = markdown.markdown(text, extensions=["tables", "fenced_code", "toc", "sane_lists"],
                             extension_configs={"toc": toc})
    made = re.sub(r'(href="(?![a-z]+:)[^"#]*)\.md', r"\1.html", made)
    made = made.replace("<img ", '<img loading="lazy" ')
    return re.sub(r"<table>.*?</table>", lambda match: scrolling(match[0]), made, flags=re.DOTALL)


def groups_of_book():
    """Returns the navigation of mkdocs.yml: a title, and pairs of words and page."""
    groups = [("", [])]
    for line in (ROOT / "mkdocs.yml").read_text().split("nav:\n")[1].splitlines():
        words, _, page = line.strip().removeprefix("- ").rpartition(":")
        if not page.strip():
            groups.append((words, []))
        else:
            if not line.startswith("      "):
                groups.append(("", []))
            groups[-1][1].append((words, page.strip().removesuffix(".md") + ".html"))
    return [group for group in groups if group[1]]


def gap_of(record):
    gap = record["makespan"] / record["lower_bound"] - 1
    return gap if gap > 1e-9 else 0


def shape_of(record):
    """Returns the facts that records.js compares with a schedule's."""
    schedule = record["schedule"]
    counts = [set() for _ in schedule["replicas"]]
    for ops in schedule["workers"]:
        for op in ops:
            counts[op["replica"]].add(op["micro_batch"])
    compact = {"separators": (",", ":")}
    return {"name": record["name"], "workers": len(schedule["workers"]), "micro_batches": record["micro_batches"],
            "slices": schedule.get("slices", 1),
            "placement": json.dumps([each["workers"] for each in schedule["replicas"]], **compact),
            "counts": json.dumps([len(each) for each in counts], **compact),
            "splits": "input_gradient" in record["costs"]["stages"][0]}


def costs_text(record):
    costs, stages = record["costs"], record["costs"]["stages"]
    names = [("forward", "F"), ("input_gradient", "I"), ("weight_gradient", "W"), ("backward", "B")]

    def of(stage):
        return ", ".join(f"{letter} {number(stage[name])}" for name, letter in names if name in stage)

    parts = [of(stages[0]) if all(stage == stages[0] for stage in stages) else f"uneven stages, first: {of(stages[0])}"]
    if costs["latency"]:
        parts.append(f"latency {number(costs['latency'])}")
    if "links" in costs:
        matrix = costs["links"]["alphas"]
        most = max(max(row) for row in matrix)
        slow = next((a, b) for a, row in enumerate(matrix) for b, value in enumerate(row) if value == most)
        parts.append(f"{number(most)} more between workers {slow[0]} and {slow[1]}")
    return "; ".join(parts)


def record_row(record):
    name, gap = record["name"], gap_of(record)
    limit = number(record["max_in_flight"]) if "max_in_flight" in record else "–"
    verdict = '<span class="gap0">solved: nobody can do better</span>' if gap == 0 else f"{100 * gap:.2f} %"
    slices = record["schedule"].get("slices", 1)
    placement = record["placement"] + (f", {slices} slices" if slices > 1 else "")
    return (f'<tr><td>{name}</td><td>{placement}</td><td class="number">{record["stages"]}</td>'
            f'<td class="number">{record["micro_batches"]}</td><td class="number">{limit}</td>'
            f'<td class="number">{number(record["makespan"])}</td>'
            f'<td class="number">{number(record["lower_bound"])}</td><td>{verdict}</td>'
            f'<td><button type="button" data-record="{name}" aria-label="Try {name}">Try</button></td></tr>'
            f'<tr class="more"><td colspan="9"><details><summary>{costs_text(record)}</summary>'
            f'<p>By <code>{html.escape(record["by"])}</code>, {record["date"]}. '
            f'<a href="{name}.json" download>{name}.json</a></p>'
            f'<img loading="lazy" src="{name}.svg" alt="Picture of the schedule {name}"></details></td></tr>')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--date", required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    options = parser.parse_args()
    options.engine = options.engine.resolve()
    Site(options).make()


main()
