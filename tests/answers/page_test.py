"""Opens the playground from disk in a browser, uses it as a reader does, and checks for errors and network requests.

Usage: page_test.py PLAYGROUND.HTML [--pictures FOLDER] [--times]. Exits with 77 (skipped) if the web build or Chromium
is missing. --pictures saves a picture of every room, light and dark, at widths of 1440 and 390 pixels, and pictures of
the test's steps. --times prints the times of the first picture, of the answer to an edit, of a frame of a large
schedule, and of interactions with D = N = 16.
"""

import argparse
import pathlib
import re
import sys

import browser

DEADLOCK = "0F0,0B0,0F1,0B1\\n1B0,1F0,1F1,1B1\\n"
FAST_ENOUGH_MS = {"first picture": 1000, "a deadlock shown": 100, "a frame of D = 64, N = 256": 1000 / 30}


def ready(room):
    return {"schedules": "document.querySelector('#room-schedules .totals tbody tr')",
            "own": "document.querySelector('#room-own .verdict b')",
            "model": "document.querySelector('#room-model table')",
            "plan": "document.querySelector('#room-plan table')"}[room]


class Drive:
    def __init__(self, page, address, pictures):
        self.page, self.address, self.pictures = page, address, pictures
        self.checks = 0

    def expect(self, what, actual, wanted=True):
        self.checks += 1
        assert actual == wanted, f"{what}: {actual!r}, expected {wanted!r}"

    def open(self, fragment):
        self.page.open(self.address + "#" + fragment)
        self.page.wait_for("document.readyState === 'complete'")

    def keep(self, name):
        if self.pictures:
            self.page.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
            self.page.picture(self.pictures / f"{name}.png")

    def type_into(self, selector, text):
        self.page.run(f"""(() => {{ const input = document.querySelector({selector!r}); input.value = "{text}";
                          input.dispatchEvent(new Event("input", {{bubbles: true}})); }})()""")

    def click(self, room, text):
        self.page.run(f"""[...document.querySelectorAll('#room-{room} button')].find(
                          (each) => each.textContent === {text!r}).click()""")

    def every_room(self):
        for room in ["schedules", "own", "model", "plan"]:
            for width in [1440, 390]:
                for dark in [False, True]:
                    if not self.pictures and (dark or width == 1440):
                        continue  # without pictures, the width of a phone is enough to find overflows
                    self.page.show_as(width, 900 if width > 600 else 844, dark)
                    self.open(room)
                    self.page.wait_for(ready(room))
                    self.expect(f"{room}, {width} wide, does not scroll sideways",
                                self.page.run("document.documentElement.scrollWidth <= innerWidth"))
                    self.expect(f"every control of {room} has a name", self.page.run(UNNAMED), [])
                    self.keep(f"{room}-{width}-{'dark' if dark else 'light'}")
        self.page.show_as(1440, 900)

    def schedules(self):
        self.open("schedules")
        self.page.wait_for(ready("schedules"))
        cell = "document.querySelectorAll('#room-schedules .totals tbody tr')[{}].children[1].textContent"
        self.expect("makespan of chimera", self.page.run(cell.format(0)), "30")
        self.expect("makespan of 1f1b", self.page.run(cell.format(1)), "33 +10.0 %")
        self.click("schedules", "Add a schedule")
        self.page.wait_for("document.querySelectorAll('#room-schedules .totals tbody tr').length === 3")
        self.type_into("#room-schedules .shape input[type=number]", "8")
        self.page.wait_for("document.querySelector('#room-schedules .totals tbody td').textContent.includes('D = 8')")
        kept = "JSON.parse(decodeText(location.hash.split('=')[1]))"
        self.page.wait_for(f"location.hash.includes('=') && {kept}.choices.length === 3 && {kept}.stages === 8")
        fragment = self.page.run("location.hash.slice(1)")
        self.click("schedules", "Draw the chart")
        self.page.wait_for("document.querySelector('#room-schedules .chart')")
        self.expect("lines of the sweep", self.page.run("document.querySelectorAll('.chart .series').length"), 3)
        self.page.run("document.querySelector('#room-schedules figure details').open = true")
        self.click("schedules", "Next op")
        self.click("schedules", "Next op")
        self.expect("a micro-batch is followed", self.page.run(
            "document.querySelector('#room-schedules fieldset [role=status]').textContent.startsWith('time 1: 1F0')"))
        self.keep("schedules-sweep")
        self.open(fragment)
        self.page.wait_for("document.querySelectorAll('#room-schedules .totals tbody tr').length === 3")
        self.expect("a shared address opens the same view", self.page.run(
            "document.querySelector('#room-schedules .totals tbody td').textContent.includes('D = 8')"))

    def slow(self):
        """Slows worker 2 down. A second copy shares its ops; a single copy cannot."""
        self.open("schedules")
        self.page.wait_for(ready("schedules"))
        cell = "document.querySelectorAll('#room-schedules .totals tbody tr')[{}].children[1].textContent"
        room = "document.getElementById('room-schedules').textContent"
        field = "#room-schedules .shape input[type=text]"
        self.type_into(field, "2: 2")
        self.page.wait_for(f"{cell.format(0)} === '36'")
        self.expect("makespan of 1f1b with a slow worker", self.page.run(cell.format(1)), "54 +50.0 %")
        self.expect("the order without sharing is compared", self.page.run(f"{room}.includes('(order kept: 51)')"))
        self.click("schedules", "Draw the chart")
        self.page.wait_for("document.querySelector('#room-schedules .chart')")
        self.expect("the sweep has the slow worker", self.page.run(
            "[...document.querySelectorAll('#room-schedules figure details tr')].some((each) => "
            "each.cells[0].textContent === '8' && each.cells[1].textContent.startsWith('0.22'))"))
        self.type_into(field, "7:2")
        status = "document.querySelector('#room-schedules .content > [role=alert]')?.textContent"
        self.page.wait_for(f"{status} === 'slow 7:2: there is no worker 7; workers are 0 to 3'")
        self.type_into(field, "")
        self.page.wait_for(f"{cell.format(0)} === '30'")

    def calm(self):
        self.page.show_as(1440, 900, calm=True)
        self.open("schedules")
        self.page.wait_for(ready("schedules"))
        self.expect("there is no animation if reduced motion is requested", self.page.run(
            "[...document.querySelectorAll('button')].find((each) => each.textContent === 'Play').hidden"))
        self.page.show_as(1440, 900)

    def own(self):
        self.open("own")
        self.page.wait_for(ready("own"))
        verdict = "document.querySelector('#room-own .verdict').textContent"
        self.expect("the first schedule is valid", self.page.run(f"{verdict}.startsWith('Valid')"))
        rows = self.page.run("document.getElementById('own-text').value.trim().split('\\n').length")
        self.expect("the form shows the editor's schedule", self.page.run(
            "document.querySelector('#room-own .card .row input').value"), str(rows))
        self.move_an_op()
        self.type_into("#own-text", DEADLOCK)
        self.page.wait_for(f"{verdict}.includes('1B0')")
        self.expect("the counterexample in words", "before 1F0" in self.page.run(verdict))
        self.expect("the verdict names the deadlock", "deadlock, a cycle of 1 wait:" in self.page.run(verdict))
        self.keep("own-deadlock")
        self.type_into("#own-text", "0F0,0Q0")
        self.page.wait_for(f"{verdict}.startsWith('Not a schedule')")
        self.type_into("#own-text", "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\\n1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0\\n")
        self.page.wait_for(f"{verdict}.startsWith('Valid')")
        self.click("own", "Search for a faster order")
        self.page.wait_for("[...document.querySelectorAll('#room-own button')].some("
                           "(each) => each.textContent === 'Apply' && each.offsetParent)")
        self.keep("own-found")
        self.click("own", "Stop")
        self.click("own", "Apply")
        self.page.wait_for(f"{verdict}.includes('Makespan 15')")
        self.click("own", "Convert to JSON")
        self.page.wait_for("document.getElementById('own-text').value.startsWith('{')")
        self.expect("the schedule as JSON is valid", self.page.run(f"{verdict}.startsWith('Valid')"))

    def move_an_op(self):
        """Moves an op by keys, undoes it, and moves it by drag."""
        rows = "document.getElementById('own-text').value.split('\\n')"
        plot = "document.querySelector('#room-own .plot')"
        press = (plot + ".dispatchEvent(new KeyboardEvent('keydown', "
                 "{{key: '{}', shiftKey: {}, ctrlKey: {}, bubbles: true}}))")
        self.page.wait_for(f"{plot}.clientHeight > 100")
        before = self.page.run(f"{rows}[0]")
        for _ in range(2):
            self.page.run(press.format("ArrowRight", "false", "false"))
        self.page.run(press.format("ArrowRight", "true", "false"))
        self.expect("Shift and an arrow move an op", self.page.run(f"{rows}[0]").startswith("0F0,0F2,0F1"))
        self.page.run(press.format("z", "false", "true"))
        self.expect("Ctrl+Z undoes the move", self.page.run(f"{rows}[0]"), before)
        self.page.run(f"""(async () => {{
            await new Promise((done) => setTimeout(done, 200));
            const root = {plot};
            root.setPointerCapture = () => {{}};
            const box = root.getBoundingClientRect();
            const fire = (type, x) => root.dispatchEvent(new PointerEvent(type, {{
                clientX: box.left + x, clientY: box.top + {26 + 24 + 15}, pointerId: 1}}));
            const scale = (box.width - 76 - 12) / 18;
            fire("pointerdown", 76 + 0.5 * scale);
            fire("pointermove", 76 + 2 * scale);
            fire("pointermove", 76 + 2.8 * scale);
            fire("pointerup", 76 + 2.8 * scale);
        }})()""")
        self.expect("a drag moves an op", self.page.run(f"{rows}[0]").startswith("0F1,0F2,0F0"))

    def edit_elsewhere(self):
        self.open("schedules")
        self.page.wait_for(ready("schedules"))
        self.click("schedules", "Edit")
        self.page.wait_for(ready("own"))
        self.expect("the form of the editor shows the schedule that was opened", self.page.run(
            "document.querySelector('#room-own .card select').value"), "chimera")

    def model_and_plan(self):
        self.open("model")
        self.page.wait_for(ready("model"))
        self.expect("gpt2 fits", self.page.run(
            "document.querySelector('#room-model .fits').textContent.startsWith('Fits')"))
        self.open("plan")
        self.page.wait_for(ready("plan"))
        room = "document.getElementById('room-plan').textContent"
        self.expect("progress is counted", self.page.run(f"/\\d+ of \\d+ schedules; [\\d,]+ candidates/.test({room})"))
        self.expect("a tie is named", self.page.run(f"{room}.includes('A tie: rows 1 to ')"))
        self.expect("assumptions are listed", self.page.run(f"{room}.includes('multiprocessors')"))
        self.expect("training runs on the GPU that was planned for", self.page.run(f"{room}.includes('--device cuda')"))
        self.expect("the memory is that of the profile", self.page.run(
            "[...document.querySelectorAll('#room-plan label')].find((each) => each.textContent.startsWith('Memory'))"
            ".nextSibling.value"), "0")
        self.click("plan", "Open")
        self.page.wait_for(ready("schedules"))
        self.expect("a candidate opens with its costs", self.page.run(
            "document.getElementById('room-schedules').textContent.includes('From the plan for')"))
        self.keep("schedules-from-plan")

    def quiet(self):
        self.expect("errors and warnings of the browser", self.page.complaints, [])
        outside = [url for url in self.page.requests if not re.match(r"(file:///|blob:null/|data:|about:blank)", url)]
        self.expect("network requests", outside, [])

    def times(self):
        self.open("schedules")
        self.page.wait_for(ready("schedules"))
        measured = {"first picture": self.page.run("firstPicture")}
        self.open("own")
        self.page.wait_for(ready("own"))
        self.type_into("#own-text", DEADLOCK)
        self.page.wait_for("document.querySelector('#room-own .verdict').textContent.includes('1B0')")
        measured["a deadlock shown"] = float(
            self.page.run("document.querySelector('#room-own .verdict').dataset.milliseconds"))
        self.open("schedules")
        self.page.wait_for(ready("schedules"))
        fields = "#room-schedules .shape input[type=number]"
        self.page.run(f"""for (const [i, value] of [[0, 64], [1, 256]]) {{
            const input = document.querySelectorAll('{fields}')[i];
            input.value = value;
            input.dispatchEvent(new Event("input")); }}""")
        self.page.wait_for("document.querySelector('#room-schedules .totals tbody td').textContent.includes('N = 256')")
        measured["a frame of D = 64, N = 256"] = self.page.run(FRAMES)
        for what, milliseconds in (measured | self.interactions()).items():
            print(f"{what}: {milliseconds:.1f} ms (limit: {FAST_ENOUGH_MS.get(what, 100):.1f})")

    def interactions(self):
        """Returns the median milliseconds of interactions with D = N = 16, from the input to the new picture."""
        totals, verdict = "#room-schedules .totals", "#room-own .verdict"

        def timed(act, place):
            return sorted(self.page.run(INTERACTION % {"act": act, "place": place}) for _ in range(3))[1]

        def given(selector, value, event="input"):
            return (f"const field = {selector}; field.value = '{value}'; "
                    f"field.dispatchEvent(new Event('{event}', {{bubbles: true}}));")

        def field(part, i):
            return f"document.querySelectorAll('#room-schedules {part}')[{i}]"

        self.open("schedules")
        self.page.wait_for(ready("schedules"))
        times = {"D = 16": timed(given(field(".shape input[type=number]", 0), 16), totals),
                 "N = 16": timed(given(field(".shape input[type=number]", 1), 16), totals),
                 "slow worker 2": timed(given(field(".shape input[type=text]", 0), "2:2"), totals)}
        timed(given(field(".shape input[type=text]", 0), ""), totals)
        for name in self.page.run("catalog.schedules.map((each) => each.name)"):
            times[f"choose {name}"] = timed(given(field(".card select", 0), name, "change"), totals)
        timed(given(field(".card select", 0), "chimera", "change"), totals)
        self.click("schedules", "Edit")
        self.page.wait_for(f"document.querySelector('{verdict} b')")
        key = ("document.querySelector('#room-own .plot').dispatchEvent(new KeyboardEvent('keydown', "
               "{key: 'ArrowRight', shiftKey: %s, bubbles: true}));")
        self.page.run(key % "false")
        times["move an op"] = timed(key % "true", verdict)
        times["type in the editor"] = timed("const field = document.getElementById('own-text'); field.value += '\\n'; "
                                            "field.dispatchEvent(new Event('input'));", verdict)
        return times


