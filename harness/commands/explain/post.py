"""`parity repro --post`: a divergence in drawn numbers, small enough to be posted.

The weights and inputs are drawn again until the divergence shows. Then operators and
sizes are left out as long as it stays.
"""

from __future__ import annotations

import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from tempfile import TemporaryDirectory
from typing import Any, Final, cast

from harness.commands.explain.excerpts import Around
from harness.commands.explain.repro import fill
from harness.core.environment import environment
from harness.core.errors import ParityError
from harness.core.record import LAYERS
from harness.core.runtime import Runtime, runtime
from harness.core.text import count, operator
from harness.engine.engine import Engine
from harness.engine.environments import installed_versions
from harness.engine.excerpt import Excerpt, Redraw
from harness.engine.store import Store
from harness.suite.judge import Judge
from harness.suite.schema import Limits

SEARCH_S: Final = 120.0
"""Seconds after which nothing more is left out."""

_DRAWS: Final = tuple(
    Redraw(style=style, seed=seed) for seed in range(3) for style in ("like", "peaked")
)
_PARTS: Final = (32, 16, 4, 2)
_TEXT: Final = Path(__file__).with_name("issue.txt")
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
        ParityError: No drawn numbers show the divergence.

    """
    with TemporaryDirectory() as scratch:
        with Engine(Store(root=Path(scratch)), limits) as engine:
            search = _Search(engine, judge, around.excerpt, say)
            best = search.run(around)
            say("writing")
            fill(into, engine, best, _about_drawn(best))
        text = _issue(best, into)
        (into / "issue.md").write_text(text, encoding="utf-8")
    return best


@dataclass
class _Search:
    """Tries other numbers, fewer operators and smaller sizes.

    Attributes:
        tries: Number of excerpts that were run.

    """

    engine: Engine
    judge: Judge
    excerpt: Excerpt
    say: Callable[[str], None]
    tries: int = 0
    best: Around = field(init=False)
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
                "PyTorch does: the exported graph itself differs, so report it to the "
                "exporter; `parity repro` without --post has both."
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
                if self._shows(one):
                    how, smaller = one, True
                    break
        return self.best

    def _smaller(self, how: Redraw) -> Iterator[Redraw]:
        """Yield draws with fewer operators, then with smaller sizes."""
        meta = cast("dict[str, Any]", self.best.excerpt.entry.meta)
        for value in reversed(meta["values"]):
            if value not in how.begins:
                yield replace(how, begins=(*how.begins, value))
        sizes: list[int] = meta["sizes"]
        for size in sizes:
            for family in _families(size, sizes):
                yield replace(how, sizes=_composed(how.sizes, family))

    def _shows(self, how: Redraw) -> bool:
        """Whether the excerpt diverges with these numbers; it is the best one then."""
        self.tries += 1
        self.say(f"{self.tries} drawn, smallest so far {self._size()}")
        try:
            excerpt = self.engine.redraw(self.excerpt, how)
        except ParityError as error:
            self._why = str(error)
            return False
        ran = self.engine.run_excerpt(excerpt)
        if ran.failure is not None:
            self._why = ran.failure.message
            return False
        around = Around(
            excerpt=excerpt, record=ran, verdict=self.judge.check(ran, LAYERS)
        )
        if around.shows:
            self.best = around
        return around.shows

    def _size(self) -> str:
        if not hasattr(self, "best"):
            return "none"
        return f"{self.best.excerpt.entry.size_bytes / 1000:,.0f} KB"


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


def _about_drawn(around: Around) -> dict[str, str]:
    title = runtime(around.excerpt.case.backend).title
    what = operator(around.layer.op)
    return {
        "title": f"{what} in {title} differs from ONNX's evaluator",
        "answer": "ONNX's reference evaluator's answer, computed in float64,",
    }


def _issue(around: Around, folder: Path) -> str:
    """Return the text to post: what differs, the graph, the versions, the numbers."""
    case, record = around.excerpt.case, around.record
    declared = runtime(case.backend)
    meta = cast("dict[str, Any]", around.excerpt.entry.meta)
    layer = around.layer
    ran = cast("dict[str, Any]", record.ran or {})
    here = environment()
    shown = _said(sys.executable, folder)
    return Template(_TEXT.read_text(encoding="utf-8")).substitute(
        title=_about_drawn(around)["title"],
        runtime=declared.title,
        version=ran.get("version", "?"),
        operators=count(int(meta["nodes"]), "operator"),
        looks=f" {layer.looks[:1].upper()}{layer.looks[1:]}." if layer.looks else "",
        listing="\n".join(meta["listing"]),
        device=case.device.device,
        precision=case.device.precision,
        threads=case.device.threads,
        variant=" ".join((case.variant.kind, *case.variant.flags)),
        machine=f"{here.cpu}, {platform.system()}, Python {platform.python_version()}",
        packages=" or ".join(declared.distributions),
        numbers=shown[1],
        exported=(
            "`exported.onnx` is the model before conversion, in the same names.\n"
            if (folder / "exported.onnx").is_file()
            else ""
        ),
        versions=_versions(declared, folder),
    )


def _versions(declared: Runtime, folder: Path) -> str:
    """Return a table of the versions that are installed, if there are any."""
    rows = []
    for version, python in installed_versions(declared).items():
        code, said = _said(str(python), folder)
        result = {0: "right", 1: "differs"}.get(code, said.splitlines()[-1])
        if code == 1 and "rms " not in said:
            result = said.splitlines()[-1] if said else "ends with an error"
        rows.append(f"| {version} | {result} |")
    if not rows:
        return ""
    head = "\nThe same file in other versions:\n\n| version | result |\n|---|---|"
    return "\n".join((head, *rows, ""))


def _said(python: str, folder: Path) -> tuple[int, str]:
    """Run the script, and return its exit code and what it prints."""
    try:
        done = subprocess.run(
            [python, "-I", "-c", "exec(open('repro.py').read())"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 2, f"no end within {_LIMIT_S} s"
    return done.returncode, done.stdout.strip()
