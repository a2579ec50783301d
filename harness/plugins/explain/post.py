"""`parity repro --post`: a divergence in drawn numbers, small enough to be posted.

The weights and inputs are drawn again until the divergence shows. Then operators and
sizes are left out as long as it stays.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from harness.core.case import Case, Device
from harness.core.errors import ParityError
from harness.core.private import without_paths
from harness.core.program import ProgramEnd, ended
from harness.core.runtime import Runtime, runtime
from harness.core.table import Column, ReportTable
from harness.engine.engine import Engine
from harness.engine.environments import installed_versions
from harness.engine.pythons import python_of
from harness.engine.store import Store
from harness.plugins.explain.excerpt import Excerpt, Redraw, redrawn, run_excerpt
from harness.plugins.explain.excerpts import Around
from harness.plugins.explain.issue import about_drawn, issue
from harness.plugins.explain.repro import SCRIPT, fill
from harness.report.markdown import table_of
from harness.suite.judge import Judge
from harness.suite.places import script_of
from harness.suite.schema import Limits

SEARCH_S: Final = 120.0
"""Seconds after which nothing more is left out."""

RUN: Final = (SCRIPT,)
"""What a Python is told to run in the folder."""

_DRAWS: Final = (
    *(
        Redraw(style=style, seed=seed)
        for seed in range(3)
        for style in ("like", "peaked")
    ),
    Redraw(style="even"),
)
_PARTS: Final = (32, 16, 4, 2)
_LIMIT_S: Final = 60


def write_post(
    limits: Limits,
    judge: Judge,
    around: Around,
    into: Path,
    say: Callable[[str], None],
) -> Around:
    """Fill an empty folder with a divergence that has nothing of the user's.

    `around` is the smallest excerpt with the user's numbers. The one that is written is
    returned.

    Raises:
        ParityError: No drawn numbers show the divergence, or the script does not.

    """
    with TemporaryDirectory() as scratch:
        with Engine(Store(root=Path(scratch)), limits) as engine:
            search = _Search(engine, judge, around.excerpt, around.what, say)
            best = search.run(around)
            say("writing")
            case = best.excerpt.case
            device, left_out = without_options_of_paths(case.device)
            excerpt = replace(best.excerpt, case=replace(case, device=device))
            best = replace(best, excerpt=excerpt)
            fill(into, engine, best, about_drawn(best))
        numbers = shown(best.excerpt.case, into)
        case = best.excerpt.case
        # The other versions that are installed are those of a Python.
        alone = script_of(case.device) is not None
        versions = "" if alone else versions_table(runtime(case.backend), into)
        text = issue(best, into, left_out, numbers, versions)
        (into / "issue.md").write_text(text, encoding="utf-8")
    return best


@dataclass
class _Search:
    """Tries other numbers, fewer operators and smaller sizes.

    Attributes:
        what: Check that has to fail.
        tries: Number of excerpts that were run.

    """

    engine: Engine
    judge: Judge
    excerpt: Excerpt
    what: str
    say: Callable[[str], None]
    tries: int = 0
    best: Around = field(init=False)
    _needed: set[str] = field(default_factory=set)
    _why: str = ""

    def run(self, around: Around) -> Around:
        """Return the smallest excerpt found, and its run."""
        title = runtime(self.excerpt.case.backend).title
        if not around.shows:
            msg = (
                "the operators around the first divergence agree when they run alone, "
                "so there is no small model to post; `parity explain` says more."
            )
            raise ParityError(msg)
        if not self._shows(Redraw(style="own")):
            msg = self._why or (
                f"ONNX's reference evaluator computes what {title} does, and not what "
                "the reference does: the exported graph itself differs, so report it "
                "to the exporter; `parity repro` without --post has both."
            )
            raise ParityError(msg)
        how = next((draw for draw in _DRAWS if self._shows(draw)), None)
        if how is None:
            msg = (
                f"{title} is right with each of {len(_DRAWS)} draws of other weights "
                "and inputs, so the divergence needs your own numbers; `parity repro` "
                f"without --post has them. {self._why}"
            )
            raise ParityError(msg.strip())
        end = time.monotonic() + SEARCH_S
        smaller = True
        while smaller and time.monotonic() < end:
            smaller = False
            for one in self._smaller(how):
                if time.monotonic() > end:
                    break
                before = _extent(self.best.excerpt)
                if self._shows(one, before):
                    how, smaller = one, True
                    break
        return self.best

    def _smaller(self, how: Redraw) -> Iterator[Redraw]:
        """Yield draws of all sizes smaller, fewer operators, and each size smaller."""
        meta = cast("dict[str, Any]", self.best.excerpt.entry.meta)
        sizes: list[int] = meta["sizes"]
        for part in _PARTS:
            all_of = {size: size // part for size in sizes if size % part == 0}
            if all_of and min(all_of.values()) > 1:
                yield replace(how, sizes=_composed(how.sizes, all_of))
        cuts = [one for one in reversed(meta["values"]) if one not in how.begins]
        for value in cuts:
            if value not in self._needed:
                self._needed.add(value)  # unless this one shows the divergence
                yield replace(how, begins=(*how.begins, value))
        for size in sizes:
            for family in _families(size, sizes):
                yield replace(how, sizes=_composed(how.sizes, family))
        # What was needed for one graph is rarely left out of a smaller one.
        for value in cuts:
            yield replace(how, begins=(*how.begins, value))

    def _shows(self, how: Redraw, before: tuple[int, int] | None = None) -> bool:
        """Whether the excerpt diverges with these numbers; it is the best one then.

        With the extent of the one `before`, it must be smaller too.
        """
        self.tries += 1
        self.say(f"{self.tries} drawn, smallest so far {self._size()}")
        try:
            excerpt = redrawn(self.engine, self.excerpt, how)
        except ParityError as error:
            self._why = str(error)
            return False
        if before is not None and _extent(excerpt) >= before:
            return False
        ran = run_excerpt(self.engine, excerpt)
        if ran.failure is not None:
            self._why = ran.failure.message
            return False
        around = Around(
            excerpt=excerpt,
            record=ran,
            verdict=self.judge.check(ran, self.what),
            what=self.what,
        )
        if around.shows:
            self.best = around
        return around.shows

    def _size(self) -> str:
        if not hasattr(self, "best"):
            return "none"
        return f"{self.best.excerpt.entry.size_bytes / 1000:,.0f} KB"


def _extent(excerpt: Excerpt) -> tuple[int, int]:
    """Return the number of operators, and the size in bytes."""
    return int(str(excerpt.entry.meta["nodes"])), excerpt.entry.size_bytes


def _families(size: int, sizes: list[int]) -> Iterator[dict[int, int]]:
    """Yield what becomes of a size, alone and with the sizes that depend on it.

    >>> list(_families(8, [16, 8]))[:2]
    [{8: 2}, {16: 4, 8: 2}]
    >>> list(_families(7, [16, 7]))
    [{7: 2}, {7: 3}, {7: 4}, {7: 5}]
    """
    seen: list[dict[int, int]] = []
    # Three quarters come last: a kernel may be chosen by a size that is just enough.
    for less in (*sorted({2, 4, *(size // part for part in _PARTS)}), 3 * size // 4):
        if not 1 < less < size:
            continue
        alone = {size: less}
        part = size / less
        multiples = {one: int(one / part) for one in sizes if one % size == 0}
        related = multiples | {
            one: int(one / part) for one in sizes if size % one == 0 and one % part == 0
        }
        for family in (alone, multiples, related) if size % less == 0 else (alone,):
            if family not in seen:
                seen.append(family)
                yield family


def _composed(
    before: tuple[tuple[int, int], ...], then: dict[int, int]
) -> tuple[tuple[int, int], ...]:
    """Return sizes that are changed once, and once more."""
    both = {old: then.get(new, new) for old, new in before}
    return tuple((both | {o: n for o, n in then.items() if o not in both}).items())


def without_options_of_paths(device: Device) -> tuple[Device, list[str]]:
    """Return a device without the provider options that are paths, and their names.

    Such an option says where something lies on the user's machine. A text with a
    separator of folders is taken for a path.
    """
    left_out = [
        name
        for name, value in device.provider_options
        if isinstance(value, str) and re.search(r"[\\/]", value)
    ]
    kept = tuple(
        option for option in device.provider_options if option[0] not in left_out
    )
    return replace(device, provider_options=kept), left_out


def shown(case: Case, folder: Path) -> str:
    """Return what the script prints with the version of the runtime that a case has.

    Raises:
        ParityError: The script does not show the divergence.

    """
    target, python = case.device.target, sys.executable
    own = script_of(case.device)
    if target is not None and not target.version and not own:
        return "(The script was not run here: the case runs on another machine.)"
    if target is not None and not own:
        python = str(python_of(runtime(case.backend), target.version))
    found = said(python, folder, own.arguments if own else ())
    if not differs(found):
        says = found.words if found.code else "the two agree"
        msg = (
            "the harness saw the divergence in drawn numbers, and the script that "
            f"`--post` wrote does not show it: {says}. `parity repro` without --post "
            "has your own numbers."
        )
        raise ParityError(msg)
    return found.text


def versions_table(declared: Runtime, folder: Path) -> str:
    """Return a table of the versions that are installed, if there are any."""
    results = {}
    for version, python in installed_versions(declared).items():
        found = said(str(python), folder)
        right = "right" if found.code == 0 else without_paths(found.words)
        results[version] = "differs" if differs(found) else right
    if not results:
        return ""
    columns = (Column("version", [*results]), Column("result", [*results.values()]))
    table = table_of(ReportTable(columns=columns))
    return f"\nThe same file in other versions:\n\n{table}"


def differs(script: ProgramEnd) -> bool:
    """Whether the script found the difference; an exception ends with 1 as well."""
    words = ("rms ", ", expected shape [")
    return script.code == 1 and any(word in script.text for word in words)


def said(python: str, folder: Path, arguments: Sequence[str] = ()) -> ProgramEnd:
    """Run the script, and return how it ended."""
    return ended([python, "-I", *RUN, *arguments], folder, limit_s=_LIMIT_S)
