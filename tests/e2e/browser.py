"""Headless Chromium over its debugging pipe, as a person uses it: goes to a page, types, clicks, looks. Scripts of pages are off."""

import base64
import json
import os
import pathlib
import shutil
import subprocess

WAIT_S = 30


class Browser:
    """One window. Keeps every address that was asked for, and what the browser complained of."""

    def __init__(self, folder, size=(1280, 900)):
        binary = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if binary is None:
            raise RuntimeError("there is no Chromium: apt-get install chromium")
        ours, theirs = os.pipe(), os.pipe()
        command = [binary, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe"]
        command += [f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "--hide-scrollbars", "--no-first-run"]
        # Chromium reads from 3 and writes to 4.
        shell = ["sh", "-c", f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}', "sh", *command]
        self.child = subprocess.Popen(
            shell, pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(ours[0])
        os.close(theirs[1])
        self.input, self.output = os.fdopen(ours[1], "wb", 0), os.fdopen(theirs[0], "rb")
        self.number, self.session, self.rest = 0, None, b""
        self.asked, self.complaints, self.loads = [], [], 0
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "DOM"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setScriptExecutionDisabled", value=True)
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)

    def call(self, method, **params):
        """One command; waits for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        self.input.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def receive(self):
        """The next message; what is an event is noted."""
        while b"\0" not in self.rest:
            more = os.read(self.output.fileno(), 1 << 16)
            if not more:
                raise RuntimeError("the browser ended")
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.asked.append(message["params"]["request"]["url"])
            case "Log.entryAdded":
                if message["params"]["entry"]["level"] == "error":
                    self.complaints.append(message["params"]["entry"]["text"])
            case "Page.loadEventFired":
                self.loads += 1
        return message

    def until_loaded(self, before):
        while self.loads == before:
            self.receive()

    def go(self, url):
        before = self.loads
        self.call("Page.navigate", url=url)
        self.until_loaded(before)

    def find(self, selector):
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        if not node:
            raise RuntimeError(f"the page has no {selector}: {self.text()[:2000]}")
        return node

    def text(self):
        """The page as markup."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        return self.call("DOM.getOuterHTML", nodeId=root)["outerHTML"]

    def type(self, selector, text):
        self.call("DOM.focus", nodeId=self.find(selector))
        self.call("Input.insertText", text=text)

    def click(self, selector, loads=False):
        """Clicks in the middle of an element; waits for the page that it leads to."""
        node, before = self.find(selector), self.loads
        self.call("DOM.scrollIntoViewIfNeeded", nodeId=node)
        quad = self.call("DOM.getContentQuads", nodeId=node)["quads"][0]
        at = {"x": sum(quad[0::2]) / 4, "y": sum(quad[1::2]) / 4, "button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", **at)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", **at)
        if loads:
            self.until_loaded(before)

    def picture(self, path):
        """The whole page, as a PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def close(self):
        self.child.terminate()
        try:
            self.child.wait(WAIT_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
