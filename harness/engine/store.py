"""Keep the artifacts of stages, under a digest of their key; each is made once.

    <root>/store.json                             schema number
    <root>/v1/<kind>/<two hex>/<key digest>/      an entry: its files and entry.json
    <root>/locks/<kind>.<key digest>              held while an entry is made or removed
    <root>/making/<kind>.<key digest>.<random>/   work folder of an entry
    <root>/files/<digest>                         a large file, linked into its entries

Variants of one network often have the same weights, so large files of equal contents
are hard links to one. A file system without such links keeps each of them.

A store may be the cache of one that machines share. `store.json` then has its URL.

An entry appears by one rename, so a reader sees all of it or nothing. The lock belongs
to the operating system and ends with its process. The next process that holds the lock
of a killed process removes its files under ``making/``. Readers take no lock.
"""

from __future__ import annotations

import errno
import json
import math
import os
import secrets
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock, Timeout

from harness import __version__
from harness.core.digest import digest_file, digest_value
from harness.core.entry import (
    Entry,
    FileRecord,
    id_of,
    key_digest_of,
    read_entry,
    seal,
    sync_folder,
    touch,
)
from harness.core.errors import StoreError
from harness.core.whole_file import write_whole
from harness.engine import shared as shared_store
from harness.engine.shared import Shared, is_url

SCHEMA = 1
_MARK = "store.json"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NEARLY_FULL_BYTES = 1 << 20
_LINKED_BYTES = 1 << 16
"""Size from which a file is kept once; below it a link saves less than it costs."""

_DYING_S = 1.0
"""Seconds that a process may still hold a lock after it was killed."""

LIMIT_GB = 20.0
"""Size of a store, in GB of 2^30 bytes, unless ``$PARITY_STORE_GB`` says another."""

IN_USE_S = 86_400.0
"""Seconds after its last use during which an entry may belong to a running process.
Readers hold no lock, and a run of full-size suites takes hours."""

Build = Callable[[Path], Mapping[str, object]]


def local_root(name: str = "") -> Path:
    """Return the named folder, or else ``$PARITY_STORE``.

    A folder in the user's cache folder stands for no name, and for a URL.
    """
    name = name or os.environ.get("PARITY_STORE", "")
    return Path(name).expanduser() if name and not is_url(name) else _cache()


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("parity-harness", appauthor=False))


def located(name: str, *, read_only: bool = False) -> Path:
    """Return the folder of a store; the local folder of one that machines share.

    Args:
        name: Path of a folder, or a URL of fsspec: ``s3://bucket/prefix``. If it is
            empty, `local_root` says which.
        read_only: Whether nothing may be put into a shared store.

    Raises:
        StoreError: A shared store cannot be used.

    """
    name = name or os.environ.get("PARITY_STORE", "")
    if not is_url(name):
        return local_root(name)
    shared = Shared(url=name.rstrip("/"), read_only=read_only)
    shared.open()
    digest = digest_value([shared.url, read_only])
    root = _cache() / "shared" / digest[:16]
    mark = {"schema": SCHEMA, "shared": shared.url, "read_only": read_only}
    try:
        root.mkdir(parents=True, exist_ok=True)
        write_whole(root / _MARK, json.dumps(mark) + "\n")
    except OSError as error:
        msg = (
            f"The local folder {root} of the store {shared.url} cannot be written: "
            f"{error.strerror}. Set XDG_CACHE_HOME to a folder that you can write."
        )
        raise StoreError(msg) from error
    return root


