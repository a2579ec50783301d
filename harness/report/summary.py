"""A run's summary: where it first parts, what is near its limit, what to do next."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from harness.core.next_steps import NextSteps
from harness.core.outcome import Outcome
from harness.core.pipeline import LATENTS
from harness.core.record import (
    LAYERS,
    OUTPUTS,
    WHATS,
    CaseRecord,
    Key,
    Row,
    coverage_share,
    labels,
    left_out,
)
from harness.core.text import (
    INDENT,
    WIDTH,
    Line,
    count,
    cut,
    few,
    in_floors,
    joined,
    operator,
    wrapped,
)
from harness.judge.another import another_lines
from harness.judge.case import CaseVerdict, JudgedRow, skipped
from harness.judge.contract import contract_notes
from harness.judge.foreign import taken_lines
from harness.report.stand_ins import stand_in_words

CLOSEST = 3
"""How many cases near their limit a summary names."""

DETAILED = 5
"""How many failures it explains; of the others it gives a line each."""

_NEXT = NextSteps()

ON_THE_WAY = (LAYERS, LATENTS)
"""Checks that say where a case parts; the others say that it does."""

_LOG_LINES = 3

Failed = tuple[CaseRecord, Sequence[CaseVerdict]]


def summary(
    records: Sequence[CaseRecord],
    verdicts: Sequence[CaseVerdict],
    *,
    stale: Sequence[str] = (),
    required: Collection[str] = (),
    report: str = "",
    next_steps: NextSteps = _NEXT,
) -> Iterator[Line]:
    """Yield a run's summary; the clearest failure leads.

    Args:
        records: Of all cases.
        verdicts: Of all checks that were asked for.
        stale: Complaints about files that describe the run.
        required: Backends that may not be skipped.
        report: Path of the report.
        next_steps: How the commands that it ends with ask the same.

    """
    names = labels(records)
    skips = [verdict for verdict in verdicts if skipped(verdict, required)]
    by_case: dict[Key, list[CaseVerdict]] = {}
    for verdict in verdicts:
        if verdict not in skips:
            by_case.setdefault(verdict.key, []).append(verdict)
    asked = [record for record in records if record.key in by_case]
    bad = [
        (record, by_case[record.key])
        for record in asked
        if not all(check.outcome.passed for check in by_case[record.key])
    ]
    told = alike(bad, names)
    yield from _failures(told, names)
    for complaint in stale:
        yield from wrapped(f"✗ {complaint}", indent=" ", tone="bad")
    yield from _tally(by_case, len(bad), names, stand_in_words(asked))
    yield from _gaps(by_case.values(), names)
    yield from _skips(skips)
    yield from _coverage(asked, names)
    yield from taken_lines(asked, names)
    yield from another_lines(by_case, names)
    yield from _ran(asked)
    for note in contract_notes(asked):
        yield from wrapped(note, indent=" ", tone="quiet")
    clearest = told[0][0] if told else None
    if clearest and clearest[0].rows:
        record, checks = clearest
        explained = record.case if checks[0].what in WHATS else ""
        yield from next_steps.lines(names[record.key], explained, record.suite)
    if report:
        yield Line(text=f" report      {report}", tone="quiet")


def clearness(failed: Failed) -> tuple[bool, bool, bool, float]:
    """Sort what tells most first: measured, located, full precision, far off."""
    record, checks = failed
    shown = shown_check(checks)
    far = shown.first.verdict.usage if shown and shown.first else 0.0
    return (
        not all(check.found.measured for check in checks),
        shown is None or shown.what not in ON_THE_WAY,
        record.variant != "fp32",
        -far,
    )


def shown_check(checks: Iterable[CaseVerdict]) -> CaseVerdict | None:
    """Return the failed check that says where a case parts; layers say it best."""
    failed = [c for c in checks if c.first is not None and not c.outcome.passed]
    return min(failed, key=lambda check: check.what not in ON_THE_WAY, default=None)


def alike(bad: Iterable[Failed], names: Mapping[Key, str]) -> list[list[Failed]]:
    """Return failures, the clearest first, those with the same words together."""
    together: dict[str, list[Failed]] = {}
    for record, checks in sorted(bad, key=clearness):
        words = record.failure.message if record.failure else ""
        own = words.replace(record.case, "") or names[record.key]
        together.setdefault(own, []).append((record, checks))
    return list(together.values())


def _failures(
    told: Iterable[Sequence[Failed]], names: Mapping[Key, str]
) -> Iterator[Line]:
    """Explain failures, those with the same words once."""
    for at, same in enumerate(told):
        record, checks = same[0]
        others = [names[other.key] for other, _ in same[1:]]
        name = names[record.key] + (f" and {len(others):,} more" if others else "")
        lines = list(_failed(name, record, checks))
        yield from lines if at < DETAILED else lines[:1]
        if others:
            yield from wrapped(f"also {few(others)}", tone="quiet")


def _failed(
    name: str, record: CaseRecord, checks: Sequence[CaseVerdict]
) -> Iterator[Line]:
    shown = shown_check(checks)
    if record.failure is not None:
        yield Line(text=f" ✗ {name}   {record.failure.outcome}", tone="bad")
        yield from wrapped(record.failure.message)
        # Where something was measured, what libraries said meanwhile is no reason.
        measured = Outcome(record.failure.outcome).measured
        spoken = "" if measured else record.failure.log
        for line in _last_words(spoken, record.failure.message):
            text = f"{INDENT}│ {line}"[:WIDTH]
            yield Line(text=text, tone="quiet")
    elif shown is not None and shown.first is not None:
        yield from _parts_at(name, shown, shown.first, checks)
    for check in checks:
        # What no row tells: too little compared, nothing compared, a stale gap.
        told = record.failure is not None or check.first is not None
        if shown is not None and check.outcome.of_graph:
            continue  # it stands above all numbers
        if check.outcome is Outcome.STALE_GAP or not (check.outcome.passed or told):
            if shown is None and record.failure is None:
                yield Line(
                    text=f" ✗ {name}   {check.what}: {check.outcome}", tone="bad"
                )
            yield from wrapped(f"{check.what}: {check.reason}")


def _parts_at(
    name: str, shown: CaseVerdict, first: JudgedRow, checks: Iterable[CaseVerdict]
) -> Iterator[Line]:
    row = first.row
    op = "" if row.op == "output" else f"  ({operator(row.op)})"
    what = "output " if row.op == "output" else ""
    room = WIDTH - len(f"{INDENT}parts at {what}{op}")
    place = f"parts at {what}{cut(row.module or row.probe, room)}{op}"
    if len(f" ✗ {name}   {place}") <= WIDTH:
        yield Line(text=f" ✗ {name}   {place}", tone="bad")
    else:
        yield Line(text=f" ✗ {name}", tone="bad")
        yield Line(text=f"{INDENT}{place}", tone="bad")
    for check in checks:
        if check.outcome.of_graph:
            yield from wrapped(check.reason)
    yield from joined(error_facts(shown, first, checks))
    yield from joined(input_facts(first, shown.inputs))
    for text in origin_facts(shown, first):
        yield from wrapped(text)
    if shown.looks:
        yield Line(text=f"{INDENT}{shown.looks}")
    yield from joined(where_facts(first))
    for check in checks:
        if check.picture:
            yield Line(text=f"{INDENT}{check.picture}")
    if row.source:
        yield Line(text=f"{INDENT}{row.source}", tone="quiet")


def error_facts(
    shown: CaseVerdict, first: JudgedRow, checks: Iterable[CaseVerdict]
) -> Iterator[str]:
    """Yield how far off it is, its inputs are, and the output is."""
    reason = first.verdict.reason
    outcome = first.verdict.outcome
    yield reason if outcome is Outcome.EXCEEDS else f"{outcome}: {reason}"
    if "floors" not in reason:
        yield _multiple(first)
    if shown.inputs:
        floors = shown.inputs_floors
        if not all(judged.verdict.passed for judged in shown.inputs):
            yield "its inputs are already out of tolerance"
        elif floors is not None:
            yield f"its inputs agree to {in_floors(floors)}"
    yield _own(shown, first)
    for check in checks:
        if check is shown or check.worst is None:
            continue
        if check.what == OUTPUTS:
            multiple = _multiple(check.worst)
            yield f"output off by {multiple}" if multiple else ""
        elif check.what == LAYERS and check.outcome is Outcome.WITHIN:
            yield f"every layer within ({len(check.rows):,} compared)"


def _own(shown: CaseVerdict, first: JudgedRow) -> str:
    """Say what the operator introduces by itself, on the reference's own inputs."""
    if not shown.isolated:
        return ""
    for judged in shown.origins:
        if judged.row.probe == first.row.probe:
            own = _multiple(judged)
            if not own:
                return "its own: PyTorch's own inputs give the same"
            return f"{'all' if own == _multiple(first) else own} of it its own"
    return "no operator introduces it alone"


