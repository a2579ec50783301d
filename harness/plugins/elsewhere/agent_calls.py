"""Ask a runtime on a target by frames, and trust none of its answers."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from harness.core.case import Target
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.received import DamagedError
from harness.plugins.elsewhere import agent
from harness.plugins.elsewhere.frames import read_frame
from harness.runtimes.driving import Driving, Show, Values
from harness.runtimes.session import Feeds

if TYPE_CHECKING:
    import numpy as np

STALL_S: Final = 60.0
"""Time that a target may take to start, or to take a piece of a file, in seconds. While
it computes, the time limit of the case counts."""

_TIMES: Final = 1 << 12
"""How often one value may come in a run: a loop of a graph makes it in each round."""

T = TypeVar("T")


class AgentError(Exception):
    """An error that a runtime raised on a target; its text is the runtime's."""


class AgentCalls(Driving):
    """A runtime on a target, which answers frames of `agent`."""

    _target: Target

    @abstractmethod
    def _write(self, parts: Iterable[agent.Buffer]) -> None:
        """Send the parts of a frame."""

    @abstractmethod
    def _fill(self, view: memoryview, limit_s: float | None, where: str) -> None:
        """Read as many bytes as a buffer has.

        Args:
            view: The buffer.
            limit_s: Seconds that the next bytes may take; None for no limit.
            where: What is going on, for a message.

        Raises:
            StageError: They did not come.

        """

    def call(
        self, do: str, feeds: Feeds | None = None, show: Show | None = None, **said: Any
    ) -> Any:
        """Call a method of the target's driver, and return its result.

        Raises:
            StageError: The connection broke.
            AgentError: The method raised an error.

        """
        return self._asked(do, Any, said, feeds, show, limit_s=None)

    def ask(
        self,
        do: str,
        kind: type[T],
        feeds: Feeds | None = None,
        values: Values | None = None,
        /,
        **said: Any,
    ) -> T:
        """Call a method of the target's driver, and check what comes.

        Raises:
            StageError: The connection broke, or something else came.
            AgentError: The method raised an error.

        """
        if values is None:
            return self._asked(do, kind, said, feeds, limit_s=None)
        times: Counter[str] = Counter()
        most = 1 if values.ends is None else _TIMES
        names = {
            f"{name}{end}" for name in values.names for end in values.ends or ("",)
        }

        def take(name: str, value: np.ndarray) -> None:
            times[name] += 1
            if name not in names or times[name] > most:
                how = "once more" if name in names else "that nobody asked for"
                self._refuse(f"sent a value {name[:80]!r} {how}", Outcome.CRASHED)
            values.show(name, value)

        result = self._asked(do, kind, said, feeds, take, limit_s=None)
        if values.ends is None and (lacks := names - {*times}):
            some = min(lacks)
            self._refuse(f"did not send the value {some[:80]!r}", Outcome.CRASHED)
        return result

    def _asked(
        self,
        do: str,
        kind: Any,
        said: Mapping[str, object],
        arrays: Feeds | None = None,
        show: Show | None = None,
        *,
        limit_s: float | None = STALL_S,
    ) -> Any:
        """Send a request, hand over the values that come, and return the result."""
        self._write(agent.pack({"do": do, "with": said}, arrays or {}))
        where = f"during {do!r}"
        fill = partial(self._fill, limit_s=limit_s, where=where)
        while True:
            try:
                frame = read_frame(fill)
                if frame.failed is None and frame.name is None:
                    return frame.result(kind)
            except DamagedError as error:
                self._refuse(
                    f"sent something that is no frame of the agent {where} ({error}); "
                    "its command must pass bytes on unchanged, without a terminal",
                    Outcome.CRASHED,
                )
            if frame.failed is not None:
                raise AgentError(frame.failed)
            name = frame.name or ""
            if show is None:
                self._refuse(f"sent a value {name[:80]!r} {where}", Outcome.CRASHED)
            show(name, frame.value)

    def _refuse(self, words: str, outcome: Outcome = Outcome.UNAVAILABLE) -> NoReturn:
        msg = f"Target {self._target.name!r} {words}."
        raise StageError(msg, outcome=outcome)