def limit_bytes() -> int:
    """Return the size that a store is to stay within, in bytes.

    Raises:
        StoreError: ``$PARITY_STORE_GB`` is no positive number.

    """
    said = os.environ.get("PARITY_STORE_GB") or str(LIMIT_GB)
    try:
        limit_gb = float(said)
    except ValueError:
        limit_gb = 0.0
    if not 0.0 < limit_gb < math.inf:
        msg = f"PARITY_STORE_GB is {said!r}; give a number of GB, such as {LIMIT_GB:g}."
        raise StoreError(msg)
    return round(limit_gb * 2**30)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreProblem:
    """One problem in a store, and whether the damaged entry has been removed."""

    path: Path
    problem: str
    removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A folder of entries; processes of one machine can share it safely.

    Raises:
        StoreError: The folder was written by another version of the harness.

    """

    root: Path = field(default_factory=local_root)
    shared: Shared | None = field(default=None, init=False)
    """The store of several machines that this one is the cache of, if there is one."""

    def __post_init__(self) -> None:
        """Refuse a store of another schema, and make a relative root absolute."""
        # A later change of directory must not move the store.
        object.__setattr__(self, "root", self.root.expanduser().absolute())
        mark = self._check_schema()
        if url := mark.get("shared"):
            shared = Shared(url=url, read_only=mark["read_only"])
            object.__setattr__(self, "shared", shared)

    def find(self, kind: str, key: Mapping[str, object]) -> Entry | None:
        """Return the entry, or None if there is none or some of its files are gone.

        This checks sizes and reads no contents. `Entry.check` checks digests.

        Raises:
            SpecError: `key` has no exact JSON form.

        """
        folder = self._folder(kind, key_digest_of(kind, key))
        entry = self._here(folder)
        if entry is None and self.shared is not None:
            with self._locked(id_of(folder)):
                entry = self._here(folder) or self._fetched(folder, self.shared)
        return entry

    def _here(self, folder: Path) -> Entry | None:
        try:
            entry = read_entry(folder)
        except StoreError:
            return None
        touch(entry)
        return entry

    def _fetched(self, folder: Path, shared: Shared) -> Entry | None:
        """Copy an entry from the shared store; the lock is held.

        A damaged one is removed there, and made anew.
        """
        name = _name(folder)
        with self._workplace(folder) as workplace:
            copied = workplace / name
            with self._sentences(workplace):
                copied.mkdir(parents=True)
                if not shared.fetch(name, copied):
                    return None
            try:
                read_entry(copied).check()
            except StoreError as error:
                print(  # noqa: T201  # a worker's log has it, a terminal shows it
                    f"the shared store {shared.url} has a damaged entry, which is made "
                    f"anew: {error}",
                    file=sys.stderr,
                )
                shared_store.on_wait(shared_store.DAMAGED, shared.url, name[:34])
                if not shared.read_only:
                    shared.remove(name)
                return None
            self._move_in(copied, folder, read_entry(copied).files)
            entry = read_entry(folder)
            touch(entry)  # its times are those of the machine that made it
            return entry

    def make(self, kind: str, key: Mapping[str, object], build: Build) -> Entry:
        """Return the entry, building it first if it is missing or damaged.

        Args:
            kind: The kind of artifact.
            key: Everything that decides the contents.
            build: Writes files into the given empty folder and returns the entry's
                `meta`. It runs in only one process, however many wait. If it raises an
                error, nothing is left behind.

        Raises:
            SpecError: `key` or the returned meta has no exact JSON form.
            StoreError: The disk is full, or the root cannot be written.

        """
        entry = self.find(kind, key)
        if entry is not None:
            return entry
        folder = self._folder(kind, key_digest_of(kind, key))
        with self._locked(id_of(folder)):
            # Another process may have made it while this one waited for the lock.
            entry = self._here(folder)
            if entry is None:
                self._build(folder, kind, key, build)
                entry = read_entry(folder)
                self._push(entry)
        return entry

    def pull(self) -> Iterator[Entry]:
        """Copy every entry of the shared store that is not here; yield each.

        Raises:
            StoreError: The shared store cannot be read.

        """
        for stored in self.shared.entries() if self.shared else ():
            folder = self.root / f"v{SCHEMA}" / stored.name
            if folder.is_dir():
                continue
            with self._locked(id_of(folder)):
                if self.shared and (entry := self._fetched(folder, self.shared)):
                    yield entry

    def push(self, entry: Entry) -> None:
        """Copy an entry into the shared store, if there is one that may be written.

        Raises:
            StoreError: The shared store cannot be written.

        """
        with self._locked(entry.id):
            self._push(entry)

    def _push(self, entry: Entry) -> None:
        """Copy an entry into the shared store; the lock is held."""
        if self.shared is None or self.shared.read_only:
            return
        with self._workplace(entry.path) as workplace, self._sentences(workplace):
            self.shared.put(_name(entry.path), entry.path, workplace / "entry.tar")

    def entries(self) -> Iterator[Entry]:
        """Yield every sound entry, ordered by kind and digest."""
        for folder in self._folders():
            with suppress(StoreError):
                yield read_entry(folder)

    def verify(self) -> Iterator[StoreProblem]:
        """Read every file of every entry; remove damaged entries and leftover files.

        An entry that another process is making is not touched.
        """
        yield from self.sweep()
        for folder in self._folders():
            with self._locked(id_of(folder), wait_s=0) as held:
                if not held:
                    continue
                try:
                    read_entry(folder).check()
                except StoreError as error:
                    removed = self._discard(folder)
                    yield StoreProblem(path=folder, problem=str(error), removed=removed)

    def remove(self, entry: Entry) -> None:
        """Remove one entry, also from the shared store, if it may be written.

        If the entry is being made, this waits until it is finished.

        Raises:
            StoreError: The shared store cannot be written.

        """
        with self._locked(entry.id):
            self._discard(entry.path)
            if self.shared is not None and not self.shared.read_only:
                self.shared.remove(_name(entry.path))

    def clear(self, *, older_than_s: float = 0.0) -> tuple[Entry, ...]:
        """Remove entries that were not used for so long, and all damaged ones.

        Args:
            older_than_s: Seconds since the last use; 0 removes every entry.

        Returns:
            The sound entries that were removed. An entry that is being made stays.

        """
        self.sweep()
        for folder in self._folders():
            try:
                read_entry(folder)
            except StoreError:
                with self._locked(id_of(folder), wait_s=0) as held:
                    if held:
                        self._discard(folder)
        # -1 also removes entries without a file. A clock may have been set back, so
        # "every entry" has no time.
        return self.prune(-1, spared_s=older_than_s or -math.inf)

    def prune(self, max_bytes: int, *, spared_s: float = IN_USE_S) -> tuple[Entry, ...]:
        """Remove entries, least recently used first, until the rest is small enough.

        Args:
            max_bytes: Size that the rest may have, in bytes.
            spared_s: An entry that was used within so many seconds stays, because a
                running process may need it.

        Returns:
            The entries that were removed.

        """
        entries = sorted(self.entries(), key=lambda entry: entry.used_s)
        users = Counter(one for entry in entries for one in on_disk(entry))
        rest_bytes = sum(one.size_bytes for one in users)
        newest_s = time.time() - spared_s
        removed = []
        for entry in entries:
            if rest_bytes <= max_bytes or entry.used_s > newest_s:
                break
            with suppress(StoreError), self._locked(entry.id, wait_s=0) as held:
                files = on_disk(entry)
                # Another process may have used or removed it since it was listed.
                unused = held and read_entry(entry.path).used_s <= newest_s
                if unused and self._discard(entry.path):
                    removed.append(entry)
                    users.subtract(files)
                    rest_bytes -= sum(f.size_bytes for f in files if not users[f])
        self._drop_unlinked()
        return tuple(removed)

    def _build(
        self, folder: Path, kind: str, key: Mapping[str, object], build: Build
    ) -> None:
        """Build in a work folder, seal it, and move it in; the lock is held."""
        with self._sentences():
            for left in self._making.glob(f"{id_of(folder)}.*"):
                shutil.rmtree(left)
        with self._workplace(folder) as workplace:
            meta = self._run_build(build, workplace)
            with self._sentences(workplace):
                files = seal(workplace, kind=kind, key=key, meta=meta)
            self._move_in(workplace, folder, files)

    def _move_in(
        self, made: Path, folder: Path, files: Mapping[str, FileRecord]
    ) -> None:
        """Let a whole entry appear by one rename; the lock is held."""
        # onnx refuses to read weights that have several names.
        is_onnx = any(name.endswith(".onnx") for name in files)
        for name, record in files.items():
            if record.size_bytes >= _LINKED_BYTES and not is_onnx:
                # Without links, or if another process removes the file meanwhile, the
                # entry keeps its own.
                with suppress(OSError):
                    self._link(made / name, record)
        with self._sentences(made):
            folder.parent.mkdir(parents=True, exist_ok=True)
            if folder.exists():  # it is damaged, or `find` would have found it
                self._discard(folder)
            made.rename(folder)
            sync_folder(folder.parent)

    def _link(self, path: Path, record: FileRecord) -> None:
        """Replace a file by a link to one of the same contents, or be the first."""
        first = self.root / "files" / record.digest
        if first.exists():
            if digest_file(first) == record.digest:
                linked = path.with_name(f"{path.name}.linked")
                os.link(first, linked)
                linked.replace(path)
                return
            first.unlink()  # it was changed after it was made
        first.parent.mkdir(exist_ok=True)
        os.link(path, first)

    def _drop_unlinked(self) -> None:
        """Remove the large files that no entry has any more."""
        for path in (self.root / "files").glob("*"):
            with suppress(OSError):
                if path.stat().st_nlink == 1:
                    path.unlink()

    def _run_build(self, build: Build, workplace: Path) -> Mapping[str, object]:
        try:
            return build(workplace)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _FULL:
                raise self._error(error, workplace) from error
            # A native converter does not tell why it failed; a full disk explains it.
            if _free_bytes(workplace) < _NEARLY_FULL_BYTES:
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise self._error(full, workplace) from error
            raise

    def _discard(self, folder: Path) -> bool:
        """Rename a folder first, then delete it; the lock is held."""
        # A new folder would need space, and this may be called because there is none.
        discarded = self._making / f"{id_of(folder)}.{secrets.token_hex(4)}"
        with self._sentences():
            self._making.mkdir(parents=True, exist_ok=True)
            try:
                folder.rename(discarded)
            except FileNotFoundError:
                return False
        shutil.rmtree(discarded, ignore_errors=True)
        return True

    def sweep(self) -> tuple[StoreProblem, ...]:
        """Remove files of dead processes; a live process holds its lock."""
        findings = []
        for left in sorted(self._making.glob("*")):
            # A name without an entry's is a stranger's; nobody holds a lock for it.
            name = left.name.rpartition(".")[0] or left.name
            with self._locked(name, wait_s=_DYING_S) as held:
                if held:
                    if left.is_dir():
                        shutil.rmtree(left, ignore_errors=True)
                    else:
                        left.unlink(missing_ok=True)
                    problem = "left by a process that died before it was done"
                    findings.append(
                        StoreProblem(path=left, problem=problem, removed=True)
                    )
        return tuple(findings)

    @property
    def _making(self) -> Path:
        return self.root / "making"

    @contextmanager
    def _workplace(self, folder: Path) -> Iterator[Path]:
        """Give an empty folder for the work on an entry, and remove it at the end."""
        workplace = self._making / f"{id_of(folder)}.{secrets.token_hex(4)}"
        with self._sentences():
            workplace.mkdir(parents=True)
        try:
            yield workplace
        finally:
            # On Ctrl-C too. After a rename there is nothing to remove.
            shutil.rmtree(workplace, ignore_errors=True)

    def _folder(self, kind: str, digest: str) -> Path:
        return self.root / f"v{SCHEMA}" / kind / digest[:2] / digest

    def _folders(self) -> list[Path]:
        return sorted((self.root / f"v{SCHEMA}").glob("*/??/*"))

    @contextmanager
    def _locked(self, name: str, *, wait_s: float = -1) -> Iterator[bool]:
        """Hold an entry's lock, or yield False if another process holds it too long.

        The wait has no limit by default, because the other process' stages have one.
        """
        with self._sentences():
            self._prepare()
            lock = FileLock(self.root / "locks" / name, timeout=wait_s)
            with suppress(Timeout):
                lock.acquire()
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def _prepare(self) -> None:
        self._check_schema()
        (self.root / "locks").mkdir(parents=True, exist_ok=True)
        mark = self.root / _MARK
        if not mark.exists():
            fresh = mark.with_suffix(f".{secrets.token_hex(4)}")
            fresh.write_text(json.dumps({"schema": SCHEMA}) + "\n", encoding="utf-8")
            fresh.replace(mark)

    def _check_schema(self) -> dict[str, Any]:
        """Return the store's mark; empty for a store that is not made yet."""
        mark = self.root / _MARK
        with self._sentences():
            try:
                said: dict[str, Any] = json.loads(mark.read_bytes())
                schema = said["schema"]
            except FileNotFoundError:
                return {}
            except (ValueError, TypeError, KeyError) as error:
                msg = f"{mark} is not a store's mark; delete it, or set PARITY_STORE."
                raise StoreError(msg) from error
        if schema != SCHEMA:
            msg = (
                f"The store at {self.root} has schema {schema!r}; harness "
                f"{__version__} knows {SCHEMA}, so it was left untouched. "
                "Take a newer harness, or point PARITY_STORE at another folder."
            )
            raise StoreError(msg)
        return said

    @contextmanager
    def _sentences(self, workplace: Path | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._error(error, workplace) from error

    def _error(self, error: OSError, workplace: Path | None) -> StoreError:
        if error.errno in _FULL:
            written = 0 if workplace is None else _written_bytes(workplace)
            return StoreError(
                f"The store at {self.root} cannot take the entry: {error.strerror}; it "
                f"needs more than the {written / 1e6:,.1f} MB written so far, and "
                f"{_free_bytes(self.root) / 1e6:,.1f} MB are free. Run `parity store "
                "prune`, or set PARITY_STORE to a larger disk."
            )
        return StoreError(
            f"The store at {self.root} cannot be used: {error.strerror} "
            f"({error.filename}). Set PARITY_STORE to a folder that you can write."
        )


@dataclass(frozen=True, slots=True)
class OnDisk:
    """A file as the disk has it; links to one file are equal."""

    device: int
    number: int
    size_bytes: int


def on_disk(entry: Entry) -> list[OnDisk]:
    """Return the files of an entry that are there."""
    found = []
    for name in entry.files:
        with suppress(OSError):  # another process removed it since it was listed
            about = (entry.path / name).stat()
            found.append(OnDisk(about.st_dev, about.st_ino, about.st_size))
    return found


def stored_bytes(entries: Iterable[Entry]) -> int:
    """Return the bytes that entries take; a file that several have counts once."""
    return sum(
        one.size_bytes for one in {f for entry in entries for f in on_disk(entry)}
    )


def _name(folder: Path) -> str:
    """Return the name of an entry's folder in any store: ``onnx/df/df93…``."""
    return "/".join(folder.parts[-3:])


def _written_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _free_bytes(folder: Path) -> int:
    standing = next(place for place in (folder, *folder.parents) if place.exists())
    return shutil.disk_usage(standing).free
