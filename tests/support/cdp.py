"""A real Chromium for tests, controlled over a pipe: the Chrome DevTools Protocol, with JSON
messages that end in a zero byte. No port is open, and no library is needed.

It is Debian's ``chromium-headless-shell``. Only names of loopback can be resolved, so if a page
asks for something elsewhere, its request is seen, and never answered.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import gevent
from gevent.event import AsyncResult, Event
from gevent.os import make_nonblocking, nb_read, nb_write

PROGRAMS = ("chromium-headless-shell", "chrome-headless-shell", "chromium")
SECONDS = 20.0
"""The longest wait for an answer, and for a change on a page."""
FLAGS = (
    "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-quic",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
)  # fmt: skip
_UNTIL = """new Promise((done, fail) => {
  const late = setTimeout(() => { seen.disconnect(); fail(new Error("not in time")); }, %d);
  const look = () => {
    let found;
    try { found = (%s); } catch { return; }
    if (found) { seen.disconnect(); clearTimeout(late); done(found); }
  };
  const seen = new MutationObserver(look);
  const all = { subtree: true, childList: true, attributes: true, characterData: true };
  seen.observe(document, all);
  look();
})"""

_DRAWN = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"


class BrowserError(AssertionError):
    """Raised if the browser refuses a call, or if a page throws an exception."""


def program() -> str | None:
    """Return the installed browser, or None."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """A process of the browser, in a folder of its own. Use it as a context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers: dict[int, AsyncResult[dict[str, Any]]] = {}
        self._pages: dict[str, Page] = {}
        self._number = 0
        self._left = b""

    def __enter__(self) -> Browser:
        found = program()
        assert found is not None, "no chromium-headless-shell: run `make packages`"
        # In the process it reads 3 and writes 4, whatever numbers they have here.
        theirs_in, self._to = (_high(one) for one in os.pipe())
        self._from, theirs_out = (_high(one) for one in os.pipe())
        flags = [*FLAGS, f"--user-data-dir={self._folder}"]
        if os.geteuid() == 0:  # the sandbox refuses root; these pages are the tests' own
            flags.append("--no-sandbox")
        shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out} {theirs_in}<&- {theirs_out}>&-'
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["bash", "-c", shell, "bash", found, *flags],
                pass_fds=(theirs_in, theirs_out), stdout=log, stderr=log,
                env={**os.environ, "LANG": "en_US.UTF-8"},
            )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        make_nonblocking(self._to)
        make_nonblocking(self._from)
        self._reading = gevent.spawn(self._read)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrowserError, OSError, gevent.Timeout):
            self.call("Browser.close")
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reading.kill()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, session: str = "", **given: Any) -> dict[str, Any]:
        """Call a method; returns its result. Raises BrowserError."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": given}
        if session:
            message["sessionId"] = session
        answer = self._answers[self._number] = AsyncResult()
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[nb_write(self._to, data) :]
        with gevent.Timeout(SECONDS, BrowserError(f"{method}: no answer")):
            reply = answer.get()
        if "error" in reply:
            raise BrowserError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    def _read(self) -> None:
        while data := nb_read(self._from, 1 << 20):
            *whole, self._left = (self._left + data).split(b"\0")
            for one in whole:
                message = json.loads(one)
                if "id" in message:
                    self._answers.pop(message["id"]).set(message)
                elif (page := self._pages.get(message.get("sessionId", ""))) is not None:
                    page._heard(message["method"], message["params"])

    @contextmanager
    def page(
        self, *, width: int = 1280, height: int = 900, dark: bool = False, language: str = "en",
        script: bool = True,
    ) -> Iterator[Page]:  # fmt: skip
        """Open a page with cookies of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        made = self.call("Target.createTarget", url="about:blank", browserContextId=context)
        session = self.call("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        page = self._pages[session["sessionId"]] = Page(self, session["sessionId"])
        try:
            page._begin(width, height, dark, language, script)
            yield page
        finally:
            del self._pages[session["sessionId"]]
            self.call("Target.disposeBrowserContext", browserContextId=context)


class Page:
    """A page and its log: requests, dialogs, violations of its CSP, errors of its scripts."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        self._loads = 0
        self._loaded = Event()
        self._script = True
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.breaches: list[str] = []
        self.errors: list[str] = []

    def call(self, method: str, **given: Any) -> dict[str, Any]:
        """Call a method for this page."""
        return self._browser.call(method, self._session, **given)

    def _begin(self, width: int, height: int, dark: bool, language: str, script: bool) -> None:
        for domain in ("Page", "Network", "Runtime", "Log", "Audits"):
            self.call(f"{domain}.enable")
        self.resize(width, height)
        self.look(dark=dark)
        self.speak(language)
        self._script = script
        if not script:
            self.call("Emulation.setScriptExecutionDisabled", value=True)

    def resize(self, width: int, height: int = 900, *, phone: bool = False) -> None:
        """Set the size of the window in pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip

    def look(self, *, dark: bool) -> None:
        """Set which colours the person prefers."""
        wanted = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[wanted])

    def speak(self, language: str) -> None:
        """Set which language the person reads."""
        self.call("Network.setExtraHTTPHeaders", headers={"Accept-Language": language})

    def _heard(self, method: str, given: dict[str, Any]) -> None:
        match method:
            case "Network.requestWillBeSent":
                self.requests.append(given["request"]["url"])
            case "Page.javascriptDialogOpening":
                self.dialogs.append(given["message"])
                gevent.spawn(self.call, "Page.handleJavaScriptDialog", accept=True)
            case "Audits.issueAdded":
                if given["issue"]["code"] == "ContentSecurityPolicyIssue":
                    self.breaches.append(json.dumps(given["issue"]["details"]))
            case "Runtime.exceptionThrown":
                self.errors.append(json.dumps(given["exceptionDetails"])[:2000])
            case "Page.loadEventFired":
                self._loads += 1
                self._loaded.set()

    # -- what a person does

    def goto(self, url: str) -> None:
        """Open a page, and wait until it is loaded. Raises BrowserError."""

        def go() -> None:
            if said := self.call("Page.navigate", url=url).get("errorText"):
                raise BrowserError(f"{url}: {said}")

        self.going(go)

    def going(self, do: Callable[[], object]) -> None:
        """Call a function that leads to another page, and wait until that is loaded."""
        before = self._loads
        do()
        with gevent.Timeout(SECONDS, BrowserError("no page was loaded")):
            while self._loads == before:
                self._loaded.clear()
                self._loaded.wait()

    def click(self, selector: str, *, goes: bool = False) -> None:
        """Click on the first element of the selector; with ``goes``, wait for another page."""
        self._await(selector)
        done = f"document.querySelector({json.dumps(selector)}).click(), 0"
        if goes:
            self.going(lambda: self.run(done))
        else:
            self.run(done)

    def fill(self, selector: str, text: str) -> None:
        """Put a text into a field."""
        self._await(selector)
        self.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key, as ``Tab`` or ``Escape``."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        text = {"text": "\r"} if key == "Enter" else {}
        given = {"key": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 * shift}
        self.call("Input.dispatchKeyEvent", type="keyDown", **given, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **given)

    # -- reading the page

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; for a promise, wait for it."""
        reply = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in reply:
            raise BrowserError(f"{expression[:200]}: {json.dumps(reply['exceptionDetails'])[:800]}")
        return reply["result"].get("value")

    def until(self, expression: str, seconds: float = SECONDS) -> Any:
        """Wait until an expression on the document is true, and return its value."""
        late = time.monotonic() + seconds
        while True:  # each call is answered before it would be given up
            left = late - time.monotonic()
            try:
                return self.run(_UNTIL % (round(max(min(left, SECONDS / 2), 0) * 1000), expression))
            except BrowserError as error:
                if "not in time" not in str(error) or left <= SECONDS / 2:
                    raise

    def text(self, selector: str = "body") -> str:
        """Return the text that a person sees there."""
        self._await(selector)
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def _await(self, selector: str) -> None:
        self.until(f"document.querySelector({json.dumps(selector)}) !== null")

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """Write a PNG of the page, with everything that it draws after its first frame."""
        if self._script:
            self.run(_DRAWN)
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(data["data"]))


def _high(descriptor: int) -> int:
    """Return the same file under a number that no child uses for something else."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(descriptor)
    return moved