def origin_facts(shown: CaseVerdict, first: JudgedRow) -> Iterator[str]:
    """Name other operators that introduce an error of their own."""
    others = [
        place_of(judged.row)
        for judged in shown.origins
        if judged.row.probe != first.row.probe
    ]
    if others:
        verb = "parts by itself" if len(others) == 1 else "part by themselves"
        yield f"{count(len(others), 'other operator')} {verb}: {few(others)}"


def place_of(row: Row) -> str:
    """Return where a value is computed, and by which operator."""
    return f"{row.module or row.probe} ({operator(row.op)})"


def _multiple(judged: JudgedRow) -> str:
    """Return an error in floors; empty where it has none, or NaN stands beside it."""
    if judged.verdict.outcome is Outcome.NONFINITE:
        return ""  # floors are of the finite values alone, of which nothing is wrong
    multiple = judged.row.comparison.floor_multiple
    known = multiple is not None and not math.isnan(multiple)
    return in_floors(multiple) if multiple is not None and known else ""


def input_facts(first: JudgedRow, inputs: Sequence[JudgedRow]) -> Iterator[str]:
    """Yield what a value was made from."""
    for judged in inputs:
        row = judged.row
        shape = list(row.comparison.expected_shape)
        size = f"{shape} {_multiple(judged)}".rstrip()
        op, room = operator(row.op), WIDTH - len(INDENT) - len(size) - 12
        place = cut(row.module or row.probe, room - len(op))
        yield f"from {place} ({op}) {size}"
    # Seen at the borders of modules, a value's origins are not known.
    if not inputs and first.row.op.startswith("aten."):
        missing = few(first.row.parents)
        yield (
            f"from {missing}, not compared"
            if missing
            else "from the component's inputs alone"
        )


