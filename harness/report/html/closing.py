"""The end of the page: what was covered, and where and how it all ran."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.core.record import coverage_share
from harness.core.text import count, few
from harness.report.html.found import Found, Section
from harness.report.html.table import Column, Table, Words, short

_MEBI = 2**20


@dataclass(frozen=True, kw_only=True)
class Coverage(Section):
    """How many computing operators each case compared."""

    template: ClassVar[str] = "table.html"

    table: Table


@dataclass(frozen=True, kw_only=True)
class Environment(Section):
    """Where it ran, with which versions, and how to run it again.

    Attributes:
        command: The run's own.
        facts: Name to value.
        packages: Name to version.
        ran: What really ran, in words.

    """

    template: ClassVar[str] = "environment.html"

    command: str
    facts: Mapping[str, str]
    packages: Mapping[str, str]
    ran: Sequence[str]


def coverage(found: Found) -> Iterator[Coverage]:
    """Yield what was compared and what was not, if any case counts it."""
    names, missing = Words(), Words()
    rows, shares = [], []
    for record in found.asked:
        if not record.coverage:
            continue
        counts = record.coverage
        shares.append(coverage_share(record))
        rows.append(
            [
                names.at(found.names[record.key]),
                short(shares[-1]),
                counts["computing"],
                counts["aligned"],
                counts["fused"],
                counts.get("inside"),
                counts["unmatched"],
                missing.at(few(list(counts.get("missing", ())), 6)),
            ]
        )
    if not rows:
        return
    yield Coverage(
        id="coverage",
        title="Coverage",
        gist=f"at least {min(shares):.1%} of computing operators compared",
        table=Table(
            id="coverage-table",
            caption="Computing operators of PyTorch that each case compared",
            unit="case",
            columns=(
                Column(title="case", words=names.all),
                Column(title="share", kind="percent"),
                Column(title="computing", kind="number", hint="operators in all"),
                Column(title="compared", kind="number"),
                Column(title="fused", kind="number", hint="gone into another"),
                Column(title="inside", kind="number", hint="of these, a compared one"),
                Column(title="unmatched", kind="number", hint="not found again"),
                Column(title="not compared", words=missing.all),
            ),
            rows=rows,
        ),
    )


def environment(found: Found) -> Iterator[Environment]:
    """Yield where and how it ran."""
    about: Mapping[str, Any] = found.about.get("environment") or {}
    yield Environment(
        id="environment",
        title="Environment",
        gist=" · ".join(filter(None, (about.get("system"), about.get("cpu")))),
        command=shlex.join(found.about.get("command") or ()),
        facts=dict(_facts(found, about)),
        packages=about.get("packages") or {},
        ran=tuple(_ran(found)),
    )


def _facts(found: Found, about: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    suites = found.about.get("suites") or ()
    yield "suite", ", ".join(_two_parts(suite["path"]) for suite in suites)
    if found.about.get("tier"):
        yield "tier", str(found.about["tier"])
    if found.about.get("changes"):
        yield "changed bounds", ", ".join(found.about["changes"])
    for name in ("system", "python", "cpu"):
        yield name, str(about.get(name) or "")
    yield "cores", str(about.get("core_count") or "")
    if memory := about.get("memory_bytes"):
        yield "memory", f"{memory / _MEBI:,.0f} MB"
    yield "gpu", ", ".join(map(str, about.get("gpus") or ())) or "none"
    if commit := about.get("commit"):
        changed = ", with changes" if about.get("dirty") else ""
        yield "commit", f"{commit[:12]}{changed}"


def _two_parts(path: str) -> str:
    """Return a suite as its folder and file: the rest is someone's own machine."""
    return "/".join(Path(path).parts[-2:])


def _ran(found: Found) -> Iterator[str]:
    seen: dict[str, None] = {}
    for record in found.asked:
        if ran := record.ran:
            threads = count(int(ran["threads"]), "thread")
            words = f"{ran['backend']} {ran['version']} on {ran['device'].upper()}"
            seen[f"{words}, {threads}, precision {ran['precision']}"] = None
    yield from seen
