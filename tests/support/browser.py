"""A headless Chromium for tests: opens pages, runs scripts and takes screenshots.

It uses the Chrome DevTools Protocol over two pipes, so only the browser must be installed.
"""

import base64
import collections
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def find_browser():
    names = [os.environ.get("CHIMERA_BROWSER"), "chromium", "chromium-browser", "google-chrome"]
    return next((found for name in names if name and (found := shutil.which(name))), None)


class Browser:
    """A page in its own browser. `complaints` and `requests` collect the page's errors and requests."""

    def __init__(self, program, seconds=60):
        self.seconds = seconds
        # Helper processes of Chromium may write to it after the browser itself has ended.
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        read_commands, self.write_end = os.pipe()
        self.read_end, write_answers = os.pipe()

        def place_pipes():  # Chromium reads commands from 3 and writes answers to 4
            os.dup2(read_commands, 103)
            os.dup2(write_answers, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        # Containers do not allow the sandbox. It is not needed for our own page.
        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--hide-scrollbars", f"--user-data-dir={self.profile.name}", "about:blank"],
            close_fds=False, preexec_fn=place_pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(read_commands)
        os.close(write_answers)
        self.unread = b""
        self.number = 0
        self.session = None
        self.complaints = []
        self.requests = []
        self.events = collections.deque(maxlen=10_000)
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self.session = self.send("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.send(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write_end)
        self.process.terminate()
        self.process.wait(20)
        os.close(self.read_end)
        self.profile.cleanup()

    def send(self, method, **parameters):
        self.number += 1
        command = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            command["sessionId"] = self.session
        os.write(self.write_end, json.dumps(command).encode() + b"\0")
        until = time.monotonic() + self.seconds
        while True:
            message = self.receive(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']['message']}")
                return message["result"]
            self.note(message)

    def receive(self, until):
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.read_end], [], [], max(0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser did not answer within {self.seconds} s")
            self.unread += os.read(self.read_end, 1 << 20)
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        method, parameters = message.get("method"), message.get("params", {})
        self.events.append(message)
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([each.get("value") for each in parameters["args"]]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.complaints.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])

    def open(self, url):
        self.send("Page.navigate", url="about:blank")  # Needed to reload an address that differs only in its fragment
        self.send("Page.navigate", url=url)

    def run(self, script):
        """Returns the value of an expression in the page; awaits promises."""
        result = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True,
                           userGesture=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise AssertionError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait_for(self, condition, seconds=None):
        """Waits until an expression in the page is true."""
        until = time.monotonic() + (seconds or self.seconds)
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > until:
                raise TimeoutError(f"not within {seconds or self.seconds} s: {condition}; {self.complaints}")
            time.sleep(0.02)

    def show_as(self, width, height, dark=False, calm=False):
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 600)
        self.send("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if calm else "no-preference"}])

    def picture(self, path, whole=True):
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 6000), "scale": 1}
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                         **({"clip": clip} if whole else {}))["data"]
        path.write_bytes(base64.b64decode(data))
