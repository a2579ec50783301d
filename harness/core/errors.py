"""Every error that the harness raises on purpose, and its exit code.

    ParityError                 one sentence for the user; exit code 2
    ├── SuiteError              parity.toml, tolerances.toml or known_gaps.toml is wrong
    ├── SpecError               a value was made from arguments that cannot be right
    ├── StoreError              the artifact store cannot be used
    └── StageError              one stage of one case ended without an answer

A message says what is wrong, where, and by how much, and what to do next.
"""

from __future__ import annotations

from harness.core.outcome import Outcome


class ParityError(Exception):
    """Base class of every deliberate error; its message is for the user."""

    exit_code = 2


class SuiteError(ParityError):
    """A file that describes the suite is wrong; the message names file and line."""


class SpecError(ParityError):
    """A value was constructed from arguments that cannot be right."""


class StoreError(ParityError):
    """The artifact store cannot be read, written or trusted."""


class OnlyInGraphError(SuiteError):
    """A graph differs from PyTorch's, but no layer exceeds its tolerance.

    `parity explain` then has no setting to try.
    """


class StageError(ParityError):
    """A stage of one case ended without an answer.

    Attributes:
        outcome: How the stage ended. It becomes the case's row in the report.
        log: Native output of the stage; may be empty.

    """

    def __init__(self, message: str, *, outcome: Outcome, log: str = "") -> None:
        super().__init__(message)
        self.outcome = outcome
        self.log = log

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error with its keyword arguments, for another process."""
        return (_stage_error, (str(self), self.outcome, self.log))


def _stage_error(message: str, outcome: Outcome, log: str) -> StageError:
    return StageError(message, outcome=outcome, log=log)


class RefusedError(StageError):
    """The reference itself cannot run with the sizes of a sample.

    Attributes:
        why: What it says, as a clause.

    """

    def __init__(self, message: str, *, why: str, outcome: Outcome) -> None:
        super().__init__(message, outcome=outcome)
        self.why = why


_LONGEST = 200
"""Number of quoted characters of a second line, which may list a network's weights."""


def first_line(error: BaseException) -> str:
    """Return an exception's first line without its full stop, or its class name.

    A first line that ends in a colon needs the next line, so both are returned.

    >>> first_line(ValueError("it is not so.")), first_line(OSError())
    ('it is not so', 'OSError')
    """
    lines = list(filter(None, (line.strip() for line in str(error).splitlines())))
    first, second = [*lines, "", ""][:2]
    if first.endswith(":") and second:
        return f"{first} {second[:_LONGEST]}".rstrip(".")
    return (first or type(error).__name__).rstrip(".")
