"""The sections of the page that are about the whole run."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.core.text import count
from harness.plugins.page.failures import FailedCase
from harness.plugins.page.section import Section
from harness.report.run_facts import BAD, GOOD, RunFacts
from harness.report.summary import agreement, shard_notes
from harness.report.tables import cases_table

_MEBI = 2**20
_VERDICTS = {
    0: (GOOD, "Ship"),
    1: (BAD, "Do not ship"),
    2: (BAD, "Cannot say"),
}


@dataclass(frozen=True, kw_only=True)
class HeadReason:
    """One reason for the verdict, in a sentence that begins with the case, if any.

    Attributes:
        words: The rest of the sentence.
        target: Anchor of the details; empty if there are none.

    """

    words: str
    case: str = ""
    target: str = ""


@dataclass(frozen=True, kw_only=True)
class Headline:
    """The verdict in a few words, its reasons, and what was tested.

    Attributes:
        state: ``good`` or ``bad``.
        sentences: The number of cases that agree, and what the verdict leaves open.
        reasons: Every reason against the run.
        tested: Name to fact: checkpoint, suite, commit, versions, machine.

    """

    state: str
    words: str
    sentences: Sequence[str]
    reasons: Sequence[HeadReason]
    tested: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class EnvironmentSection(Section):
    """The machine of the run, the versions of packages, and the run's command."""

    template: ClassVar[str] = "environment.html"

    command: str
    facts: Mapping[str, str]
    packages: Mapping[str, str]


def headline(facts: RunFacts, failures: Sequence[FailedCase]) -> Headline:
    """Return the verdict of the run, its reasons, and what was tested."""
    state, words = _VERDICTS[facts.exit_code]
    limits = list(_limits(facts))
    if state == GOOD and facts.since is None:
        words = "Agrees; not compared with a release"
    elif limits and state == GOOD:
        words = "Parity"  # it is true of what ran, but a release needs more
    if state == GOOD and failures:  # the gate's decision
        number = count(len(failures), "failure")
        limits.append(f"The baseline accepts {number} below.")
    return Headline(
        state=state,
        words=words,
        sentences=[*agreement(facts), *limits],
        reasons=[*_reasons(facts, failures)] if state == BAD else [],
        tested={name: text for name, text in _tested(facts) if text},
    )


def _limits(facts: RunFacts) -> Iterator[str]:
    """Yield what keeps a run, which may agree, from being a decision to ship."""
    if not facts.about.get("whole", True):
        yield "Only a part of the suite ran, so this is no decision to ship."
    if facts.since is not None and not facts.since.tells:
        yield "Nothing could be compared with the baseline."
    if facts.about.get("tier") or facts.about.get("changes"):
        own = (facts.about.get("tier"), *(facts.about.get("changes") or ()))
        listed = ", ".join(filter(None, own))
        yield f"The tolerances are not the suite's own: {listed}."


def _reasons(facts: RunFacts, failures: Sequence[FailedCase]) -> Iterator[HeadReason]:
    for one in failures:
        others = len(one.found.also)
        also = f" {count(others, 'other case')} too." if others else ""
        yield HeadReason(case=one.found.case, words=one.words + also, target=one.id)
    named = {failure.found.case for failure in failures}
    for name, words in facts.since.reasons if facts.since else ():
        if name.rpartition("/")[0] not in named:
            yield HeadReason(case=name, words=words, target="since")
    for complaint in facts.stale:
        yield HeadReason(words=complaint)


def _tested(facts: RunFacts) -> Iterator[tuple[str, str]]:
    about: Mapping[str, Any] = facts.about.get("environment") or {}
    suites = facts.about.get("suites") or ()
    yield "checkpoint", ", ".join(filter(None, (s.get("checkpoint") for s in suites)))
    # Only a suite's folder and file: the rest of its path is of one machine.
    yield "suite", ", ".join("/".join(Path(s["path"]).parts[-2:]) for s in suites)
    if commit := about.get("commit"):
        yield "commit", commit[:12] + (", with changes" if about.get("dirty") else "")
    packages = about.get("packages") or {}
    torch = f"torch {packages['torch']}" if "torch" in packages else ""
    # A mixed pipeline runs in runtimes that are named already.
    ran = [one for one in facts.ran() if " + " not in one]
    yield "ran", "; ".join(filter(None, (torch, *ran)))
    machine = [about.get("cpu"), about.get("system"), *(about.get("gpus") or ())]
    if cores := about.get("core_count"):
        machine.insert(1, count(cores, "core"))
    yield "machine", " · ".join(filter(None, machine))
    yield "shards", "; ".join(shard_notes(facts))
    yield (
        "baseline",
        facts.since.before if facts.since else "none: parity gate compares with one",
    )


def cases(facts: RunFacts) -> Iterator[Section]:
    """Yield the section that lists every case."""
    if facts.requested:
        yield Section(
            id="cases",
            title="Cases",
            gist=f"{count(len(facts.requested), 'case')}, to sort and filter",
            table=cases_table(facts),
        )


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
    if facts.about.get("tier"):
        yield "tier", str(facts.about["tier"])
    if facts.about.get("changes"):
        yield "changed bounds", ", ".join(facts.about["changes"])
    yield "python", str(about.get("python") or "")
    if memory := about.get("memory_bytes"):
        yield "memory", f"{memory / _MEBI:,.0f} MB"
