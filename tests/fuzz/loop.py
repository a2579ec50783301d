"""Call a reader with changed files until the time is over, and note what goes wrong.

`fuzz` starts a child process for one format and reads its findings. A child that native
code kills is a finding too, unless the harness itself runs that code in a process of
its own and says how it ended. Another child then goes on behind the input.

A call may take `LIMIT_S` seconds of processor time, and wait for `WAIT_S` seconds, so
other work on the machine makes no finding.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import asdict, dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import psutil

from tests.fuzz.changes import MARK
from tests.places import ROOT
from tests.watch import files_below, watched

LIMIT_S = 10.0
"""Most seconds of processor time of a call, its child processes included."""

WAIT_S = 30.0
"""Most seconds that a call may take beside that: it waits, or the machine is busy."""

LIMIT_BYTES = 512 << 20
HANG_S = 90
"""After so many seconds native code is taken to hang, and its process ends."""

SPACE_BYTES = 12 << 30
_NEEDED = 2 << 30
"""Free bytes of a file system in memory that is used; a container often has 64 MB."""

MOST = 40
"""Number of different findings after which a format has enough to mend."""

SHOWN = set("\n\r\t")

_CHILD = "from tests.fuzz.loop import main; main()"


class SlowError(BaseException):
    """A call took longer than it may; no reader catches it."""


@dataclass
class Finding:
    """What went wrong, where, and the draw that shows it again."""

    format: str
    kind: str
    where: str
    words: str
    draw: int
    files: str = ""


@dataclass
class Result:
    """Calls and findings of one format."""

    format: str
    calls: int = 0
    sound: int = 0
    findings: list[Finding] = field(default_factory=list)


def fuzz(
    name: str, healthy: Path, seconds: float, seed: int, kept: Path | None = None
) -> Result:
    """Fuzz one format for some seconds; files that show a finding go into `kept`."""
    result, at, left = Result(name), 0, seconds
    seen: set[tuple[str, str]] = set()
    # Most of the time would go into making and removing folders on a disk.
    memory = "/dev/shm"  # noqa: S108  # only the beginning of a new folder's path
    fits = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > _NEEDED
    beside = memory if fits else None
    with tempfile.TemporaryDirectory(prefix="parity-fuzz-", dir=beside) as scratch:
        while left > 0 and len(result.findings) < MOST:
            place = Path(scratch, f"from-{at}")
            place.mkdir()
            told = _child(name, healthy, place, left, seed, at, kept)
            result.calls += told["calls"]
            result.sound += told["sound"]
            for one in told["findings"]:
                if (one["kind"], one["where"]) not in seen:
                    seen.add((one["kind"], one["where"]))
                    result.findings.append(Finding(**one))
            if not told["died"]:
                break
            at, left = told["next"], left - told["took_s"]
            shutil.rmtree(place, ignore_errors=True)
    return result


def _child(  # noqa: PLR0917  # each is needed once
    name: str,
    healthy: Path,
    place: Path,
    left: float,
    seed: int,
    at: int,
    kept: Path | None,
) -> dict[str, Any]:
    asked = [name, str(healthy), str(place), str(left), str(seed), str(at)]
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *asked, str(kept or "")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        env=_environment(place),
    )
    lines = (place / "said").read_text() if (place / "said").exists() else ""
    told: dict[str, Any] = {"calls": 0, "sound": 0, "findings": [], "next": at + 1}
    told["took_s"] = 1.0
    for line in lines.splitlines():
        one = json.loads(line)
        if "finding" in one:
            told["findings"].append(one["finding"])
        else:
            told |= one
    told["died"] = done.returncode != 0
    draw = told["next"] - 1
    if done.returncode == -signal.SIGKILL and draw > at:
        # The system may have lacked memory for other work; try the same once more.
        told["next"] = draw
        return told
    if told["died"] and not _ends_so(name, place, done.returncode):
        stack = [one for one in done.stdout.splitlines() if ROOT.name in one]
        told["findings"].append(
            asdict(
                Finding(
                    format=name,
                    kind=f"the process ended with {done.returncode}",
                    where=(stack or ["?"])[0].strip(),
                    words=done.stdout[-1500:],
                    draw=draw,
                    files=_keep(place / "in", kept, name, draw),
                )
            )
        )
    return told


def _ends_so(name: str, place: Path, code: int) -> bool:
    """Whether the harness runs the same code in a process that may end like this."""
    from tests.fuzz.formats import formats

    return code < 0 and formats()[name].ends_so(place)


def _environment(place: Path) -> dict[str, str]:
    """A user's environment whose folders are all in a place of ours."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "GITHUB_"))}
    for name, folder in {
        "HOME": "home",
        "TMPDIR": "tmp",
        "XDG_CACHE_HOME": "home/cache",
        "PARITY_STORE": "home/store",
    }.items():
        (place / folder).mkdir(parents=True, exist_ok=True)
        own[name] = str(place / folder)
    return own | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
        "ORT_DISABLE_TELEMETRY": "1",
        "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", ""),
        "COLUMNS": "100",
        "HF_HUB_OFFLINE": "1",
    }


