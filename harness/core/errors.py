"""Every error the harness raises on purpose, and the exit code it ends in.

    ParityError                 one sentence for the user; exit code 2
    ├── SuiteError              parity.toml, tolerances.toml or known_gaps.toml is wrong
    ├── SpecError               a noun was given nonsense
    ├── StoreError              the artifact store cannot be used
    └── StageError              one stage of one case ended without an answer

A message says what, where, how much, and what to do next.
"""

from __future__ import annotations

from harness.core.outcome import Outcome


class ParityError(Exception):
    """Base of every deliberate error; its text is meant for the user."""

    exit_code = 2


class SuiteError(ParityError):
    """A file that describes the suite is wrong; the text names file and line."""


class SpecError(ParityError):
    """A noun was constructed from values that cannot be right."""


class StoreError(ParityError):
    """The artifact store cannot be read, written or trusted."""


class OnlyInGraphError(SuiteError):
    """A graph is not PyTorch's, and no layer is out of tolerance: nothing to try."""


class StageError(ParityError):
    """A stage of one case ended without an answer.

    Attributes:
        outcome: Which way it ended; it becomes the case's row in the report.
        log: Native output of the stage, or an empty string.

    """

    def __init__(self, message: str, *, outcome: Outcome, log: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.log = log

    def __reduce__(self) -> tuple[object, ...]:
        """Cross a process boundary with the keyword arguments intact."""
        return (_stage_error, (str(self), self.outcome, self.log))


def _stage_error(message: str, outcome: Outcome, log: str) -> StageError:
    return StageError(message, outcome=outcome, log=log)


_LONGEST = 200
"""Characters that are quoted of a second line, which may list a network's weights."""


def first_line(error: BaseException) -> str:
    """Return an exception's first line without its full stop, or else its class.

    One that ends in a colon says nothing without the line that follows it.

    >>> first_line(ValueError("it is not so.")), first_line(OSError())
    ('it is not so', 'OSError')
    """
    lines = list(filter(None, (line.strip() for line in str(error).splitlines())))
    first, second = [*lines, "", ""][:2]
    if first.endswith(":") and second:
        return f"{first} {second[:_LONGEST]}".rstrip(".")
    return (first or type(error).__name__).rstrip(".")
