"""What a process that measures one case has found so far, for whoever outlives it.

A runtime may take the process down with it, or memory may run out, hours after the
first input.
"""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path

from harness.commands.tune.plan import Findings, Plan
from harness.core.digest import digest_value


def keep(plan: Plan, findings: Findings) -> None:
    """Write what was found, in place of what was written before."""
    path = _path(plan)
    part = path.with_suffix(".part")
    part.write_bytes(pickle.dumps(findings))
    part.replace(path)


def last_kept(plan: Plan) -> Findings | None:
    """Return what a process that was given this plan wrote last; None if nothing."""
    with suppress(FileNotFoundError):
        found = pickle.loads(_path(plan).read_bytes())  # noqa: S301  # our own child's
        assert isinstance(found, Findings)  # noqa: S101
        return found
    return None


def _path(plan: Plan) -> Path:
    (candidate,) = plan.candidates
    return plan.kept / f"{digest_value(candidate.case)}.found"
