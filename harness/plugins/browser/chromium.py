"""Start a Chromium-based browser for one page, and end it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess  # noqa: TID251  # it runs beside the server of its page
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from harness.core.errors import StageError
from harness.core.kept_log import KeptLog
from harness.core.outcome import Outcome
from harness.core.program import isolated

NAMES: Final = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"),
    *("chrome", "microsoft-edge", "brave-browser"),
)
"""Programs that are looked for on PATH."""

_PREFIX: Final = "parity-browser-"
_LOCK: Final = "harness.lock"
_NEW_S: Final = 60
"""A folder so young may have no lock yet, in seconds."""

# The browser reads commands from descriptor 3, and writes answers to 4, which nobody
# needs. A shell can give them these numbers; Python cannot.
_WITH_PIPE: Final = 'pipe=$1; shift; exec "$@" 3<"/dev/fd/$pipe" 4>/dev/null'

_MAC: Final = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"

_FLAGS: Final = (
    *("--headless=new", "--no-first-run", "--no-default-browser-check"),
    *("--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--disable-extensions", "--disable-default-apps"),
    *("--disable-breakpad", "--disable-crash-reporter", "--mute-audio"),
    # A page that computes is not to be slowed down for being out of sight.
    *("--disable-background-timer-throttling", "--disable-renderer-backgrounding"),
    "--disable-backgrounding-occluded-windows",
    # The page is the harness's own, and no other host has a name.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--enable-unsafe-webgpu",
    # The page's address has a secret, and other users see the words of a command. The
    # browser ends with this pipe, so also when the harness is killed.
    *("--remote-debugging-pipe", "about:blank"),
)


def browser_at(named: str) -> str:
    """Return the path of a browser: the one that is named, or the first on PATH.

    Raises:
        StageError: There is none.

    """
    if named:
        if found := shutil.which(named):
            return found
        msg = (
            f"`browser` names {named}, which is no program here; name a browser that "
            "is made of Chromium, or leave the key out."
        )
        raise StageError(msg, outcome=Outcome.UNAVAILABLE)
    for name in (*NAMES, _MAC):
        if found := shutil.which(name):
            return found
    msg = (
        f"No browser is on PATH: none of {', '.join(NAMES)}; install one that is made "
        'of Chromium, or name it with `browser = "/path/to/it"` under [target.*].'
    )
    raise StageError(msg, outcome=Outcome.UNAVAILABLE)


class Chromium:
    """A browser that shows one page; `log` has what it printed last.

    Raises:
        StageError: The program cannot be started.

    """

    def __init__(self, program: str, url: str, *, software: bool) -> None:
        self.log = KeptLog()
        _remove_left(Path(tempfile.gettempdir()))
        self._folder = tempfile.mkdtemp(prefix=_PREFIX)
        self._lock = FileLock(Path(self._folder, _LOCK), thread_local=False)
        self._lock.acquire()
        flags = [f"--user-data-dir={self._folder}"]
        if software:
            flags += ["--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan"]
        if os.geteuid() == 0:  # Chromium has no sandbox for root, and refuses to start
            flags.append("--no-sandbox")
        try:
            self._popen = self._started([program, *flags, *_FLAGS], url)
        except OSError as error:
            self._remove()
            msg = (
                f"The browser {program} cannot be started ({error.strerror}); name "
                "another with `browser` under [target.*]."
            )
            raise StageError(msg, outcome=Outcome.UNAVAILABLE) from error
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return self._popen.poll()

    def close(self) -> None:
        """End the browser, and remove its folder."""
        self._popen.terminate()
        try:
            self._popen.wait(5)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._listener.join(1)
        os.close(self._pipe)
        self._remove()

    def _started(self, command: list[str], url: str) -> subprocess.Popen[bytes]:
        theirs, self._pipe = os.pipe()
        try:
            popen = subprocess.Popen(
                ["/bin/sh", "-c", _WITH_PIPE, "sh", str(theirs), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=isolated(),
                pass_fds=(theirs,),
            )
        except OSError:
            os.close(self._pipe)
            raise
        finally:
            os.close(theirs)
        call = {"id": 1, "method": "Target.createTarget", "params": {"url": url}}
        with suppress(OSError):  # one that has ended is seen by its exit code
            os.write(self._pipe, json.dumps(call).encode() + b"\0")
        return popen

    def _remove(self) -> None:
        self._lock.release()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        assert self._popen.stdout is not None  # noqa: S101  # for mypy
        with suppress(OSError, ValueError), self._popen.stdout as out:
            while data := os.read(out.fileno(), 4096):
                self.log.add(data)


def _remove_left(place: Path) -> None:
    """Remove the folders of browsers whose harness was killed: nobody locks them."""
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError, Timeout):  # another process may be removing it too
            seen = folder.lstat()
            if seen.st_uid == os.geteuid() and seen.st_mtime < time.time() - _NEW_S:
                with FileLock(folder / _LOCK, timeout=0):
                    shutil.rmtree(folder, ignore_errors=True)


def version_of(program: str) -> str:
    """Return what a browser says of its version; empty if it says nothing."""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [program, "--version"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env=isolated(),
        )
        lines = done.stdout.strip().splitlines()
        return lines[-1][:200] if lines else Path(program).name
    return ""
