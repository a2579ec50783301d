"""What pytest times: a test for each subject of a suite."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.commands.bench.subjects import subjects_of, timed_cases
from harness.commands.bench.timing import Subject
from harness.suite.suite import Suite

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One thing to time; a test's parameter.

    Attributes:
        suite: Of the subject.
        subject: What is timed.

    """

    suite: Suite = field(repr=False)
    subject: Subject


def benches(suite: Suite, *names: str) -> list[ParameterSet]:
    """Return a `Timed` each for ``pytest.mark.parametrize``, ids written out.

    All components and pipelines, unless only some are named as `Suite.select` takes
    them; chains of several runtimes only where a name says ``mixed``.
    """
    import pytest

    return [
        pytest.param(Timed(suite=suite, subject=subject), id=subject.id)
        for subjects in subjects_of(timed_cases(suite, names)).values()
        for subject in subjects
    ]
