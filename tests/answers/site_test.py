"""Serves the site from a sub-folder and walks through it in a browser, as a reader does, also with the keyboard alone.

Usage: site_test.py SITE [--pictures FOLDER]. Exits with 77 (skipped) if the site or Chromium is missing. --pictures saves
a picture of every page, light and dark, at widths of 1280 and 390 pixels. --times prints the time of each lesson's last
answer.
"""

import argparse
import functools
import gzip
import html.parser
import http.server
import json
import pathlib
import re
import sys
import tempfile
import threading
import urllib.parse

import browser

MOST_BEFORE_ENGINE = 300_000
MOST_ENGINE = 1_500_000
MAIN = ["index.html", "playground/index.html", "lessons/index.html", "records/index.html", "documents/index.html",
        "notebooks/index.html", "notebooks/schedules.html"]
READY = {"index.html": "document.querySelector('#moving canvas')",
         "playground/index.html": "document.querySelector('#room-schedules .totals tbody tr')",
         "lessons/index.html": "document.querySelector('.goals li')",
         "records/index.html": "document.querySelector('#judge textarea')"}
UNNAMED = """[...document.querySelectorAll('body :is(button, input, select, textarea)')].filter(
    (each) => !each.textContent.trim() && !each.getAttribute('aria-label') && !each.labels?.length).map(
    (each) => each.outerHTML)"""
