"""The commands that a summary ends with, each complete: to copy and to run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.core.text import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class NextSteps:
    """How the commands ask the same question again.

    Attributes:
        run: How to name the run.
        judged: Options of what it is judged by, a blank before each.
        runs: Option of the folder of runs, likewise; empty for the usual one.
        store: Option of the store, likewise.
        suite: Option of a suite in the place of the run's own, likewise.

    """

    run: str = "last"
    judged: str = ""
    runs: str = ""
    store: str = ""
    suite: str = ""

    def lines(self, name: str, case: str, suite: str) -> Iterator[Line]:
        """Yield how to see a case's values, and how to have them explained.

        Args:
            name: Of the case, in the run.
            case: Its id in the suite; empty where nothing can be explained.
            suite: Path of that suite.

        """
        words = f"parity show {self.run} {name}{self.runs}{self.suite}{self.judged}"
        yield Line(text=f" all layers  {words}", tone="quiet")
        if case:
            where = (self.suite or _suite(suite)) + self.store
            words = f"parity explain {case}{where}{self.judged}"
            yield Line(text=f" why         {words}", tone="quiet")


def _suite(path: str) -> str:
    """Return the option that names a suite, nothing for the one in this folder."""
    suite = Path(path)
    if not path or suite.parent == Path.cwd():
        return ""
    inside = suite.is_relative_to(Path.cwd())
    return (
        f" --suite {suite.parent.relative_to(Path.cwd()) if inside else suite.parent}"
    )
