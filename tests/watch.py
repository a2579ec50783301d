"""Watch what data makes Python do: files that are written, programs, and code.

    with watched(tmp_path) as seen:
        load_card(path)
    assert seen.strange == []

Python reports these acts to an audit hook before they happen, whatever code asks for
them. A hook cannot be removed, so there is one, and it is idle outside of a ``with``.
Child processes are not seen; compare the folders that they could write to.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.places import ROOT

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PLACES = {  # event: which arguments are paths that change, and their folders' numbers
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, 9),),
    "os.chmod": ((0, 2),),
    "shutil.rmtree": ((0, 1),),
    "tempfile.mkdtemp": ((0, 9),),
}
_PROGRAMS = ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.system")
_OWN = tuple(f"{os.path.realpath(ROOT / one)}{os.sep}" for one in ("harness", "tests"))
_INSTALLED = (
    *_OWN,
    *(
        os.path.realpath(place) + os.sep
        for place in (
            *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib")),
            *(one for one in sys.path if one.endswith("site-packages")),
        )
    ),
)
# These unpickle what they wrote themselves.
_OWN_PICKLES = ("numba/", "multiprocessing/", "concurrent/")


@dataclass
class Seen:
    """What happened: sentences about strange acts, and the programs that started."""

    folders: tuple[str, ...]
    strange: list[str] = field(default_factory=list)
    programs: list[tuple[str, ...]] = field(default_factory=list)

    def may_write(self, path: str, *, through: bool) -> bool:
        """Whether a path is in one of the folders; `through` a link, if it is one."""
        real = os.path.realpath(os.path.dirname(path))  # noqa: PTH120
        if through and os.path.islink(path):  # noqa: PTH114
            real = os.path.realpath(path)
        if path in {"/dev/null", "/dev/tty"}:
            return True
        return f"{real}/".startswith(self.folders)


_now: list[Seen] = []
_busy: list[bool] = []
_installed: list[bool] = []


@contextmanager
def watched(*folders: Path) -> Iterator[Seen]:
    """Collect what happens, where only these folders may be written to."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_hook)
    real = tuple(os.path.realpath(one) + os.sep for one in folders)
    seen = Seen(real)
    _now.append(seen)
    try:
        yield seen
    finally:
        _now.remove(seen)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if not _now or _busy:
        return
    _busy.append(True)
    try:
        for seen in _now:
            _note(seen, event, arguments)
    finally:
        _busy.pop()


def _note(seen: Seen, event: str, arguments: tuple[object, ...]) -> None:
    if event == "open":
        path, mode, flags = arguments
        writes = bool(set(str(mode or "")) & set("wax+")) or bool(int(flags) & _WRITES)
        if writes and not isinstance(path, int):
            # Nobody says in which folder `os.open` opens a bare name.
            bare = mode is None and not os.path.dirname(os.fsdecode(path))  # noqa: PTH120
            if not bare or path in {b"..", ".."}:
                _check(seen, "open", path)
    elif event in _PLACES:
        for at, beside in _PLACES[event]:
            folder = arguments[beside] if beside < len(arguments) else None
            _check(seen, event, arguments[at], folder)
    elif event in _PROGRAMS:
        words = arguments[1] if len(arguments) > 1 else arguments[0]
        words = words if isinstance(words, list | tuple) else [words]
        seen.programs.append(tuple(map(os.fsdecode, words)))
    elif event == "pickle.find_class":
        if not any(f"/{one}" in place for one in _OWN_PICKLES for place in _callers()):
            seen.strange.append(f"a pickle asks for {arguments[0]}.{arguments[1]}")
    elif event == "exec":
        _code(seen, arguments[0])


def _check(seen: Seen, event: str, path: object, folder: object = None) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return
    text = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0:
        with suppress(OSError):
            text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)  # noqa: PTH115, PTH118
    # Python writes what it compiled beside modules, and numba into its cache.
    if "__pycache__" in text or text.endswith((".nbi", ".nbc")):
        return
    if not seen.may_write(os.path.abspath(text), through=event == "open"):  # noqa: PTH100
        seen.strange.append(f"{event} of {text!r}")


def _code(seen: Seen, code: object) -> None:
    name = getattr(code, "co_filename", "")
    if name.startswith("<frozen") or name.startswith(_INSTALLED):
        return
    if os.path.realpath(name).startswith(_INSTALLED):
        return
    # Dataclasses, enums and templates are made of text by the libraries themselves.
    # These may be installed below ROOT too, in an environment of tox.
    caller = next(iter(_callers()), "")
    if name.startswith("<") and not os.path.realpath(caller).startswith(_OWN):
        return
    seen.strange.append(f"code of {name!r} is run by {caller!r}")


def _callers() -> Iterator[str]:
    """Yield the files of the frames outside of this module, the nearest first."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith("<frozen"):
            yield name
        frame = frame.f_back


def files_below(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return what would show that a child process wrote below a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        found[str(path.relative_to(folder))] = (
            about.st_mode,
            about.st_size if not path.is_dir() else 0,
            about.st_mtime_ns if not path.is_dir() else 0,
        )
    return found