KEYS = {"Tab": 9, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37, "ArrowRight": 39, "Enter": 13}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Links(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.targets = []
        self.names = set()
        self.feed(text)

    def handle_starttag(self, _, attributes):
        for name, value in attributes:
            if name in ("href", "src"):
                self.targets.append(value)
            if name == "id":
                self.names.add(value)


class Walk:
    def __init__(self, page, site, address, options):
        self.page, self.site, self.address = page, site, address
        self.pictures, self.times = options.pictures, options.times
        self.checks = 0

    def expect(self, what, actual, wanted=True):
        self.checks += 1
        assert actual == wanted, f"{what}: {actual!r}, expected {wanted!r}"

    def open(self, path):
        self.page.open(self.address + path)
        self.page.wait_for("document.readyState === 'complete'")
        self.page.wait_for(READY.get(path.split("#")[0], "true"))

    def press(self, key, shift=False):
        for kind in ["keyDown", "keyUp"]:
            self.page.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key],
                           modifiers=8 if shift else 0)

    def click(self, text):
        self.page.run(f"[...document.querySelectorAll('button')].find((each) => each.textContent === {text!r}).click()")

    def files(self):
        """Every relative link leads to a file and an anchor; sizes keep their limits."""
        pages = {path: Links(path.read_text()) for path in self.site.glob("**/*.html") if path.parent.name != "downloads"}
        for path, links in pages.items():
            for target in links.targets:
                place, _, anchor = target.partition("#")
                if re.match(r"[a-z]+:", target) or place.startswith("/"):
                    continue
                file = (path.parent / urllib.parse.unquote(place)).resolve() if place else path.resolve()
                self.expect(f"{path}: {target} exists", file.is_file())
                if anchor and file in pages and path.parent.name == "documents":
                    self.expect(f"{path}: {target} has its anchor", anchor in pages[file].names)
        for name in MAIN:
            path = self.site / name
            parts = [path, *(path.parent / target for target in pages[path].targets
                             if re.search(r"\.(js|css)$", target))]
            self.expect(f"{name} is small before the engine", sum(each.stat().st_size for each in parts)
                        < MOST_BEFORE_ENGINE)
        engine = self.site / "engine"
        packed = len(gzip.compress((engine / "engine.js").read_bytes())) + (engine / "engine.bin").stat().st_size
        self.expect("the engine is small", packed < MOST_ENGINE)

    def every_page(self):
        others = [path.relative_to(self.site).as_posix() for path in sorted(self.site.glob("documents/*.html"))]
        for path in MAIN + others:
            for width, dark in [(1280, False), (1280, True), (390, False), (390, True)]:
                if not self.pictures and (width == 1280 or dark) and (path in others or width == 1280 and dark):
                    continue
                self.page.show_as(width, 900 if width > 600 else 844, dark)
                self.open(path)
                self.expect(f"{path}, {width} wide, does not scroll sideways",
                            self.page.run("document.documentElement.scrollWidth <= innerWidth"))
                self.expect(f"every control of {path} has a name", self.page.run(UNNAMED), [])
                if self.pictures:
                    name = path.replace("/", "-").removesuffix(".html")
                    self.page.picture(self.pictures / f"{name}-{width}-{'dark' if dark else 'light'}.png")
        self.page.show_as(1280, 900)

    def start(self):
        self.page.requests.clear()
        self.open("index.html")
        self.click("Chimera")
        self.page.wait_for("document.querySelector('#moving p').textContent.includes('25 %')")
        self.expect("the start page loads no engine", [url for url in self.page.requests if "engine" in url], [])

    def lessons(self):
        self.open("lessons/index.html#lesson=1")
        count = self.page.run("kLessons.length")
        self.expect("there are ten lessons and more", count >= 10)
        self.expect("texts have at most 80 words", self.page.run(
            "kLessons.filter(({text}) => text.split(/\\s+/).length > 80).map(({title}) => title)"), [])
        for number in range(1, count + 1):
            self.page.run(f"location.hash = 'lesson={number}'")
            self.page.wait_for(f"document.querySelector('.count').textContent.startsWith('Lesson {number} of') && "
                               "document.querySelector('.goals li')")
            verdict = "document.querySelector('#lesson .verdict').textContent"
            self.expect(f"lesson {number} is not solved at its start", self.page.run(f"{verdict}.includes('reached')"),
                        False)
            if self.page.run("document.querySelector('#lesson .verdict.bad') === null"):
                self.expect(f"lesson {number} says why there is a bubble", self.page.run(
                    "document.querySelector('.reason').textContent.startsWith('The largest bubble is on worker')"))
            if self.page.run(f"kLessons[{number - 1}].solution === null"):
                self.click("Search for a faster order")
                self.page.wait_for("[...document.querySelectorAll('button')].some("
                                   "(each) => each.textContent === 'Apply' && each.offsetParent)")
                self.page.wait_for("!document.querySelector('#lesson button.main').disabled")
                self.click("Apply")
            else:
                self.click("Show the solution")
            self.page.wait_for(f"{verdict} === 'Goal reached.'")
            if self.times:
                spent = self.page.run("document.querySelector('#lesson .verdict').dataset.milliseconds")
                print(f"lesson {number}: {spent} ms")
        self.expect("progress is kept", self.page.run("document.querySelectorAll('#lessons .done').length"), count)

    def keyboard(self):
        """Solves the first lesson with keys, and opens the address of the result."""
        self.open("lessons/index.html#lesson=1")
        for _ in range(60):
            self.press("Tab")
            if self.page.run("document.activeElement.classList.contains('plot')"):
                break
        self.expect("Tab reaches the picture", self.page.run("document.activeElement.classList.contains('plot')"))
        for key in ["ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown"] + ["ArrowLeft"] * 8:
            self.press(key)
        for _ in range(3):
            self.press("ArrowRight", shift=True)
            self.page.run("new Promise((done) => setTimeout(done, 100))")
        self.page.wait_for("document.querySelector('#lesson .verdict').textContent === 'Goal reached.'")
        address = self.page.run("location.hash")
        self.expect("the address holds the order", "state=" in address)
        self.open("lessons/index.html" + address)
        self.page.wait_for("document.querySelector('#lesson .verdict').textContent === 'Goal reached.'")

        self.open("lessons/index.html#lesson=5")
        self.page.run("document.querySelector('#lesson select').focus()")
        for key in ["ArrowUp", "ArrowDown", "ArrowDown"]:  # Each choice draws the form anew
            self.press(key)
        self.expect("arrow keys go on in a list", self.page.run("document.activeElement.value"), "chimera")

    def goals(self):
        self.open("lessons/index.html#goal=bubble<=20,in-flight<=4&schedule=1f1b&stages=4&micro-batches=8&title=Mine&embed")
        self.expect("the title of a teacher's own", self.page.run("document.getElementById('title').textContent"), "Mine")
        self.expect("two goals", self.page.run("document.querySelectorAll('.goals li').length"), 2)
        self.expect("an embedded page has no navigation", self.page.run(
            "getComputedStyle(document.querySelector('.site')).display"), "none")
        self.page.open(self.address + "lessons/index.html#goal=beauty<=3")
        self.page.wait_for("document.querySelector('#lesson .error')?.textContent.includes('bubble, makespan')")

    def judge(self, name, text):
        self.page.run(f"""(() => {{ const pick = document.querySelector('#judge select'); pick.value = {name!r};
            pick.dispatchEvent(new Event('change')); const area = document.querySelector('#judge textarea');
            area.value = {json.dumps(text)}; area.dispatchEvent(new Event('input')); }})()""")

    def said(self, words):
        self.page.wait_for(f"document.querySelector('#judge .verdict').textContent.includes({words!r})")
        self.checks += 1

    def records(self):
        self.page.requests.clear()
        self.open("records/index.html")
        self.expect("the records load no engine before a schedule", [url for url in self.page.requests if "engine" in url], [])
        record = json.loads((self.site / "records" / "paper-d4-n4.json").read_text())
        schedule = record["schedule"]
        self.judge("paper-d4-n4", json.dumps(schedule))
        self.said("nobody can do better")
        self.judge("paper-d4-n8", json.dumps(schedule))
        self.said("It fits:")
        swapped = json.loads(json.dumps(schedule))
        swapped["workers"][0].reverse()
        self.judge("paper-d4-n4", json.dumps(swapped))
        self.said("Not valid")
        self.judge("paper-d4-n4", "nonsense")
        self.said("Not a schedule")
        self.page.run("""recordOf("paper-d4-n4").then((record) => record.makespan = 20)""")
        self.judge("paper-d4-n4", json.dumps(record))  # the whole record
        self.said("Beats the record")
        self.page.run("""recordOf("paper-d4-n4").then((record) => record.makespan = record.lower_bound = 15)""")
        self.judge("paper-d4-n4", json.dumps(schedule))
        self.said("longer than the record")

    def quiet(self):
        self.expect("errors and warnings of the browser", self.page.complaints, [])
        outside = [url for url in self.page.requests if not re.match(rf"({re.escape(self.address)}|data:|about:blank|blob:)", url)]
        self.expect("requests to other hosts", outside, [])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("site", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--times", action="store_true")
    options = parser.parse_args()
    program = browser.find_browser()
    if program is None or not options.site.exists():
        print("skipped: needs Chromium and the site; tools/playground-test makes both")
        return 77
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    site = options.site.resolve()
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "sub").symlink_to(site)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with browser.Browser(program) as page:
            page.show_as(1280, 900)
            walk = Walk(page, site, f"http://127.0.0.1:{server.server_port}/sub/", options)
            for part in [walk.files, walk.start, walk.lessons, walk.keyboard, walk.goals, walk.records, walk.every_page,
                         walk.quiet]:
                part()
        server.shutdown()
    print(f"{walk.checks} checks passed")
    return 0


sys.exit(main())
