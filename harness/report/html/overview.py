"""The sections of the page that are about the whole run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.core.pipeline import IMAGE, LATENTS
from harness.core.record import LAYERS, OUTPUTS, coverage_share
from harness.core.text import count, few
from harness.judge.case import CaseVerdict
from harness.report.html.section import Section
from harness.report.html.table import Column, HtmlTable, Words, short
from harness.report.html.values import place_cell
from harness.report.run_facts import BAD, GOOD, QUIET, RunFacts, Since
from harness.report.summary import stand_in_words

_MEBI = 2**20
_VERDICTS = {
    0: (GOOD, "Parity"),
    1: (BAD, "No parity"),
    2: (BAD, "Could not tell"),
}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The verdict.

    Attributes:
        state: ``good`` or ``bad``.
        words: The verdict in two words.
        sentence: A sentence with the number of cases that agree.
        complaints: Complaints about the files that describe the run.

    """

    state: str
    words: str
    sentence: str
    complaints: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Cases(Section):
    """Every case and the outcomes of its checks."""

    template: ClassVar[str] = "table.html"

    table: HtmlTable


@dataclass(frozen=True, kw_only=True)
class EnvironmentSection(Section):
    """The machine of the run, its versions, and the command to run it again.

    Attributes:
        command: The run's command.
        facts: Name to value.
        packages: Name to version.

    """

    template: ClassVar[str] = "environment.html"

    command: str
    facts: Mapping[str, str]
    packages: Mapping[str, str]


def headline(facts: RunFacts) -> Headline:
    """Return the verdict of the run."""
    states = [facts.state(record) for record in facts.requested]
    agree, skips = states.count(GOOD), states.count(QUIET)
    judged = len(states) - skips
    state, words = _VERDICTS[facts.exit_code]
    if facts.since and facts.since.blocks and BAD not in states and judged:
        words = "Worse than the baseline"
    sentence = f"{agree:,} of {count(judged, 'case')} agree with PyTorch"
    if not judged:
        sentence = "Nothing was compared"
    elif agree == judged:
        sentence = (
            "The one case agrees" if judged == 1 else f"All {judged:,} cases agree"
        )
        sentence += " with PyTorch"
    sentence += stand_in_words(facts.requested)
    if gaps := sum(map(facts.by_gap, facts.requested)):
        sentence += f", {count(gaps, 'case')} only by a known gap"
    if skips:
        reasons = few(list(facts.skips()), 2)
        sentence += f"; {count(skips, 'case')} skipped: {reasons}"
    return Headline(
        state=state, words=words, sentence=f"{sentence}.", complaints=facts.stale
    )


def since_table(since: Since | None) -> HtmlTable | None:
    """Return every change since the baseline; None where nothing changed."""
    if since is None or not since.changes:
        return None
    hows, names, words = Words(), Words(), Words()
    rows = [
        [hows.at(one.how), names.at(one.name), words.at(one.words)]
        for one in since.changes
    ]
    return HtmlTable(
        id="since-table",
        caption=f"What is not as it was in {since.before}, the worst first",
        columns=(
            Column(title="change", words=hows.all),
            Column(title="of", words=names.all),
            Column(title="how", words=words.all),
        ),
        rows=rows,
        unit="change",
    )


def cases(facts: RunFacts) -> Iterator[Cases]:
    """Yield the section that lists every case."""
    if not facts.requested:
        return
    subjects, backends, variants = Words(), Words(), Words()
    outcomes, places = Words(), Words()
    rows = []
    for record in facts.requested:
        checks = {check.what: check for check in facts.checks[record.key]}
        early = checks.get(LAYERS) or checks.get(LATENTS)
        late = checks.get(OUTPUTS) or checks.get(IMAGE)
        name = facts.names[record.key]
        subject = name.removesuffix(f"/{record.backend}/{record.variant}")
        bad = [check for check in checks.values() if not check.outcome.passed]
        worst = max(checks.values(), key=lambda check: check.usage)
        rows.append(
            [
                outcomes.at((bad or list(checks.values()))[0].outcome.value),
                subjects.at(subject),
                backends.at(record.backend),
                variants.at(record.variant),
                outcomes.at(early.outcome.value if early else ""),
                outcomes.at(late.outcome.value if late else ""),
                short(worst.usage) if worst.worst else None,
                places.at(place_cell(worst.worst) if worst.worst else ("",) * 4),
                short(_least_sqnr(late)),
                short(coverage_share(record)) if record.coverage else None,
            ]
        )
    yield Cases(
        id="cases",
        title="Cases",
        gist=count(len(rows), "case"),
        open=True,
        table=HtmlTable(
            id="cases-table",
            caption="Every case and the outcomes of its checks",
            unit="case",
            columns=(
                Column(title="", kind="mark", words=outcomes.all, hint="agrees?"),
                Column(title="component", words=subjects.all),
                Column(title="runtime", words=backends.all),
                Column(title="variant", words=variants.all),
                Column(
                    title="layers",
                    kind="outcome",
                    words=outcomes.all,
                    hint="values in between: layers; of a pipeline, latents",
                    minor=True,
                ),
                Column(
                    title="outputs",
                    kind="outcome",
                    words=outcomes.all,
                    hint="outputs as deployed; of a pipeline, pictures",
                    minor=True,
                ),
                Column(
                    title="of limit",
                    kind="percent",
                    hint="how much of its bound the worst value uses",
                ),
                Column(title="worst at", kind="place", words=places.all, minor=True),
                Column(
                    title="SQNR dB",
                    kind="number",
                    hint="signal to error of the worst output, decibels",
                    minor=True,
                ),
                Column(
                    title="coverage",
                    kind="percent",
                    hint="computing operators that were compared",
                    minor=True,
                ),
            ),
            rows=rows,
            sort=6,
        ),
    )


def _least_sqnr(check: CaseVerdict | None) -> float | None:
    rows = check.rows if check else ()
    return min((judged.row.comparison.sqnr_db for judged in rows), default=None)


def environment(facts: RunFacts) -> Iterator[EnvironmentSection]:
    """Yield the section about the run's machine, versions and command."""
    about: Mapping[str, Any] = facts.about.get("environment") or {}
    yield EnvironmentSection(
        id="environment",
        title="Environment",
        gist=" · ".join(filter(None, (about.get("system"), about.get("cpu")))),
        command=shlex.join(facts.about.get("command") or ()),
        facts=dict(_environment(facts, about)),
        packages=about.get("packages") or {},
    )


def _environment(
    facts: RunFacts, about: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    suites = facts.about.get("suites") or ()
    # Only a suite's folder and file: the rest of its path is of one machine.
    paths = ("/".join(Path(suite["path"]).parts[-2:]) for suite in suites)
    yield "suite", ", ".join(paths)
    yield "what ran", "; ".join(facts.ran())
    if facts.about.get("tier"):
        yield "tier", str(facts.about["tier"])
    if facts.about.get("changes"):
        yield "changed bounds", ", ".join(facts.about["changes"])
    for name in ("system", "python", "cpu"):
        yield name, str(about.get(name) or "")
    yield "cores", str(about.get("core_count") or "")
    if memory := about.get("memory_bytes"):
        yield "memory", f"{memory / _MEBI:,.0f} MB"
    yield "gpu", ", ".join(map(str, about.get("gpus") or ())) or "none"
    if commit := about.get("commit"):
        changed = ", with changes" if about.get("dirty") else ""
        yield "commit", f"{commit[:12]}{changed}"