def _keep(files: Path, kept: Path | None, name: str, draw: int) -> str:
    if kept is None or not files.exists():
        return ""
    into = kept / f"{name}-{draw}"
    shutil.rmtree(into, ignore_errors=True)
    with suppress(shutil.Error):  # of a named pipe; the rest is copied
        shutil.copytree(files, into, symlinks=True)
    return str(into)


class Trouble(Exception):  # noqa: N818  # it is no error of the fuzzer
    """A call did what it must not do."""

    def __init__(self, *, kind: str, where: str, words: str) -> None:
        super().__init__(words)
        self.kind, self.where, self.words = kind, where, words


def command(place: Path, *words: str, pages: tuple[Path, ...] = ()) -> tuple[int, str]:
    """Call the `parity` command in a folder; check its exit code and what it says."""
    from harness.commands.cli import main

    text = StringIO()
    with chdir(place), redirect_stdout(text), redirect_stderr(text):
        code = main([*words])
    said = text.getvalue()
    if "Traceback (most recent call last)" in said:
        raise Trouble(
            kind="traceback", where=_place_in(said), words=f"{words}\n{said[-1500:]}"
        )
    if code not in {0, 1, 2}:
        raise Trouble(kind="exit code", where=f"{words[0]}: {code}", words=said[-500:])
    check_shown(said, words[0])
    for page in pages:
        if page.is_file() and MARK in page.read_text(encoding="utf-8"):
            raise Trouble(
                kind="unescaped", where=f"{page.name} of {words[0]}", words=""
            )
    return code, said


def check_shown(said: str, by: str) -> None:
    """Refuse text that would steer a terminal."""
    for one in said:
        if unicodedata.category(one) in {"Cc", "Cf"} and one not in SHOWN:
            at = said.index(one)
            shown = said[max(0, at - 60) : at + 40]
            raise Trouble(
                kind="control character", where=f"{by}: {one!r}", words=repr(shown)
            )


def _place_in(said: str) -> str:
    """Return the error of a traceback, and the nearest line of the harness."""
    lines = said.splitlines()
    frames = [
        f"{found[1]}:{found[2]}"
        for line in lines
        if (
            found := re.match(
                rf'\s+File "(?:{ROOT}/)?(harness/[^"]+)", line (\d+)', line
            )
        )
    ]
    ends = [n for n, line in enumerate(lines) if re.match(r"[\w.]+(:|$)", line)]
    error = next((lines[n] for n in ends if "Traceback" not in lines[n]), "")
    return f"{error.partition(':')[0]} at {(frames or ['?'])[-1]}"


def _processor_s() -> float:
    """Processor time of this process and of its children, in seconds."""
    found = os.times()
    used_s = found.user + found.system + found.children_user + found.children_system
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            used_s += sum(one.cpu_times()[:2])
    return used_s


class _Spent:
    """What a call has spent since this was made."""

    def __init__(self) -> None:
        self._used_s, self._start = _processor_s(), time.monotonic()

    @property
    def words(self) -> str:
        """How the call was slow; empty if it was not."""
        used_s = _processor_s() - self._used_s
        waited_s = time.monotonic() - self._start - used_s
        if used_s > LIMIT_S:
            return f"{used_s:.0f} s of processor time"
        return f"{waited_s:.0f} s of waiting" if waited_s > WAIT_S else ""


