"""Find entries in the files beside a suite for cases that the suite does not have.

A table that decides nothing may have a misspelt name, so it is refused. If a case was
removed on purpose, `parity tune --prune` removes its entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.core.errors import SuiteError
from harness.core.text import few
from harness.core.toml_file import did_you_mean
from harness.judge.known_gaps import Gap, load_gaps
from harness.judge.policy import Policy, Scope
from harness.suite.extra_inputs import FILE as WORST_INPUTS
from harness.suite.extra_inputs import unknown_cases

if TYPE_CHECKING:
    from harness.suite.suite import Suite

_SHOWN = 8
"""The largest number of entries of one file that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """Entries in the files beside a suite that match nothing in it.

    Attributes:
        tables: Tables of tolerances.toml, each with the name that the suite lacks.
        gaps: Entries of known_gaps.toml.
        inputs: The ``path:line`` of each case that worst_inputs.toml names, by the
            case's name.

    """

    tables: tuple[tuple[Scope, str], ...]
    gaps: tuple[Gap, ...]
    inputs: Mapping[str, str]


def find_stale(suite: Suite, policy: Policy) -> Stale:
    """Return the entries in the files beside a suite for cases that it does not have.

    Raises:
        SuiteError: A file cannot be read.

    """
    variants: dict[str, set[str]] = {}
    for case in suite.tested:
        variants.setdefault(case.backend, set()).add(case.how)
    subjects = tuple(dict.fromkeys(case.subject for case in suite.tested))
    ids = [f"{case.id}/{what}" for case in suite.tested for what in case.whats]
    gaps = load_gaps(suite.gaps_path) if suite.gaps_path.is_file() else ()
    known = {case.id for case in suite.cases}
    return Stale(
        tables=policy.stale(subjects, variants),
        gaps=tuple(gap for gap in gaps if not any(map(gap.matches, ids))),
        inputs=unknown_cases(worst_inputs_of(suite), known),
    )


def worst_inputs_of(suite: Suite) -> Path:
    """Return the path of a suite's worst inputs; the file may not exist."""
    return suite.path.parent / WORST_INPUTS


def refuse_stale(suite: Suite, policy: Policy) -> None:
    """Refuse stale tables and inputs of a suite, all in one message.

    A stale gap is not refused here; it is reported at the end of a run of the whole
    suite.

    Raises:
        SuiteError: There is a stale entry, which would have no effect.

    """
    stale = find_stale(suite, policy)
    if not stale.tables and not stale.inputs:
        return
    names = tuple(case.id for case in suite.cases)
    wrong = [f"{s.source}: the suite has no {w}" for s, w in stale.tables]
    wrong += [
        f"{where}: the suite has no case {name!r}; {did_you_mean(name, names)}"
        for name, where in stale.inputs.items()
    ]
    listed = "; ".join(_listed(suite, stale))
    msg = (
        f"{wrong[0]} If it left the suite on purpose, {listed} can go: `parity tune "
        "--prune --write` takes that out; without --write it shows the diff."
    )
    raise SuiteError(msg)


def _listed(suite: Suite, stale: Stale) -> Iterator[str]:
    for path, found in (
        (suite.tolerances_path, [scope.header for scope, _ in stale.tables]),
        (suite.gaps_path, [repr(gap.case) for gap in stale.gaps]),
        (worst_inputs_of(suite), list(stale.inputs)),
    ):
        if found:
            yield f"{few(found, _SHOWN)} of {path.name}"
