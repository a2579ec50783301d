"""Remove entries for cases that a suite no longer has from the files beside it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import structs

from harness.core.errors import SuiteError
from harness.core.text import Line
from harness.judge.known_gaps import load_gaps
from harness.judge.policy import Policy
from harness.plugins.tune.screen import edit_lines
from harness.plugins.tune.toml_edit import Edit, text_of, without, write_all
from harness.plugins.tune.worst import pruned_text
from harness.suite.stale import find_stale, worst_inputs_of
from harness.suite.suite import Suite


def prune(
    suite: Suite, *, write: bool, again: str, show: Callable[[Iterable[Line]], None]
) -> int:
    """Show the removal of stale entries, write it if asked, and return 0.

    `again` is the command that writes.

    Raises:
        SuiteError: A file cannot be changed. Then no file is.

    """
    policy = Policy.load(suite.tolerances_path)
    stale = find_stale(suite, policy)
    worst = worst_inputs_of(suite)
    edits = [
        _without(
            policy.path,
            [scope.source for scope, _ in stale.tables],
            lambda path: [(s.source, s.header) for s in Policy.load(path).scopes],
        ),
        _without(
            suite.gaps_path,
            [gap.source for gap in stale.gaps],
            lambda path: [
                (g.source, structs.replace(g, source="")) for g in load_gaps(path)
            ],
        ),
    ]
    if stale.inputs:
        new = pruned_text(worst, stale.inputs)
        edits.append(Edit(path=worst, old=text_of(worst), new=new))
    if write:
        write_all(edits)
    show(edit_lines(edits, written=write, again=again, then="parity run"))
    return 0


def _without(
    path: Path,
    gone: Collection[str],
    load: Callable[[Path], Iterable[tuple[str, object]]],
) -> Edit:
    """Return a file without tables, of whose headers `gone` has the ``path:line``.

    `load` returns the ``path:line`` and the meaning of each table of a file. The
    meaning of the remaining tables must not change.
    """
    if not gone:
        return Edit(path=path, old="", new="")
    new = without(path, [int(source.rpartition(":")[2]) for source in gone])
    with TemporaryDirectory() as scratch:
        trial = Path(scratch) / path.name
        trial.write_bytes(new.encode())
        left = [meaning for _, meaning in load(trial)]
    if left != [meaning for source, meaning in load(path) if source not in gone]:
        msg = (
            f"{path.name} cannot be pruned; give each table a header of its own, or "
            "take out by hand what is stale."
        )
        raise SuiteError(msg)
    return Edit(path=path, old=text_of(path), new=new)
