"""A store that machines share, by any file system of fsspec: S3, SSH, a mounted folder.

    <url>/store.json                      schema number
    <url>/v1/<kind>/<two hex>/<key>.tar   an entry: its files and entry.json

Nobody knows who wrote there. So `archive`, beside this module, takes only what the kind
of an entry may have, and `core.kinds` says which kinds are never shared.

An entry is one object. So an upload is there as a whole or not at all, and two writers
of one key cannot mix their files. The local store is its cache: it looks up what it
lacks, and puts what it makes. Credentials are fsspec's, from its configuration or the
environment; they are in no URL, message or key.
"""

from __future__ import annotations

import errno
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import msgspec

from harness.core.errors import StoreError
from harness.core.received import DamagedError, decode
from harness.core.shown import echo
from harness.engine import shared
from harness.engine.shared import NAME, SharedStore, Stored
from harness.plugins.fleet.archive import pack, unpack

SCHEMA: Final = 1
WAIT_S: Final = 60.0
"""Seconds for which a shared store that does not answer is waited for."""

SAY_S: Final = 5.0
"""After this many seconds of waiting, a line says what the run waits for."""

_MOVED_S: Final = 1.0
"""Seconds after which a transfer says again how much is done."""

_FIRST_PAUSE_S: Final = 0.5
_MARK: Final = "store.json"

# These show an object only when it is complete, and have no folders; making one would
# make a bucket that a wrong URL names. Elsewhere a file is written under another name
# first, and then renamed.
_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "memory"})

# Errors that waiting does not mend.
_FINAL: Final = (
    *(PermissionError, FileNotFoundError, NotADirectoryError),
    *(ImportError, ValueError),  # no package for the file system, or no such one
)

# botocore's own errors are of these kinds where the network is to blame.
_BOTOCORE: Final = "botocore.exceptions"
_NETWORK: Final = frozenset({"HTTPClientError", "ConnectionError", "ClientError"})

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_LEFT: Final = re.compile(r"\.tar\.[0-9a-f]{8}$")
_LEFT_S: Final = 86_400.0
"""Age from which an upload that is not complete has nobody who completes it."""

Result = TypeVar("Result")


