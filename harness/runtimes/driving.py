"""Drive a runtime: a session asks a `Driving` for what the runtime itself must do.

The runtime is in this process, unless `driven_by` says otherwise. So the same session
serves a runtime elsewhere, and its values are checked, compared and named alike.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from harness.core.case import Device
from harness.core.runtime import Runtime
from harness.runtimes.session import Feeds, no_target, not_installed

if TYPE_CHECKING:
    import numpy as np

Show = Callable[[str, "np.ndarray"], None]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Values:
    """The values that a method may show.

    Attributes:
        show: Takes each.
        names: Their names.
        ends: What may stand behind a name of a value that need not come, and may come
            several times; None where each value comes once.

    """

    show: Show
    names: Collection[str]
    ends: tuple[str, ...] | None = None


class Driving(ABC):
    """A runtime that a session drives.

    Attributes:
        version: The runtime's version.
        files: The path of each of the session's files, where the runtime finds it.
        about: Where the runtime runs, for the record; empty for here.

    """

    version: str
    files: Mapping[str, str]
    about: tuple[tuple[str, str], ...] = ()

    @abstractmethod
    def call(
        self, do: str, feeds: Feeds | None = None, show: Show | None = None, **said: Any
    ) -> Any:
        """Call a method of the runtime's driver, and return its result."""

    def ask(
        self,
        do: str,
        kind: type[T],
        feeds: Feeds | None = None,
        values: Values | None = None,
        /,
        **said: Any,
    ) -> T:
        """Call a method whose result has a type, and whose values have names.

        A runtime elsewhere checks the answer, because anything may answer there.

        Raises:
            StageError: The answer is another, or the connection broke.

        """
        del kind  # a runtime in this process is trusted
        show = None if values is None else values.show
        return cast("T", self.call(do, feeds, show, **said))

    @abstractmethod
    def close(self) -> None:
        """End the connection, if there is one."""


class Here(Driving):
    """A runtime in this process.

    Raises:
        StageError: The runtime is not installed.

    """

    def __init__(self, declared: Runtime, files: Sequence[Path]) -> None:
        try:
            module = importlib.import_module(declared.driver)
        except ModuleNotFoundError as error:
            raise not_installed(declared, error) from error
        self._driver = module.open_driver()
        self.version = self._driver.version
        self.files = {path.name: str(path) for path in files}

    def call(
        self, do: str, feeds: Feeds | None = None, show: Show | None = None, **said: Any
    ) -> Any:
        """Call a method of the runtime's driver, and return its result."""
        return getattr(self._driver, do)(feeds or {}, show, **said)

    def close(self) -> None:
        """Free the driver's sessions with it."""
        self._driver = None


Drive = Callable[[Runtime, Sequence[Path]], Driving]
"""Takes a runtime and a session's files; returns what drives the runtime."""

Record = Callable[[Driving, Sequence[Path]], Driving]
"""Takes what drives a runtime and a session's files; returns what drives it and records
its calls."""

_DRIVE: Final[ContextVar[Drive | None]] = ContextVar("drive", default=None)
_RECORD: Final[ContextVar[Record | None]] = ContextVar("record", default=None)


@contextmanager
def driven_by(drive: Drive) -> Iterator[None]:
    """Let a function drive the runtimes of the sessions that the ``with`` opens."""
    token = _DRIVE.set(drive)
    try:
        yield
    finally:
        _DRIVE.reset(token)


@contextmanager
def recorded_by(record: Record) -> Iterator[None]:
    """Let a function record the calls of the sessions that the ``with`` opens.

    The runtimes are driven as they are without it, here or elsewhere.
    """
    token = _RECORD.set(record)
    try:
        yield
    finally:
        _RECORD.reset(token)


def drive(declared: Runtime, device: Device, files: Sequence[Path]) -> Driving:
    """Return a runtime, here or elsewhere, that has a session's files.

    Raises:
        StageError: The runtime is not installed, or cannot be reached. Or the device
            has a target, and nothing drives it.

    """
    other, record = _DRIVE.get(), _RECORD.get()
    if other is not None:
        driving = other(declared, files)
    elif device.target is not None:  # its values would pass for the target's
        raise no_target(device.target)
    else:
        driving = Here(declared, files)
    if record is None:
        return driving
    try:
        return record(driving, files)
    except BaseException:
        driving.close()
        raise