# Buttons and fields without a name for screen readers.
UNNAMED = """[...document.querySelectorAll('section:not([hidden]) :is(button, input, select, textarea)')].filter(
    (each) => !each.textContent.trim() && !each.getAttribute('aria-label') && !each.labels?.length).map(
    (each) => each.outerHTML)"""

# Acts, waits for a change of an element and for the frame that shows it, and returns the milliseconds.
INTERACTION = """new Promise((done) => {
  const began = performance.now();
  new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
  }).observe(document.querySelector('%(place)s'), {childList: true, subtree: true});
  %(act)s
})"""

# Zooms in and out by the wheel for 60 frames and returns the mean time of a frame.
FRAMES = """(async () => {
  const root = document.querySelector('#room-schedules .plot');
  const box = root.getBoundingClientRect();
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await frame();
  const began = performance.now();
  for (let i = 0; i < 60; ++i) {
    root.dispatchEvent(new WheelEvent('wheel', {
        deltaY: i < 30 ? -80 : 80, clientX: box.left + 500, clientY: box.top + 60, cancelable: true}));
    await frame();
  }
  return (performance.now() - began) / 60;
})()"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path)
    parser.add_argument("--times", action="store_true")
    options = parser.parse_args()
    program = browser.find_browser()
    if program is None or not options.page.exists():
        print("skipped: needs Chromium and the web build; tools/playground-test makes both")
        return 77
    if options.pictures:
        options.pictures.mkdir(parents=True, exist_ok=True)
    with browser.Browser(program) as page:
        page.show_as(1440, 900)
        drive = Drive(page, options.page.resolve().as_uri(), options.pictures)
        if options.times:
            drive.times()
            return 0
        for part in [drive.schedules, drive.slow, drive.calm, drive.own, drive.edit_elsewhere, drive.model_and_plan,
                     drive.every_room, drive.quiet]:
            part()
        print(f"{drive.checks} checks passed")
    return 0


sys.exit(main())