class _Mark(msgspec.Struct, frozen=True):
    """What `_MARK` says of the store."""

    schema: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared(SharedStore):
    """A shared store; each method raises `StoreError` if it cannot be read or written.

    Attributes:
        url: Its URL, as fsspec reads it.
        read_only: Whether nothing may be put there.

    """

    def open(self) -> None:
        """Look whether the store can be used.

        Raises:
            StoreError: It cannot be reached, read or written, it has another schema, or
                the package for its file system is not installed.

        """
        if any(urlsplit(part).password for part in self.url.split("::")):
            msg = (
                "a URL of a store must not have a password, because reports show it; "
                "give it in fsspec's configuration or the environment."
            )
            raise StoreError(msg)
        self._tried(_Wait(self.url, "is opened"), self._open)

    def _open(self) -> None:
        files, home = self._home()
        mark = f"{home}/{_MARK}"
        try:
            text = files.cat_file(mark)
        except FileNotFoundError:
            if self.read_only:
                # A prefix without any entry is no mistake; a bucket that is not there
                # is one.
                place = home.partition("/")[0] if self._is_bucket else home
                if place and not files.exists(place):
                    raise
                return
            if not self._is_bucket:
                files.makedirs(home, exist_ok=True)
            self._write_whole(mark, msgspec.json.encode(_Mark(SCHEMA)))
            return
        try:
            schema = decode(text, _Mark).schema
        except DamagedError as error:
            msg = (
                f"{self.url}/{_MARK} does not say which schema the shared store has; "
                "delete it, then run again."
            )
            raise StoreError(msg) from error
        if schema != SCHEMA:
            msg = (
                f"the shared store {self.url} has schema {schema}, and this version of "
                f"the harness knows {SCHEMA}; take the version that wrote it, or "
                "another prefix."
            )
            raise StoreError(msg)

    def _write_whole(self, path: str, data: bytes) -> None:
        files, _ = self._home()
        part = path if self._is_bucket else f"{path}.{secrets.token_hex(4)}"
        files.pipe_file(part, data)
        if part != path:
            files.mv(part, path)

    def fetch(self, name: str, into: Path, expected_id: str) -> bool:
        """Copy an entry's files into an empty folder; return whether it is there.

        Raises:
            DamagedError: It is not that entry, or has what its kind may not have.

        """
        archive = into.with_name(f"{into.name}.tar")
        wait = _Wait(self.url, f"is asked for {name}")

        def get() -> bool:
            files, home = self._home()
            try:
                files.get_file(
                    f"{home}/{self._at(name)}",
                    str(archive),
                    callback=wait.callback("fetching", name),
                )
            except FileNotFoundError:
                return False
            return True

        try:
            if not self._tried(wait, get):
                return False
            unpack(archive, into, expected_id)
        finally:
            archive.unlink(missing_ok=True)
        return True

    def put(self, name: str, folder: Path, archive: Path) -> None:
        """Copy an entry's folder there, by way of an archive, unless it is there."""
        wait = _Wait(self.url, f"gets {name}")

        def put() -> None:
            files, home = self._home()
            target = f"{home}/{self._at(name)}"
            if files.exists(target):
                return
            moved = wait.callback("putting", name)
            if self._is_bucket:
                files.put_file(str(archive), target, callback=moved)
                return
            files.makedirs(target.rpartition("/")[0], exist_ok=True)
            part = f"{target}.{secrets.token_hex(4)}"
            files.put_file(str(archive), part, callback=moved)
            files.mv(part, target)

        try:
            pack(folder, archive)
            self._tried(wait, put)
        finally:
            archive.unlink(missing_ok=True)

    def entries(self) -> Iterator[Stored]:
        """Yield every entry."""
        files, home = self._home()
        found: dict[str, dict[str, Any]] = self._tried(
            _Wait(self.url, "is listed"),
            lambda: files.find(f"{home}/v{SCHEMA}", detail=True),
        )
        for path, about in sorted(found.items()):
            if not path.endswith(".tar"):
                continue
            name = "/".join(path.removesuffix(".tar").rsplit("/", 3)[1:])
            if NAME.fullmatch(name) is None:
                continue
            made = (
                about.get("LastModified") or about.get("mtime") or files.modified(path)
            )
            made_s = made if isinstance(made, float | int) else made.timestamp()
            yield Stored(name=name, size_bytes=about["size"], made_s=float(made_s))

    def prune(self, max_bytes: int) -> list[Stored]:
        """Remove entries, the longest there first, until the rest is small enough."""
        entries = sorted(self.entries(), key=lambda entry: entry.made_s)
        rest_bytes = sum(entry.size_bytes for entry in entries)
        removed = []
        for entry in entries:
            if rest_bytes <= max_bytes:
                break
            self.remove(entry.name)
            removed.append(entry)
            rest_bytes -= entry.size_bytes
        self._drop_left()
        return removed

    def _drop_left(self) -> None:
        """Remove what killed uploads have left, which no listing shows."""
        if self._is_bucket:  # it shows whole objects alone
            return
        files, home = self._home()
        wait = _Wait(self.url, "is listed")
        found = self._tried(wait, lambda: files.find(f"{home}/v{SCHEMA}"))
        for path in filter(_LEFT.search, found):
            with suppress(FileNotFoundError):  # its upload has just ended
                if time.time() - files.modified(path).timestamp() > _LEFT_S:
                    files.rm_file(path)

    def remove(self, name: str) -> None:
        """Remove an entry; it is no error if another machine has."""

        def remove() -> None:
            files, home = self._home()
            with suppress(FileNotFoundError):
                files.rm_file(f"{home}/{self._at(name)}")

        self._tried(_Wait(self.url, f"forgets {name}"), remove)

    @property
    def _is_bucket(self) -> bool:
        return urlsplit(self.url).scheme in _BUCKETS

    def _at(self, name: str) -> str:
        return f"v{SCHEMA}/{name}.tar"

    def _home(self) -> tuple[Any, str]:
        """Return the file system and the folder in it."""
        import fsspec

        files, home = fsspec.core.url_to_fs(self.url, skip_instance_cache=False)
        # A listing of a second ago lacks what another machine has put since.
        files.invalidate_cache()
        return files, str(home).rstrip("/")

    def _tried(self, wait: _Wait, call: Callable[[], Result]) -> Result:
        """Call again, with longer pauses, while the store does not answer."""
        start, pause = time.monotonic(), _FIRST_PAUSE_S
        with wait:
            while True:
                try:
                    return call()
                except StoreError:
                    raise
                except Exception as error:  # each file system raises errors of its own
                    if getattr(error, "errno", None) in _FULL:
                        raise  # of the disk here, whose store says so
                    waited = time.monotonic() - start
                    if isinstance(error, _FINAL) or _refuses(error) or waited > WAIT_S:
                        raise StoreError(self._refused(error)) from error
                time.sleep(pause)
                pause = min(2 * pause, 5.0)

    def _refused(self, error: Exception) -> str:
        why = f"{type(error).__name__}: {error}".rstrip(".")
        if isinstance(error, ImportError | ValueError):
            return (
                f"the shared store {self.url} needs a file system that is not here "
                f"({why}); install its package, such as s3fs for s3://."
            )
        if isinstance(error, FileNotFoundError):
            return (
                f"the shared store {self.url} is not there ({why}); make the bucket or "
                "folder, or correct the URL."
            )
        if isinstance(error, PermissionError) or _refuses(error):
            return (
                f"the shared store {self.url} refuses access ({why}); look at its "
                "credentials, or use --read-only where it may only be read."
            )
        return (
            f"the shared store {self.url} did not answer for {WAIT_S:g} s ({why}); "
            "look at its address and the network, then run again: nothing is lost."
        )


