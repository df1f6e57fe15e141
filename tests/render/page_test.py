"""Tests the page of `simulate --format html` in a browser: its scripts run and react to the user.

Usage: page_test.py CHIMERA. Exits with 77 (skipped) if no Chromium is installed; CHIMERA_BROWSER can name a browser.
"""

import html
import pathlib
import re
import subprocess
import sys
import tempfile

from browser import find_browser

CHIMERA = sys.argv[1]
SCRIPT = pathlib.Path(__file__).with_name("page_test.js")


def write_page(path):
    shape = ["--stages", "4", "--micro-batches", "4", "--forward", "1", "--backward", "2"]
    subprocess.run([CHIMERA, "simulate", "chimera", *shape, "--with", "1f1b", "--format", "html", "--output", path],
                   check=True)
    page = path.read_text(encoding="utf-8")
    assert page.count("</body>") == 1
    script = SCRIPT.read_text(encoding="utf-8")
    # After an error in the page's own scripts, the test's script does not run and there is no result.
    path.write_text(page.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")


def main():
    browser = find_browser()
    if browser is None:
        print("skipped: no Chromium here; Debian's package is `chromium`")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.html")
        write_page(page)
        # Containers do not allow the sandbox; the page is trusted.
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                   "--window-size=1200,800", f"--user-data-dir={folder}/profile", "--virtual-time-budget=10000",
                   "--dump-dom", page.as_uri()]
        shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    result = re.search(r'<pre id="result">(.*?)</pre>', shown.stdout, re.DOTALL)
    if result is None:
        print(f"the page's scripts did not run to their end; {browser} says:\n{shown.stderr}")
        return 1
    print(html.unescape(result[1]))
    return 0 if result[1].endswith("checks passed") else 1


sys.exit(main())
