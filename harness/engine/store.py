"""Keep the artifacts of stages, under a digest of their key; each is made once.

    <root>/store.json                             schema number
    <root>/v1/<kind>/<two hex>/<key digest>/      an entry: its files and entry.json
    <root>/locks/<kind>.<key digest>              held while an entry is made or removed
    <root>/making/<kind>.<key digest>.<random>/   work folder of an entry
    <root>/files/<digest>                         a large file, linked into its entries
    <root>/damaged/<name>.<random>                the newest of what was damaged

Variants of one network often have the same weights, so large files of equal contents
are hard links to one. A file system without such links keeps each of them.

A store may be the cache of one that machines share. `store.json` then has its URL.
`core.kinds` says which entries are shared. One that is not can run code when it is
read, so it is found only in a folder where nobody else can write.

What is damaged is moved aside, said, and made anew (`engine.store_folder`).

An entry appears by one rename, so a reader sees all of it or nothing. The lock belongs
to the operating system and ends with its process. The next process that holds the lock
of a killed process removes its files under ``making/``. Readers take no lock.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from harness.core.digest import digest_value
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
from harness.core.kinds import is_shared
from harness.core.permissions import is_private
from harness.core.received import DamagedError
from harness.core.store_root import (
    SCHEMA,
    cache_folder,
    entry_folder,
    is_url,
    local_root,
)
from harness.engine.large_files import (
    FILES,
    LINKED_BYTES,
    drop_unlinked,
    link,
    on_disk,
)
from harness.engine.shared import NAME, SharedStore, place_of, shared_store
from harness.engine.store_folder import (
    DAMAGED,
    FULL,
    MARK,
    Mark,
    StoreFolder,
    delete,
    free_bytes,
    say_damaged,
)

_NEARLY_FULL_BYTES = 1 << 20
_DYING_S = 1.0
"""Seconds that a process may still hold a lock after it was killed."""

LIMIT_GB = 20.0
"""Size of a store, in GB of 2^30 bytes, unless ``$PARITY_STORE_GB`` says another."""

IN_USE_S = 86_400.0
"""Seconds after its last use during which an entry may belong to a running process.
Readers hold no lock, and a run of full-size suites takes hours."""

Build = Callable[[Path], Mapping[str, object]]


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
    shared = shared_store(name.rstrip("/"), read_only=read_only)
    shared.open()
    # A signature in the URL changes with each use, and the cache stays the same; the
    # mark below then has the newest.
    digest = digest_value([place_of(shared.url), read_only])
    root = cache_folder() / "shared" / digest[:16]
    mark = Mark(shared=shared.url, read_only=read_only)
    try:
        folder = StoreFolder(root)
        folder.open()
        folder.write_mark(mark)
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
    """One problem in a store.

    Attributes:
        path: What is damaged.
        problem: A sentence about it.
        removed: Whether it is no longer there.
        aside: Where it was moved to; None if it was deleted, or is still there.

    """

    path: Path
    problem: str
    removed: bool
    aside: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """A folder of entries; processes of one machine can share it safely.

    Raises:
        StoreError: The folder was written by another version of the harness.

    """

    root: Path = field(default_factory=local_root)
    shared: SharedStore | None = field(default=None, init=False)
    """The store of several machines that this one is the cache of, if there is one."""

    def __post_init__(self) -> None:
        """Refuse a store of another schema, and make a relative root absolute."""
        # A later change of directory must not move the store.
        object.__setattr__(self, "root", self.root.expanduser().absolute())
        mark = self._folder.read_mark()
        if mark.shared:
            shared = shared_store(mark.shared, read_only=mark.read_only)
            object.__setattr__(self, "shared", shared)

    def find(self, kind: str, key: Mapping[str, object]) -> Entry | None:
        """Return the entry, or None if there is none or some of its files are gone.

        This checks sizes and reads no contents. `Entry.check` checks digests.

        Raises:
            SpecError: `key` has no exact JSON form.

        """
        folder = self._place(kind, key_digest_of(kind, key))
        entry = self._here(folder)
        if entry is None and self.shared is not None and is_shared(kind):
            with self._locked(id_of(folder)):
                entry = self._here(folder) or self._fetched(folder, self.shared)
        return entry

    def _here(self, folder: Path) -> Entry | None:
        try:
            entry = read_entry(folder)
        except StoreError:
            return None
        if not is_shared(entry.kind) and not self._is_private(entry):
            return None
        touch(entry)
        return entry

    def _is_private(self, entry: Entry) -> bool:
        """Whether nobody else can have made an entry, or can change its files."""
        return is_private(entry.path) and all(
            is_private(entry.path / name) for name in entry.files
        )

    def _fetched(self, folder: Path, shared: SharedStore) -> Entry | None:
        """Copy an entry from the shared store; the lock is held.

        A damaged one is removed there, and made anew.
        """
        name = _name(folder)
        with self._workplace(folder) as workplace:
            copied = workplace / name
            with self._folder.sentences(workplace):
                copied.mkdir(parents=True)
                try:
                    if not shared.fetch(name, copied, id_of(folder)):
                        return None
                except DamagedError as error:
                    text = f"{id_of(folder)}: {error}"
                    say_damaged(
                        shared.url,
                        f"the shared store {shared.url} has a damaged entry, which is "
                        f"made anew: {text}",
                    )
                    if not shared.read_only:
                        shared.remove(name)
                    return None
                self._folder.give_modes(copied)
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
        folder = self._place(kind, key_digest_of(kind, key))
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
            if folder.is_dir() or not is_shared(stored.kind):
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
        if self.shared is None or self.shared.read_only or not is_shared(entry.kind):
            return
        with (
            self._workplace(entry.path) as workplace,
            self._folder.sentences(workplace),
        ):
            self.shared.put(_name(entry.path), entry.path, workplace / "entry.tar")

    def entries(self) -> Iterator[Entry]:
        """Yield every sound entry, ordered by kind and digest."""
        for folder in self._folders():
            with suppress(StoreError):
                yield read_entry(folder)

    def verify(self) -> Iterator[StoreProblem]:
        """Read every file of every entry; set damaged entries aside.

        Leftover files are removed. An entry that another process is making is not
        touched.
        """
        yield from self.sweep()
        for path in self._strays():
            with self._folder.sentences():
                aside = self._folder.set_aside(path)
            problem = f"{path} is no entry, and does not belong into a store"
            yield StoreProblem(path=path, problem=problem, removed=True, aside=aside)
        for folder in self._folders():
            with self._locked(id_of(folder), wait_s=0) as held:
                if not held:
                    continue
                try:
                    read_entry(folder).check()
                except StoreError as error:
                    with self._folder.sentences():
                        aside = self._folder.set_aside(folder)
                    yield StoreProblem(
                        path=folder, problem=str(error), removed=True, aside=aside
                    )

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
        if not older_than_s:
            for path in self._strays():
                delete(path)
            delete(self.root / DAMAGED)
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
        rest_bytes = sum(user.size_bytes for user in users)
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
        drop_unlinked(self.root / FILES)
        return tuple(removed)

    def _build(
        self, folder: Path, kind: str, key: Mapping[str, object], build: Build
    ) -> None:
        """Build in a work folder, seal it, and move it in; the lock is held."""
        with self._folder.sentences():
            for left in self._making.glob(f"{id_of(folder)}.*"):
                delete(left)
        with self._workplace(folder) as workplace:
            meta = self._run_build(build, workplace)
            with self._folder.sentences(workplace):
                files = seal(
                    workplace,
                    kind=kind,
                    key=key,
                    meta=meta,
                    mode=self._folder.file_mode,
                )
            self._move_in(workplace, folder, files)

    def _move_in(
        self, made: Path, folder: Path, files: Mapping[str, FileRecord]
    ) -> None:
        """Let a whole entry appear by one rename; the lock is held."""
        # onnx refuses to read weights that have several names.
        is_onnx = any(name.endswith(".onnx") for name in files)
        for name, record in files.items():
            if record.size_bytes >= LINKED_BYTES and not is_onnx:
                # Without links, or if another process removes the file meanwhile, the
                # entry keeps its own.
                with suppress(OSError):
                    link(made / name, record, self._folder.make(self.root / FILES))
        with self._folder.sentences(made):
            self._folder.make(folder.parent)
            if os.path.lexists(folder):  # or `find` would have found it
                self._take_out(folder)
            made.rename(folder)
            sync_folder(folder.parent)

    def _take_out(self, folder: Path) -> None:
        """Move a damaged entry aside and say so; discard one that is not trusted."""
        try:
            read_entry(folder)
        except StoreError as error:
            why, _, _ = str(error).partition(". Run `parity")
            self._folder.replace(folder, why)
        else:
            self._discard(folder)

    def _run_build(self, build: Build, workplace: Path) -> Mapping[str, object]:
        try:
            return build(workplace)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise self._folder.error(error, workplace) from error
            # A native converter does not tell why it failed; a full disk explains it.
            if free_bytes(workplace) < _NEARLY_FULL_BYTES:
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise self._folder.error(full, workplace) from error
            raise

    def _discard(self, folder: Path) -> bool:
        """Rename a folder first, then delete it; the lock is held."""
        # A new folder would need space, and this may be called because there is none.
        discarded = self._making / f"{id_of(folder)}.{secrets.token_hex(4)}"
        with self._folder.sentences():
            self._folder.make(self._making)
            try:
                folder.rename(discarded)
            except FileNotFoundError:
                return False
        delete(discarded)
        return True

    def sweep(self) -> tuple[StoreProblem, ...]:
        """Remove files of dead processes; a live process holds its lock."""
        findings = []
        for left in sorted(self._making.glob("*")):
            # A name without an entry's is a stranger's; nobody holds a lock for it.
            name = left.name.rpartition(".")[0] or left.name
            with self._locked(name, wait_s=_DYING_S) as held:
                if held:
                    delete(left)
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
        with self._folder.sentences():
            self._folder.make(self._making)
            self._folder.make(workplace)
        try:
            yield workplace
        finally:
            # On Ctrl-C too. After a rename there is nothing to remove.
            shutil.rmtree(workplace, ignore_errors=True)

    def _place(self, kind: str, digest: str) -> Path:
        return entry_folder(self.root, kind, digest)

    def _folders(self) -> list[Path]:
        """Return the folder of each entry, which has the name of its digest."""
        return [path for path in self._inside() if _is_name(_name(path))]

    def _strays(self) -> list[Path]:
        """Return what lies among the entries and is none, by its name or its type."""
        home = self.root / f"v{SCHEMA}"
        above = [home, *home.glob("*"), *home.glob("*/*")]
        return [
            *(path for path in above if os.path.lexists(path) and not path.is_dir()),
            *(path for path in self._inside() if not _is_name(_name(path))),
        ]

    def _inside(self) -> list[Path]:
        return sorted((self.root / f"v{SCHEMA}").glob("*/*/*"))

    @property
    def _folder(self) -> StoreFolder:
        return StoreFolder(self.root)

    @contextmanager
    def _locked(self, name: str, *, wait_s: float = -1) -> Iterator[bool]:
        """Hold an entry's lock, or yield False if another process holds it too long.

        The wait has no limit by default, because the other process' stages have one.
        """
        with self._folder.sentences():
            self._prepare()
            path = self.root / "locks" / name
            if path.is_dir():
                self._folder.set_aside(path)
            lock = FileLock(path, timeout=wait_s, mode=self._folder.file_mode)
            with suppress(Timeout):
                lock.acquire()
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def _prepare(self) -> None:
        self._folder.read_mark()
        self._folder.open()
        self._folder.make(self.root / "locks")
        if not (self.root / MARK).exists():
            self._folder.write_mark(Mark())


def stored_bytes(entries: Iterable[Entry]) -> int:
    """Return the bytes that entries take; a file that several have counts once."""
    return sum(
        one.size_bytes for one in {f for entry in entries for f in on_disk(entry)}
    )


def _name(folder: Path) -> str:
    """Return the name of an entry's folder in any store: ``onnx/df/df93…``."""
    return "/".join(folder.parts[-3:])


def _is_name(name: str) -> bool:
    """Whether the end of a path is the name of an entry's folder."""
    return NAME.fullmatch(name) is not None