def shared_store(url: str, read_only: bool) -> Shared:  # noqa: FBT001  # a hook's
    """Return the shared store at a URL, without a look at it."""
    return Shared(url=url, read_only=read_only)


def _refuses(error: Exception) -> bool:
    """Whether botocore sent no request, for lack of credentials for example."""
    kinds = [one for one in type(error).__mro__ if one.__module__ == _BOTOCORE]
    return bool(kinds) and not _NETWORK & {kind.__name__ for kind in kinds}


class _Wait(AbstractContextManager["_Wait"]):
    """Says what a shared store is waited for, and how much of a transfer is done.

    A file system has retries of its own, during which it says nothing. So another
    thread says it, once nothing has moved for some seconds.
    """

    def __init__(self, url: str, doing: str) -> None:
        self._url, self._doing = url, doing
        self._has_said = False
        self._moved_s = 0.0
        self._timer = threading.Timer(SAY_S, self._say)

    def __enter__(self) -> Self:
        """Begin to wait."""
        self._moved_s = time.monotonic()  # nothing is said of a short transfer
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        """End, and take back what was said."""
        self._timer.cancel()
        if self._has_said:
            shared.on_wait("done", self._url, "")

    def _begin(self) -> None:
        self._timer.cancel()
        self._timer = threading.Timer(SAY_S, self._say)
        self._timer.daemon = True
        self._timer.start()

    def _say(self) -> None:
        """Print a line where a terminal shows it, or a worker's log keeps it."""
        self._has_said = True
        text = f"waiting: {self._url} {self._doing}"
        echo(text, err=True)
        shared.on_wait("waiting", self._url, self._doing)

    def callback(self, stage: str, name: str) -> Any:  # noqa: ANN401  # fsspec's
        """Return what fsspec tells how many bytes of how many have moved."""
        import fsspec

        kind = name.partition("/")[0]

        def moved(size: int | None, value: int, **_: object) -> None:
            now_s = time.monotonic()
            if not value or now_s - self._moved_s < _MOVED_S:
                return
            self._moved_s, self._has_said = now_s, True
            self._begin()
            of = f" of {size / 2**20:,.0f}" if size else ""
            shared.on_wait(stage, self._url, f"{kind}: {value / 2**20:,.0f}{of} MB")

        return fsspec.Callback(hooks={"moved": moved})
