"""Tests the page of `simulate --format html` in a browser: its scripts run and react to the user.

Usage: page_test.py CHIMERA. Exits with 77 (skipped) if no Chromium is installed; CHIMERA_BROWSER can name a browser.
"""

import pathlib
import subprocess
import sys
import tempfile

from browser import Browser, find_browser

CHIMERA = sys.argv[1]
SCRIPT = pathlib.Path(__file__).with_name("page_test.js")


def write_page(path):
    shape = ["--stages", "4", "--micro-batches", "4", "--forward", "1", "--backward", "2"]
    subprocess.run([CHIMERA, "simulate", "chimera", *shape, "--with", "1f1b", "--format", "html", "--output", path],
                   check=True)


def main():
    program = find_browser()
    if program is None:
        print("skipped: no Chromium here; Debian's package is `chromium`")
        return 77
    with tempfile.TemporaryDirectory() as folder, Browser(program) as browser:
        page = pathlib.Path(folder, "page.html")
        write_page(page)
        browser.show_as(1200, 800)
        browser.open(page.as_uri())
        browser.wait_for("document.readyState === 'complete'")
        result = browser.run(SCRIPT.read_text(encoding="utf-8"))
    print("\n".join([result, *browser.complaints]))
    return 0 if result.endswith("checks passed") and not browser.complaints else 1


sys.exit(main())
