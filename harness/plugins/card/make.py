"""Make a parity card of a finished run."""

from __future__ import annotations

import hashlib
import math
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from msgspec import structs

from harness.core.case import Case
from harness.core.end_to_end import MIXED
from harness.core.errors import SuiteError
from harness.core.groups import sample_groups
from harness.core.outcome import NO_PARITY, PARITY
from harness.core.private import without_paths
from harness.core.record import OUTPUTS, CaseRecord, Row, as_read
from harness.core.runtime import runtime
from harness.core.shown import written
from harness.core.text import few, in_floors
from harness.engine.engine import Engine
from harness.judge.case import CaseVerdict
from harness.judge.value import JudgedRow
from harness.measure.received_arrays import Arrays
from harness.measure.trace import OUTPUT, Trace, open_trace
from harness.plugins.card.form import (
    FORMAT,
    TEXT,
    Card,
    CardCase,
    File,
    Output,
    save_card,
)
from harness.plugins.elsewhere import bundle_run
from harness.plugins.elsewhere.bundle import bundled
from harness.plugins.elsewhere.form import read_bundle, refused
from harness.report.markdown import cell, word
from harness.report.run_facts import RunFacts
from harness.suite.suite import Suite

MOST_SAMPLES = 2
"""A card has so many samples of a case, so that it is small and checked in a minute."""


def write_card(
    facts: RunFacts,
    suite: Suite,
    engine: Engine,
    folder: Path,
    say: Callable[[str], None],
) -> tuple[Card, str]:
    """Write the card of a run into an empty folder; return it and its digest.

    The engine has the deployed files; `say` receives the name of the next case.

    Raises:
        SuiteError: The suite deploys another file than the run measured.

    """
    arrays: dict[str, np.ndarray] = {}
    cases = {case.id: case for case in suite.cases}
    made = []
    for record in facts.compared:
        if record.backend == MIXED:
            continue  # it says which role an error comes from, and nobody ships it
        say(record.case)
        checks = facts.checks[record.key]
        case = cases.get(record.case)
        made.append(_summed(record, checks))
        if case is None or case.device.target or case.component.foreign:
            continue
        if made[-1].passed and runtime(case.backend).driver:
            made[-1] = _checkable(made[-1], case, record, checks, engine, arrays)
    about = facts.about
    here = about["environment"]
    commit = f"{here['commit'][:12]}{' with changes' if here['dirty'] else ''}"
    # A card is published, and a path says where something lies on its author's machine.
    command = shlex.join(without_paths(word) for word in about.get("command") or ())
    versions = ", ".join(f"{k} {v}" for k, v in sorted(here["packages"].items()))
    card = Card(
        format=FORMAT,
        checkpoint=suite.source.name,
        run=facts.run,
        code=facts.exit_code,
        facts=(
            *((("suite", suite.path.parent.name),) if suite.path.parent.name else ()),
            *((("commit", commit),) if commit else ()),
            ("machine", f"{here['cpu']}, {here['system']}, Python {here['python']}"),
            ("versions", versions),
            *((("command", f"`{command}`"),) if command else ()),
        ),
        gaps=tuple(
            dict.fromkeys(
                without_paths(f"{v.case}: {v.gap.why}")
                for v in facts.verdicts
                if v.gap is not None
            )
        ),
        cases=tuple(made),
        arrays="",
    )
    signed = save_card(card, arrays, folder)
    text = "".join(f"{written(line, lines=False)}\n" for line in _lines(card, signed))
    (folder / TEXT).write_text(text, encoding="utf-8")
    return card, signed


def _summed(record: CaseRecord, checks: Sequence[CaseVerdict]) -> CardCase:
    """Return what the run found of a case, without anything to check."""
    failed = next((check for check in checks if not check.found.passed), None)
    judged = (check.worst.verdict for check in checks if check.worst)
    worst = max(judged, key=lambda verdict: verdict.usage, default=None)
    if failed or (worst and not math.isfinite(worst.usage)):
        worst = None
    outputs = [row for row in as_read(record.rows) if row.what == OUTPUTS]
    if failed:
        reason = without_paths(failed.reason)
        result = "known gap" if failed.gap else f"{failed.outcome}: {reason}"
    elif pictures := [check.picture for check in checks if check.picture]:
        result = " · ".join(reversed(pictures))  # the verdict on pairs, then the worst
    else:
        result = _error(outputs)
    ran = record.ran or {}
    return CardCase(
        case=record.case,
        backend=record.backend if outputs else "",
        result=result,
        passed=failed is None,
        used=worst.usage if worst else None,
        bound=worst.reason if worst else "",
        version=str(ran.get("version", "")),
        device=", ".join(
            str(ran[name]) for name in ("device", "precision") if ran.get(name)
        ),
    )


def _error(rows: Sequence[Row]) -> str:
    """Return the largest error of outputs in floors, and the least ratio in dB."""
    words = []
    multiples = (row.comparison.floor_multiple for row in rows)
    if known := [multiple for multiple in multiples if multiple is not None]:
        words.append(in_floors(max(known)))
    ratio = min((row.comparison.sqnr_db for row in rows), default=math.inf)
    if math.isfinite(ratio):
        words.append(f"{ratio:.0f} dB")
    return ", ".join(words) or "agrees"