def where_facts(first: JudgedRow) -> Iterator[str]:
    """Yield the sample, and the worst element in it."""
    c = first.row.comparison
    yield f"on {first.row.sample}"
    if c.worst_index is not None and c.expected_shape == c.actual_shape:
        yield f"worst at {list(c.worst_index)} of {list(c.expected_shape)}"
        if c.worst_actual is not None and c.worst_expected is not None:
            yield f"{c.worst_actual:.6g}, expected {c.worst_expected:.6g}"
    yield _batch_item(first)


def _batch_item(judged: JudgedRow) -> str:
    """Say so when one batch item carries the error alone."""
    c, few_items, all_but_rounding = judged.row.comparison, 2, 0.99
    items = c.expected_shape[0] if c.expected_shape else 1
    if items < few_items or c.worst_item is None or not c.rms:
        return ""
    if not c.worst_item_rms**2 / (items * c.rms**2) >= all_but_rounding:
        return ""
    agree = "the other agrees" if items == few_items else "the others agree"
    return f"batch item {c.worst_item} carries all of it, {agree}"


def _tally(
    by_case: Mapping[Key, Sequence[CaseVerdict]],
    bad: int,
    names: Mapping[Key, str],
    stood_in: str,
) -> Iterator[Line]:
    total = len(by_case)
    if not total:
        yield Line(text=" nothing was compared", tone="bad")
        return
    near = sorted(
        (
            max(checks, key=lambda check: check.usage)
            for checks in by_case.values()
            if all(check.outcome is Outcome.WITHIN for check in checks)
        ),
        key=lambda verdict: -verdict.usage,
    )[:CLOSEST]
    agree = "agrees" if total == 1 else "agree"
    yield from wrapped(
        f"{total - bad:,} of {count(total, 'case')} {agree}{stood_in}."
        f"{' Closest to their limit:' if near else ''}",
        indent=" ",
        tone="bad" if bad else "good",
    )
    width = max((len(names[verdict.key]) for verdict in near), default=0)
    for verdict in near:
        if verdict.worst is not None:
            row, reason = verdict.worst.row, verdict.worst.verdict.reason
            head, op = f"   {names[verdict.key]:<{width}}  ", row.module or row.probe
            place = cut(op, max(12, WIDTH - len(head) - len(reason) - 2))
            yield Line(text=f"{head}{place}  {reason}")


def _gaps(
    cases: Iterable[Sequence[CaseVerdict]], names: Mapping[Key, str]
) -> Iterator[Line]:
    known = [
        names[checks[0].key]
        for checks in cases
        if any(check.outcome is Outcome.GAP for check in checks)
        and all(check.outcome.passed for check in checks)
    ]
    if known:
        text = f"{len(known):,} of them only by a known gap: {few(known)}"
        yield from wrapped(text, indent=" ", tone="quiet")


def _skips(skips: Iterable[CaseVerdict]) -> Iterator[Line]:
    reasons: dict[str, set[Key]] = {}
    for verdict in skips:
        reasons.setdefault(verdict.reason, set()).add(verdict.key)
    for reason, cases in reasons.items():
        text = f"{count(len(cases), 'case')} skipped: {reason}"
        yield from wrapped(text, indent=" ", tone="bad")


def _coverage(
    records: Iterable[CaseRecord], names: Mapping[Key, str]
) -> Iterator[Line]:
    lowest: dict[str, CaseRecord] = {}
    for record in records:
        if record.coverage is None:
            continue
        kept = lowest.get(record.backend)
        if kept is None or coverage_share(record) < coverage_share(kept):
            lowest[record.backend] = record
    shares = []
    for backend, record in lowest.items():
        left = ", ".join(left_out(record))
        detail = f" ({left} in {names[record.key]})" if left else ""
        shares.append(f"{coverage_share(record):.1%} in {backend}{detail}")
    if shares:
        shares[0] = f"coverage at least {shares[0]}"
    yield from joined(shares, indent=" ", between="; ", tone="quiet")


def _ran(records: Iterable[CaseRecord]) -> Iterator[Line]:
    seen: dict[str, None] = {}
    for record in records:
        if ran := record.ran:
            threads = count(int(ran["threads"]), "thread")
            words = f"{ran['backend']} {ran['version']} on {ran['device'].upper()}"
            seen[f"{words} ({threads}, precision {ran['precision']})"] = None
    parts = list(seen)
    if parts:
        parts[0] = f"ran {parts[0]}"
    yield from joined(parts, indent=" ", between=", ", tone="quiet")


def _last_words(log: str, message: str) -> list[str]:
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    return [line for line in lines[-_LOG_LINES:] if line.strip() not in message]