@contextmanager
def _limited(spent: _Spent) -> Iterator[None]:
    def stop(*_: object) -> None:
        if spent.words:
            raise SlowError(spent.words)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S, 1.0)
    faulthandler.dump_traceback_later(HANG_S, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def _peak_bytes() -> int:
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    return int(found[1]) << 10 if found else 0


def _forget_peak() -> int:
    """Begin to measure the peak anew; return the memory of now, in bytes."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    except OSError:  # then only the largest call of all is seen
        return _peak_bytes()
    return psutil.Process().memory_info().rss


def one_call(form: Any, place: Path) -> None:
    """Make one call of a format, and raise `Trouble` if it does what it must not."""
    outside = place / "outside"
    before = files_below(outside)
    base, spent = _forget_peak(), _Spent()
    mine = (*form.writable, place / "tmp", place / "home")
    try:
        with watched(*mine) as seen, _limited(spent):
            form.call()
    except Trouble:
        raise
    except SlowError as error:
        words = "".join(traceback.format_exception(error))
        raise Trouble(
            kind="slow", where=_place_in(words), words=words[-1500:]
        ) from None
    except form.allowed:
        pass
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        words = "".join(traceback.format_exception(error))
        raise Trouble(
            kind="traceback", where=_place_in(words), words=words[-1500:]
        ) from None
    if words := spent.words:
        raise Trouble(kind="slow", where="in native code", words=words)
    if (grown := _peak_bytes() - base) > LIMIT_BYTES:
        raise Trouble(
            kind="memory",
            where=f"{form.name}: {grown >> 28} × 256 MB",
            words=f"{grown:,}",
        )
    if seen.strange:
        raise Trouble(
            kind="outside",
            where=re.sub(r"\d+", "N", seen.strange[0]),
            words=str(seen.strange),
        )
    if files_below(outside) != before:
        raise Trouble(
            kind="outside",
            where="a child wrote outside",
            words=str(files_below(outside)),
        )


def _quicken() -> None:
    """Compute once what does not depend on the data that is read."""
    import gzip
    from functools import cache, partial

    import jinja2

    from harness.plugins.start.init import write

    gzip.compress = partial(gzip.compress, compresslevel=1)
    write.schemas = cache(write.schemas)
    compiled = jinja2.Environment._compile
    jinja2.Environment._compile = staticmethod(
        cache(lambda source, filename: compiled(None, source, filename))
    )
    generated = jinja2.Environment._generate
    kept: dict[tuple[str | None, str | None], Any] = {}

    def generate(self: Any, source: Any, name: Any, filename: Any, **more: Any) -> Any:
        if (name, filename) not in kept:
            kept[name, filename] = generated(self, source, name, filename, **more)
        return kept[name, filename]

    jinja2.Environment._generate = generate


def main() -> None:
    """Fuzz as the child of `fuzz`."""
    parser = argparse.ArgumentParser()
    for word in ("name", "healthy", "place", "seconds", "seed", "first", "kept"):
        parser.add_argument(word)
    asked = parser.parse_args()
    from tests.fuzz.formats import formats

    warnings.simplefilter("ignore")
    _quicken()
    place, kept = Path(asked.place), Path(asked.kept) if asked.kept else None
    for name in ("in", "outside", "work", "here"):
        (place / name).mkdir(exist_ok=True)
    # A bundle may let its runtime write where it runs.
    sys.path.insert(0, str(ROOT))
    os.chdir(place / "here")
    (place / "outside" / "there").write_text("as it was")
    said = (place / "said").open("w", encoding="utf-8", buffering=1)
    form = formats()[asked.name](Path(asked.healthy), place)
    form.begin()
    space = psutil.Process().memory_info().vms + SPACE_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (space, resource.RLIM_INFINITY))
    start, seconds = time.monotonic(), float(asked.seconds)
    draw, calls, sound = int(asked.first), 0, 0
    while (took_s := time.monotonic() - start) < seconds:
        now = {"next": draw + 1, "calls": calls, "sound": sound, "took_s": took_s}
        said.write(json.dumps(now) + "\n")
        trouble = _drawn(form, place, asked.seed, draw)
        if trouble is not None and trouble.kind in {"slow", "memory"}:
            # The first call loads modules, and a busy machine may take memory back.
            trouble = _drawn(form, place, asked.seed, draw)
        calls += 1
        if trouble is None:
            sound += form.sound
        else:
            files = _keep(place / "in", kept, form.name, draw)
            found = Finding(
                format=form.name,
                kind=trouble.kind,
                where=trouble.where,
                words=trouble.words,
                draw=draw,
                files=files,
            )
            said.write(json.dumps({"finding": asdict(found)}) + "\n")
        draw += 1
    said.write(json.dumps({"calls": calls, "sound": sound, "next": draw}) + "\n")
    said.close()
    sys.stdout.flush()
    os._exit(0)  # threads of runtimes may outlive everything


def _drawn(form: Any, place: Path, seed: str, draw: int) -> Trouble | None:
    """Make the call of one draw; return what it did wrong."""
    form.sound = 0
    form.change(Random(f"{seed}:{form.name}:{draw}"))
    try:
        one_call(form, place)
    except Trouble as trouble:
        return trouble
    return None
