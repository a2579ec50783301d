"""A store that machines share: what the core asks of a plug-in's, found by its URL.

An entry is there as a whole or not at all. The local store is the cache: it looks up
what it lacks, and puts what it makes. `core.kinds` says which kinds are never shared.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from harness.core.errors import StoreError
from harness.core.plugins import first_answer
from harness.engine.worker import report_progress

NAME: Final = re.compile(r"([a-z0-9][a-z0-9-]*)/[0-9a-f]{2}/[0-9a-f]{32}")
"""The name of an entry's folder in any store: kind, two hex digits and digest."""

on_wait: Callable[[str, str, str], None] = report_progress
"""Receives stage, URL and detail of a wait, of a transfer or of what is damaged, as
`worker.report_progress` does. A node of a cluster sends them to the process that
started the run."""


def place_of(url: str) -> str:
    """Return a URL without its user, query and fragment: they may prove who asks.

    >>> place_of("abfs://me:key@box.example:443/a/b?sig=1&se=2#x")
    'abfs://box.example:443/a/b'
    >>> place_of("simplecache::https://box/a/?sig=1")
    'simplecache::https://box/a'
    """
    parts = (urlsplit(part) for part in url.split("::"))
    return "::".join(
        part._replace(
            netloc=part.netloc.rpartition("@")[2],
            path=part.path.rstrip("/"),
            query="",
            fragment="",
        ).geturl()
        for part in parts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One entry of a shared store.

    Attributes:
        name: Kind, two hex digits and digest: ``onnx/df/df93…``.
        size_bytes: Size of its object, in bytes.
        made_s: Time when it was put, in seconds since 1970.

    """

    name: str
    size_bytes: int
    made_s: float

    @property
    def kind(self) -> str:
        """The kind of the entry."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, kw_only=True)
class SharedStore(ABC):
    """A shared store; each method raises `StoreError` if it cannot be read or written.

    Attributes:
        url: Its URL.
        read_only: Whether nothing may be put there.

    """

    url: str
    read_only: bool = False

    @abstractmethod
    def open(self) -> None:
        """Look whether the store can be used."""

    @abstractmethod
    def fetch(self, name: str, into: Path, expected_id: str) -> bool:
        """Copy an entry's files into an empty folder; return whether it is there.

        Raises:
            DamagedError: It is not that entry, or has what its kind may not have.

        """

    @abstractmethod
    def put(self, name: str, folder: Path, archive: Path) -> None:
        """Copy an entry's folder there, by way of an archive, unless it is there."""

    @abstractmethod
    def entries(self) -> Iterator[Stored]:
        """Yield every entry."""

    @abstractmethod
    def prune(self, max_bytes: int) -> list[Stored]:
        """Remove entries, the longest there first, until the rest is small enough."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove an entry; it is no error if another machine has."""


def shared_store(url: str, *, read_only: bool = False) -> SharedStore:
    """Return the shared store at a URL, without a look at it.

    Raises:
        StoreError: No plug-in reads such stores.

    """
    msg = (
        f"the store {place_of(url)} needs a plug-in that reads stores of several "
        "machines, and none is installed; give a folder."
    )
    lacking = StoreError(msg)
    store: SharedStore = first_answer("stores", url, read_only, lacking=lacking)
    return store
