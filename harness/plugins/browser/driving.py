"""Drive onnxruntime-web in a browser, as a session drives ONNX Runtime here."""

from __future__ import annotations

import os
import re
import select
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from msgspec import Struct

from harness.core.case import Device, Target
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.engine.host import last_words
from harness.plugins.browser.chromium import Chromium, browser_at
from harness.plugins.browser.package import NAME, build_of, package_of
from harness.plugins.browser.server import PageServer
from harness.plugins.browser.targets import SOFTWARE, WEBGPU
from harness.plugins.elsewhere.agent import Buffer
from harness.plugins.elsewhere.agent_calls import STALL_S, AgentCalls
from harness.plugins.elsewhere.frames import Line

_LOOK_S: Final = 1.0
"""How often a browser is looked at that says nothing, in seconds."""

_MEMORY: Final = re.compile(
    r"out of memory|\bOOM\b|bad_alloc|Array buffer allocation failed"
    r"|memory access out of|Failed to allocate|could not allocate"
    r"|Cannot enlarge memory|SafeIntOnOverflow",
    re.IGNORECASE,
)
_HALF: Final = re.compile(
    r"running (?P<op>\w+) node\. Name:'(?P<node>[^']*)'.*requires f16", re.DOTALL
)
_NAME: Final = re.compile(r"(?:HeadlessChrome|Chrome|Edg)/([\d.]+)")


class AboutBrowser(Struct, frozen=True):
    """What a page says of its browser.

    Attributes:
        browser: Its user agent.
        adapter: The WebGPU adapter; empty if there is none.
        software: Whether the adapter computes on the processor.

    """

    browser: Line
    adapter: Line
    software: bool

    @property
    def adapter_words(self) -> str:
        """The adapter, and whether it computes on the processor; may be empty."""
        return f"{self.adapter}{', in software' if self.software else ''}"


class BrowserPage(AgentCalls):
    """A page of a browser of its own, which answers frames.

    Raises:
        StageError: There is no browser, or it cannot be started.

    """

    def __init__(
        self, target: Target, folders: Mapping[str, Path], files: Mapping[str, Path]
    ) -> None:
        self._target = target
        settings = dict(target.settings)
        program = browser_at(settings.get("browser", ""))
        software = settings.get("adapter") == SOFTWARE
        self._answered = False
        self._server = PageServer(folders, files)
        try:
            self._chromium = Chromium(program, self._server.url, software=software)
        except BaseException:
            self._server.close()
            raise
        threading.Thread(target=self._watch, daemon=True).start()

    def hello(self, files: Sequence[str], build: str, device: str) -> AboutBrowser:
        """Tell the page what it serves, and return what it says of its browser."""
        said = {"files": [*files], "build": build, "device": device}
        told: AboutBrowser = self._asked("hello", AboutBrowser, said)
        self._answered = True
        return told

    def close(self) -> None:
        """End the browser, and the server with it."""
        self._server.close()
        self._chromium.close()

    def _watch(self) -> None:
        """End the answers when the browser has ended without its page."""
        while self._chromium.code is None:
            time.sleep(_LOOK_S)
        self._server.page_ended()

    def _write(self, parts: Iterable[Buffer]) -> None:
        self._server.send(parts)

    def _fill(self, view: memoryview, limit_s: float | None, where: str) -> None:
        end = self._server.answers
        while view:
            if not select.select([end], [], [], limit_s)[0]:
                self._refuse(
                    f"has shown no page for {STALL_S:g} s {where}"
                    f"{last_words(self._chromium.log.text)}",
                    Outcome.TIMED_OUT,
                )
            size = os.readv(end, [view])
            if not size:
                self._ended(where)
            view = view[size:]

    def _ended(self, where: str) -> NoReturn:
        code = self._chromium.code
        if code is not None and not self._answered:
            self._refuse(
                f"ended with exit code {code} before it showed a page"
                f"{last_words(self._chromium.log.text)}; look whether it starts by hand"
            )
        self._refuse(
            f"lost its page {where}: the browser ended it, as it does where memory "
            "runs out (a page has at most 4 GiB in WebAssembly) or a driver crashes",
            Outcome.CRASHED,
        )

    def _asked(self, do: str, kind: Any, said: Any, *rest: Any, **named: Any) -> Any:
        try:
            answer = super()._asked(do, kind, said, *rest, **named)
        except Exception as error:
            if isinstance(error, StageError):
                raise
            if half := _HALF.search(str(error)):
                self._refuse(
                    f"has a WebGPU adapter without shader-f16, which {half['op']} "
                    f"({half['node'][:80]}) needs; run the file on an adapter that has "
                    "it, or ship a file in float32",
                    Outcome.RUN,
                )
            if not _MEMORY.search(str(error)):
                raise
            with suppress(OSError):  # the log of the case keeps it
                os.write(2, f"{error}\n".encode())
            self._refuse(
                f"has too little memory during {do!r}: WebAssembly has at most 4 GiB; "
                "ship a smaller file, or run smaller sizes",
                Outcome.MEMORY,
            )
        if isinstance(answer, dict) and (lines := answer.get("said")):
            with suppress(OSError):  # the log of the case keeps it
                os.write(2, f"{lines}\n".encode())
        return answer


class Browser(BrowserPage):
    """onnxruntime-web in a browser of its own.

    `files` are those that a session needs, in one folder, the model first.

    Raises:
        StageError: There is no browser, no onnxruntime-web or no adapter.

    """

    def __init__(self, device: Device, target: Target, files: Sequence[Path]) -> None:
        settings = dict(target.settings)
        package = package_of(settings.get("package", ""), target.version)
        build = build_of(package, device.device)
        self.version = package.version
        served = {path.name: path for path in files}
        self.files = {name: f"model/{name}" for name in served}
        super().__init__(target, {"ort": package.dist}, served)
        try:
            told = self.hello([*served], build, device.device)
            self._check(told, device)
        except BaseException:
            self.close()
            raise
        found = _NAME.search(told.browser)
        on_gpu = device.device == WEBGPU
        self.about = (
            ("target", target.name),
            ("machine", f"Chromium {found[1]}" if found else told.browser),
            ("package", f"{NAME} {package.version}"),
            *((("adapter", told.adapter_words),) if on_gpu else ()),
        )

    def _check(self, told: AboutBrowser, device: Device) -> None:
        if device.device == WEBGPU and not told.adapter:
            self._refuse(
                "has no WebGPU adapter; install the driver of the graphics card, or "
                f'write `adapter = "{SOFTWARE}"` under [target.{self._target.table}] '
                "for one in software",
                Outcome.FELL_BACK,
            )


def adapter_of(program: str, *, software: bool) -> str:
    """Return the name of a browser's WebGPU adapter; empty if there is none.

    Raises:
        StageError: The browser shows no page.

    """
    settings = {"browser": program, "adapter": SOFTWARE if software else ""}
    target = Target(name="browser", kind="browser", settings=tuple(settings.items()))
    with closing(BrowserPage(target, {}, {})) as page:
        told = page.hello([], "", WEBGPU)
    return told.adapter_words
