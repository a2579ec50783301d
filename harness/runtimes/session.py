"""Sessions of deployed files, whatever runtime they run in.

The module ``session`` in a runtime's folder has ``open_session(artifact, device,
outputs)``, a context manager that gives a `Session`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from harness.core.case import Device
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.runtime import runtime
from harness.measure.name_map import Names
from harness.runtimes.renamed import fed, read

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What really ran.

    Attributes:
        backend: Runtime.
        version: Of the runtime.
        device: ``cpu``, ``cuda``, …, as the session reports it.
        threads: As asked; neither runtime reports it.
        precision: Effective arithmetic, ``float32`` unless the device has float16.
        detail: Further settings that change numbers, sorted pairs.

    """

    backend: str
    version: str
    device: str
    threads: int
    precision: str
    detail: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one operator of the deployed file took.

    Attributes:
        values: What it makes, by the runtime's names.
        op: The runtime's name of what it does.
        took_s: Median of the runs.

    """

    values: tuple[str, ...]
    op: str
    took_s: float


class Session(Protocol):
    """One deployed file, loaded."""

    @property
    def ran(self) -> Ran:
        """What really runs it."""
        ...

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run as deployed, unwatched; return the outputs by name, owned."""
        ...

    def watch(
        self,
        feeds: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        on_value: Callable[[str, np.ndarray], None],
    ) -> dict[str, np.ndarray]:
        """Run and hand over each wanted value while it lives.

        Args:
            feeds: Inputs by name.
            sizes: Wanted exported values, and the bytes each is expected to take.
            on_value: Gets the runtime's name of the value and an array that is
                only valid during the call.

        Returns:
            The outputs of the watched run, to hold against the unwatched one.

        """
        ...

    def isolate(
        self,
        feeds: Mapping[str, np.ndarray],
        given: Mapping[str, np.ndarray],
        on_value: Callable[[str, np.ndarray], None],
    ) -> None:
        """Run each watched operator on values that are given, not on its own inputs'.

        Args:
            feeds: Inputs by name.
            given: The runtime's name of each watched value to the reference's; an
                array is made when it is asked for.
            on_value: Gets each value again, as made from given ones alone.

        """
        ...

    def clock(self, feeds: Mapping[str, np.ndarray], runs: int) -> list[Spent]:
        """Run as deployed, and return what each operator took, in order.

        Args:
            feeds: Inputs by name.
            runs: How often; each operator's median counts.

        """
        ...


class Backend(Protocol):
    """What a backend module offers."""

    def open_session(
        self, path: Path, device: Device, outputs: Sequence[str]
    ) -> AbstractContextManager[Session]:
        """Load the file at `path`; closes the session on leaving.

        Raises:
            StageError: The file is refused, or the device is not there.

        """
        ...


def load_backend(name: str) -> Backend:
    """Import the backend called `name`.

    Raises:
        StageError: Its package is not installed.

    """
    try:
        module: Any = importlib.import_module(f"{runtime(name).package}.session")
        return _Opener(cast("Backend", module))
    except ModuleNotFoundError as error:
        packages = " or ".join(runtime(name).distributions)
        msg = (
            f"Backend {name!r} needs the package {packages}, which is not installed "
            f"({error.name} is missing)."
        )
        raise StageError(msg, outcome=Outcome.UNAVAILABLE) from error


class _Opener:
    """A backend whose sessions speak the recipe's names, whatever the file's are."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @contextmanager
    def open_session(
        self, path: Path, device: Device, outputs: Sequence[str]
    ) -> Iterator[Session]:
        """Load the file at `path`, by its own names if others chose them."""
        names = Names.load(path.parent)
        own = names.own_outputs if names else outputs
        with self._backend.open_session(path, device, own) as session:
            yield session if names is None else _Renamed(session, names)


class _Renamed:
    """A session of a file with names, kinds and scalars of its own."""

    def __init__(self, session: Session, names: Names) -> None:
        self._session = session
        self._names = names

    @property
    def ran(self) -> Ran:
        """What really runs it, and what was called otherwise."""
        ran = self._session.ran
        renamed = [
            f"{one.given} = {one.name}"
            for one in self._names.inputs
            if one.given != one.name
        ]
        words = (("names", ", ".join(renamed)),) if renamed else ()
        return replace(ran, detail=(*ran.detail, *words))

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run as deployed."""
        return read(self._names, self._session.run(fed(self._names, feeds)))

    def watch(
        self,
        feeds: Mapping[str, np.ndarray],
        sizes: Mapping[str, int],
        on_value: Callable[[str, np.ndarray], None],
    ) -> dict[str, np.ndarray]:
        """Run and hand over wanted values, by the file's names."""
        given = fed(self._names, feeds)
        return read(self._names, self._session.watch(given, sizes, on_value))

    def isolate(
        self,
        feeds: Mapping[str, np.ndarray],
        given: Mapping[str, np.ndarray],
        on_value: Callable[[str, np.ndarray], None],
    ) -> None:
        """Run each watched operator on given values."""
        self._session.isolate(fed(self._names, feeds), given, on_value)

    def clock(self, feeds: Mapping[str, np.ndarray], runs: int) -> list[Spent]:
        """Run as deployed, and return what each operator took."""
        return self._session.clock(fed(self._names, feeds), runs)


def check_feeds(
    feeds: Mapping[str, np.ndarray], wanted: Sequence[str], path: Path
) -> None:
    """Refuse a run whose inputs are not exactly the file's inputs, by name.

    Native runtimes answer a missing input with a crash or with old memory.

    Raises:
        StageError: Naming what is missing and what is too much.

    """
    missing, extra = sorted(set(wanted) - set(feeds)), sorted(set(feeds) - set(wanted))
    if missing or extra:
        msg = (
            f"{path.name} has the inputs {sorted(wanted)}; the component gives "
            f"{sorted(feeds)} (missing {missing or 'none'}, unknown {extra or 'none'})."
        )
        raise StageError(msg, outcome=Outcome.MISSING)
