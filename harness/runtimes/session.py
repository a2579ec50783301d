"""Sessions of deployed files, the same for every runtime.

The module ``session`` in a runtime's folder has ``open_session(artifact, device,
outputs)``, a context manager that gives a `Session`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from harness.core.case import Device, Target
from harness.core.comparison import Comparison
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.plugins import first_answer
from harness.core.record import Row
from harness.core.runtime import Runtime, runtime
from harness.measure.name_map import Names
from harness.runtimes.renamed import fed, read

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """The runtime and the settings that a session really ran with.

    Attributes:
        backend: Name of the runtime.
        version: The runtime's version.
        device: ``cpu``, ``cuda``, …, as the session reports it.
        threads: Number of threads as requested; no runtime reports it.
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
    """Time of one operator of a deployed file, as the runtime tells it.

    Attributes:
        name: The operator's name.
        kind: The kind of operator that the runtime really ran.
        reads: Values and weights that it reads; empty if the runtime does not tell.
        makes: Values that it makes; empty if the runtime does not tell.
        took_s: Median time over runs, in seconds.

    """

    name: str
    kind: str
    reads: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    took_s: float


SAMPLE: ContextVar[str] = ContextVar("sample", default="")
"""The sample whose inputs are run now. A dump has no inputs to find it by."""

Feeds = Mapping[str, "np.ndarray"]
"""Arrays by name: a session's inputs, or values to run its operators on."""

OnValue = Callable[[str, "np.ndarray"], None]
"""A function that gets the runtime's name of a value, and its array."""


class Sketch(ABC):
    """A value of which a digest alone is there: it compares itself."""

    @abstractmethod
    def compared(self, expected: np.ndarray, floor_rms: float | None) -> Comparison:
        """Compare with the reference's value; the rms of the error is an estimate."""


class Session(Protocol):
    """One deployed file, loaded."""

    @property
    def ran(self) -> Ran:
        """The runtime and the settings that really run the file."""

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run as deployed, unwatched; return copies of the outputs by name."""

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        """Run and hand over each wanted value while it is in memory.

        Args:
            feeds: Inputs by name.
            sizes: Name of each wanted exported value to its expected size in bytes.
            on_value: A function that gets the runtime's name of the value and an
                array that is only valid during the call.

        Returns:
            The outputs of the watched run, to compare with those of the unwatched one.

        """

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        """Run each watched operator on given values, not on those of this run.

        Args:
            feeds: Inputs by name.
            given: The runtime's name of each watched value to the reference's array;
                an array is made when it is looked up.
            on_value: A function that gets each value again, computed from given
                values alone.

        """


class ClockedSession(Session, Protocol):
    """A session of a runtime whose layers can have different numbers of bits."""

    def clock(self, feeds: Feeds, runs: int) -> list[Spent]:
        """Run as deployed so many times; return each operator's median time."""


class TracedSession(Session, Protocol):
    """A session whose values a file has: they were computed elsewhere."""

    def explained(
        self,
        rows: list[Row],
        opening: Opening,
        feeds: Mapping[str, Feeds],
        made: Mapping[str, Feeds],
    ) -> list[Row]:
        """Return rows that say what is wrong with the calls that computed the values.

        Args:
            rows: The rows of outputs; those of other files may be among them.
            opening: The file of the session, with the component's names.
            feeds: Inputs by sample and name, in order.
            made: Outputs of the session by sample and name.

        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a session is opened with.

    Attributes:
        backend: Name of the runtime.
        path: The deployed file.
        device: Where the runtime runs, and with which settings.
        outputs: Names of the outputs.

    """

    backend: str
    path: Path
    device: Device
    outputs: Sequence[str]

    def open(self) -> AbstractContextManager[Session]:
        """Load the file by the runtime's own module.

        Raises:
            StageError: The runtime is not installed, or it refuses the file.

        """
        declared = runtime(self.backend)
        try:
            module: Any = importlib.import_module(f"{declared.package}.session")
        except ModuleNotFoundError as error:
            raise not_installed(declared, error) from error
        opened: AbstractContextManager[Session]
        opened = module.open_session(self.path, self.device, self.outputs)
        return opened


