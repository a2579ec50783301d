"""Take out of the files beside a suite what they say of cases that left it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from harness.commands.tune.edit import Edit, text_of
from harness.commands.tune.keep import pruned_text
from harness.commands.tune.screen import edit_lines
from harness.commands.tune.toml_edit import without
from harness.core.errors import SuiteError
from harness.core.text import Line
from harness.judge.known_gaps import load_gaps
from harness.judge.policy import Policy
from harness.suite.stale import Stale, find_stale, worst_inputs_of
from harness.suite.suite import Suite


def prune(
    suite: Suite, *, write: bool, again: str, show: Callable[[Iterable[Line]], None]
) -> int:
    """Show what is stale beside a suite taken out, write that if asked, and return 0.

    Args:
        suite: As it is now.
        write: Whether to write.
        again: The command that writes.
        show: Prints.

    Raises:
        SuiteError: A file cannot be changed line by line, and then none is.

    """
    policy = Policy.load(suite.tolerances_path)
    stale = find_stale(suite, policy)
    edits = [
        edit
        for edit in (
            _tolerances(policy, stale),
            _gaps(suite.gaps_path, stale),
            _inputs(worst_inputs_of(suite), stale),
        )
        if edit.diff
    ]
    if write:
        for edit in edits:
            edit.write()
    show(edit_lines(edits, written=write, again=again, then="parity run"))
    return 0


def _tolerances(policy: Policy, stale: Stale) -> Edit:
    gone = [scope.source for scope, _ in stale.tables]
    edit = _without(policy.path, gone)
    left = [scope.header for scope in policy.scopes if scope.source not in gone]
    with TemporaryDirectory() as scratch:
        trial = Path(scratch) / policy.path.name
        trial.write_bytes(edit.new.encode())
        _check(edit, [scope.header for scope in Policy.load(trial).scopes] == left)
    return edit


def _gaps(path: Path, stale: Stale) -> Edit:
    if not stale.gaps:
        return Edit(path=path, old="", new="")
    edit = _without(path, [gap.source for gap in stale.gaps])
    left = [gap for gap in load_gaps(path) if gap not in stale.gaps]
    with TemporaryDirectory() as scratch:
        trial = Path(scratch) / path.name
        trial.write_bytes(edit.new.encode())
        found = [replace(gap, source="") for gap in load_gaps(trial)]
        _check(edit, found == [replace(gap, source="") for gap in left])
    return edit


def _inputs(path: Path, stale: Stale) -> Edit:
    if not stale.inputs:
        return Edit(path=path, old="", new="")
    return Edit(path=path, old=text_of(path), new=pruned_text(path, stale.inputs))


def _without(path: Path, sources: Iterable[str]) -> Edit:
    lines = [int(source.rpartition(":")[2]) for source in sources]
    old = text_of(path)
    new = without(old, lines, path.name) if lines else old
    return Edit(path=path, old=old, new=new)


def _check(edit: Edit, meant: bool) -> None:  # noqa: FBT001  # one fact
    if not meant:
        msg = (
            f"{edit.path.name} cannot be pruned line by line; give each table a header "
            "of its own, or take out by hand what is stale."
        )
        raise SuiteError(msg)