def _checkable(  # noqa: PLR0917  # a case, its record, and where to put what
    told: CardCase,
    case: Case,
    record: CaseRecord,
    checks: Sequence[CaseVerdict],
    engine: Engine,
    arrays: dict[str, np.ndarray],
) -> CardCase:
    """Add the files, the calls and the outputs of a case."""
    judged = {
        (judged.row.sample, judged.row.probe): judged
        for check in checks
        if check.what == OUTPUTS
        for judged in check.rows
    }
    case = _few(case)
    with TemporaryDirectory() as scratch:
        bundle = Path(scratch)
        deployed = bundled(engine, case, bundle, bundle_run.OUTPUTS)
        was = (record.artifacts or {}).get(case.backend, {}).get("digest")
        if was and was != deployed:
            msg = (
                f"{case.id} deploys another file now than the run measured; "
                "run `parity run` and make the card of that run."
            )
            raise SuiteError(msg)
        calls = bundle / bundle_run.CALLS
        said = read_bundle(calls, runtime(case.backend))
        traces = {
            reading.sample: open_trace(reading.reference.path)
            for _, readings in engine.references(case)
            for reading in readings
        }
        with Arrays(bundle / bundle_run.FEEDS) as stored:
            if refused(said, runtime(case.backend), stored):
                return told  # such as an option that is a path of this machine
            keys = {name: _kept(array, arrays) for name, array in stored.items()}
        files = tuple(
            File(name=name, sha256=value, size_bytes=(bundle / name).stat().st_size)
            for name, value in said.files.items()
        )
        text = calls.read_text(encoding="utf-8")
    names = list(zip(case.component.outputs, said.outputs, strict=True))
    known = {sample for sample, _ in judged}
    if strange := [sample for sample in traces if sample not in known]:
        msg = (
            f"{case.id} has other samples now than in the run ({few(strange)}); use "
            "`parity run`, and make the card of that run."
        )
        raise SuiteError(msg)
    return structs.replace(
        told,
        device=f"{told.device}, {case.device.threads} threads",
        files=files,
        bundle=text,
        feeds=keys,
        outputs=tuple(
            _output(traces[sample], judged[sample, spec.name], given, arrays)
            for sample in traces
            for spec, given in names
            if (sample, spec.name) in judged
        ),
    )


def _few(case: Case) -> Case:
    """Return a case with few samples: the first of each size, or else the first two."""
    sizes = [group.samples[0] for group in sample_groups(case, case.samples)]
    chosen = dict.fromkeys((*sizes, *case.samples))
    return replace(case, samples=tuple(chosen)[:MOST_SAMPLES])


def _output(
    trace: Trace, judged: JudgedRow, given: str, arrays: dict[str, np.ndarray]
) -> Output:
    row = judged.row
    key = OUTPUT + row.probe
    return Output(
        sample=row.sample,
        name=row.probe,
        given=given,
        expected=_kept(trace[key], arrays),
        floor_rms=trace.floor_rms(key),
        floors=_finite(row.comparison.floor_multiple),
        max_abs=_finite(row.comparison.max_abs) or 0.0,
        tolerance=judged.verdict.tolerance,
        own_rms=judged.own.rms if judged.own else None,
    )


def _finite(number: float | None) -> float | None:
    """Return a number that JSON can hold: none of a value without finite numbers."""
    if number is None or math.isnan(number):
        return None
    return max(-sys.float_info.max, min(number, sys.float_info.max))


def _kept(array: np.ndarray, arrays: dict[str, np.ndarray]) -> str:
    """Keep an array once, however many cases share it, and return its key."""
    whole = np.ascontiguousarray(array)
    words = f"{whole.dtype.str}{whole.shape}".encode()
    key = hashlib.sha256(words + whole.tobytes()).hexdigest()[:16]
    arrays.setdefault(key, np.array(array))
    return key


def _reference(card: Card) -> str:
    """Return what the files are compared with; without a checkpoint, an ONNX file."""
    return "PyTorch" if card.checkpoint else "the reference"


def must_not_ship(card: Card) -> str:
    """Return a sentence about a card of a run that must not ship; empty otherwise."""
    if card.code == PARITY:
        return ""
    failed = [case.case for case in card.cases if not case.passed]
    if card.code == NO_PARITY:
        of = few(failed) or "the run"
        return f"Do not ship: {of} does not agree with {_reference(card)}."
    return f"Cannot say: the run did not compare {few(failed) or 'everything'}."


def _lines(card: Card, signed: str) -> Iterator[str]:
    """Yield the lines of the Markdown block for a model card."""
    passed = sum(case.passed for case in card.cases)
    yield f"## Numerical parity with {_reference(card)}"
    yield ""
    if bad := must_not_ship(card):
        yield f"**{bad}**"
        yield ""
    of = f" `{card.checkpoint}`" if card.checkpoint else ""
    unit = " 1 floor is the error of float32 itself." if card.checkpoint else ""
    yield (
        f"{passed} of {len(card.cases)} ways to run{of} agree with {_reference(card)} "
        f"within their bounds.{unit}"
    )
    yield ""
    yield "| way to run | result | bound used | runtime | file |"
    yield "|---|---|---|---|---|"
    for case in card.cases:
        used = "–" if case.used is None else f"{case.used:.0%}: {cell(case.bound)}"
        what = cell(case.result) if case.passed else f"**{cell(case.result)}**"
        files = "; ".join(
            f"`{file.sha256[:12]}` {file.size_bytes / 1000:,.0f} KB"
            for file in case.files
        )
        runs = cell(" ".join(filter(None, (case.version, case.device))))
        yield f"| `{case.case}` | {what} | {used} | {runs} | {files} |"
    yield ""
    for gap in card.gaps:
        yield f"- Known gap: {word(gap)}"
    if card.gaps:
        yield ""
    for name, text in card.facts:
        yield f"- {name[:1].upper()}{name[1:]}: {text}"
    yield f"- Digest of `card.json`: `{signed}`"
    yield ""
    yield "Check it on your machine with `parity verify card FOLDER`, where FOLDER has"
    yield "the files. That needs numpy and the runtime, and no PyTorch."