@contextmanager
def open_session(
    backend: str, path: Path, device: Device, outputs: Sequence[str]
) -> Iterator[Session]:
    """Load the file at `path`; the session is closed at the end of the ``with``.

    The session of a foreign model uses the recipe's names in place of the file's. A
    device with a target has a session of a plug-in.

    Raises:
        StageError: The runtime called `backend` is not installed, it refuses the file,
            or the device is not there.

    """
    names = Names.load(path.parent)
    own = names.own_outputs if names else outputs
    opening = Opening(backend=backend, path=path, device=device, outputs=own)
    opened: AbstractContextManager[Session]
    if device.target is None:
        opened = opening.open()
    else:
        lacking = no_target(device.target)
        opened = first_answer("sessions", opening, lacking=lacking)
    with opened as session:
        yield session if names is None else _Renamed(session, names)


def no_target(target: Target) -> StageError:
    """Return the message about a target that no plug-in reaches."""
    msg = (
        f"Target {target.name!r} cannot be reached, because no plug-in is installed "
        "that runs a runtime elsewhere; install the harness as a whole, or leave the "
        "target out of `targets`."
    )
    return StageError(msg, outcome=Outcome.UNAVAILABLE)


def not_installed(declared: Runtime, error: ModuleNotFoundError) -> StageError:
    """Return the message about a runtime that this environment lacks."""
    packages = " or ".join(declared.distributions)
    msg = (
        f"Backend {declared.name!r} needs the package {packages}, which is not "
        f"installed ({error.name} is missing)."
    )
    return StageError(msg, outcome=Outcome.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class _Renamed:
    """A session of a file whose names, dtypes and scalars are not the recipe's."""

    _session: Session
    _names: Names

    @property
    def ran(self) -> Ran:
        ran = self._session.ran
        renamed = ", ".join(
            f"{one.given} = {one.name}"
            for one in self._names.inputs
            if one.given != one.name
        )
        words = (("names", renamed),) if renamed else ()
        return replace(ran, detail=(*ran.detail, *words))

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        return read(self._names, self._session.run(fed(self._names, feeds)))

    def watch(
        self, feeds: Feeds, sizes: Mapping[str, int], on_value: OnValue
    ) -> dict[str, np.ndarray]:
        given = fed(self._names, feeds)
        return read(self._names, self._session.watch(given, sizes, on_value))

    def isolate(self, feeds: Feeds, given: Feeds, on_value: OnValue) -> None:
        self._session.isolate(fed(self._names, feeds), given, on_value)

    def clock(self, feeds: Feeds, runs: int) -> list[Spent]:
        session = cast("ClockedSession", self._session)
        return session.clock(fed(self._names, feeds), runs)

    def explained(
        self,
        rows: list[Row],
        opening: Opening,
        feeds: Mapping[str, Feeds],
        made: Mapping[str, Feeds],
    ) -> list[Row]:
        session = cast("TracedSession", self._session)
        return session.explained(rows, opening, feeds, made)


def check_feeds(feeds: Feeds, wanted: Sequence[str], path: Path) -> None:
    """Refuse a run whose inputs are not exactly the file's inputs, by name.

    Where an input is missing, native runtimes crash or read old memory.

    Raises:
        StageError: Inputs are missing, or there are too many; the message names them.

    """
    missing, extra = sorted(set(wanted) - set(feeds)), sorted(set(feeds) - set(wanted))
    if missing or extra:
        msg = (
            f"{path.name} has the inputs {sorted(wanted)}; the component gives "
            f"{sorted(feeds)} (missing {missing or 'none'}, unknown {extra or 'none'})."
        )
        raise StageError(msg, outcome=Outcome.MISSING)


def check_outputs(found: Sequence[str], wanted: Sequence[str], path: Path) -> None:
    """Refuse a file that lacks an output of its component.

    Raises:
        StageError: An output is lost; the message names the outputs of both sides.

    """
    if missing := sorted(set(wanted) - set(found)):
        msg = (
            f"{path.name} has the outputs {found}; the component promises "
            f"{list(wanted)}, so {missing} are lost."
        )
        raise StageError(msg, outcome=Outcome.MISSING)
