"""What people read: plain lines, with or without colour.

Yields text; who prints it, and whether it is coloured, is the caller's business.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.outcome import Outcome
from harness.report.judged import CaseVerdict, JudgedRow, coverage_share
from harness.report.record import LAYERS, OUTPUTS, CaseRecord

CLOSEST = 3
"""How many cases near their limit a summary names."""

_PLOT = " ▁▂▃▄▅▆▇█"
_LOG_LINES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line and what it means: ``good``, ``bad``, ``quiet`` or nothing."""

    text: str
    tone: str = ""


def summary(
    records: Mapping[str, CaseRecord],
    verdicts: Sequence[CaseVerdict],
    *,
    stale: Sequence[str] = (),
    report: str = "",
    show: str = "last",
) -> Iterator[Line]:
    """Yield a run's summary: what parted first, what is near its limit, what is next.

    Args:
        records: Case id to record.
        verdicts: Of all checks that ran.
        stale: Complaints about files that describe the run.
        report: Path of the report.
        show: How to name the run on the next command line.

    """
    by_case: dict[str, list[CaseVerdict]] = {}
    for verdict in verdicts:
        by_case.setdefault(verdict.case, []).append(verdict)
    bad = [vs for vs in by_case.values() if not all(v.outcome.passed for v in vs)]
    bad.sort(key=lambda vs: not _could_tell(vs))
    for checks in bad:
        yield from _failed(records[checks[0].case], checks)
    for complaint in stale:
        yield Line(text=f" ✗ {complaint}", tone="bad")
    yield from _tally(by_case, bad)
    yield from _gaps(verdicts)
    yield from _coverage(records.values())
    yield from _ran(records.values())
    if bad:
        yield Line(text=f" all layers   parity show {show} {bad[0][0].case}", tone="quiet")
    if report:
        yield Line(text=f" report       {report}", tone="quiet")


def _could_tell(checks: Iterable[CaseVerdict]) -> bool:
    return all(check.found.measured for check in checks)


def _failed(record: CaseRecord, checks: Sequence[CaseVerdict]) -> Iterator[Line]:
    layers = next((c for c in checks if c.what == LAYERS), None)
    outputs = next((c for c in checks if c.what == OUTPUTS), None)
    if record.failure is not None:
        yield Line(
            text=f" ✗ {record.case}   {record.failure.outcome}", tone="bad"
        )
        yield Line(text=f"     {record.failure.message}")
        for line in _last_words(record.failure.log, record.failure.message):
            yield Line(text=f"     │ {line}", tone="quiet")
        return
    parts = layers or outputs
    first = layers.first if layers else None
    if first is None and outputs is not None:
        first = outputs.first
    if first is None or parts is None:
        failed = next(c for c in checks if not c.outcome.passed)
        yield Line(
            text=f" ✗ {failed.id}   {failed.outcome}: {failed.reason}", tone="bad"
        )
        return
    row = first.row
    place = f"{row.module or row.probe}  ({_operator(row.op)})" if row.op != "output" else row.probe
    known = " · known gap is stale" if any(c.outcome is Outcome.STALE_GAP for c in checks) else ""
    yield Line(text=f" ✗ {record.case}   parts at {place}{known}", tone="bad")
    facts = [f"{first.verdict.outcome}: {first.verdict.reason}"]
    inputs = layers.inputs_floors if layers else None
    if inputs is not None:
        facts.append(f"its inputs agree to {_floors(inputs)}")
    if outputs and outputs.worst and row.op != "output":
        multiple = outputs.worst.row.comparison.floor_multiple
        if multiple is not None:
            facts.append(f"output off by {_floors(multiple)}")
    facts.append(row.sample)
    yield Line(text=f"     {' · '.join(facts)}")
    item = _batch_item(first)
    if item:
        yield Line(text=f"     {item}")
    if row.source:
        yield Line(text=f"     {row.source}", tone="quiet")
    for check in checks:
        if check.outcome is Outcome.STALE_GAP:
            yield Line(text=f"     {check.reason}")


def _batch_item(judged: JudgedRow) -> str:
    """Say so when one batch item carries the error alone."""
    c = judged.row.comparison
    if not c.expected_shape or c.expected_shape[0] < 2 or c.worst_item is None:  # noqa: PLR2004  # a batch
        return ""
    items = c.expected_shape[0]
    share = c.worst_item_rms**2 / (items * c.rms**2) if c.rms else 0.0
    if share < 0.99:  # noqa: PLR2004  # all but rounding
        return ""
    others = ", ".join(str(i) for i in range(items) if i != c.worst_item)
    return f"batch item {c.worst_item} carries all of it, item {others} agrees"


def _tally(
    by_case: Mapping[str, Sequence[CaseVerdict]], bad: Sequence[Sequence[CaseVerdict]]
) -> Iterator[Line]:
    total = len(by_case)
    if not total:
        yield Line(text=" nothing was compared", tone="bad")
        return
    near = sorted(
        (
            verdict
            for checks in by_case.values()
            for verdict in checks
            if verdict.outcome is Outcome.WITHIN and math.isfinite(verdict.usage)
        ),
        key=lambda verdict: -verdict.usage,
    )[:CLOSEST]
    tone = "bad" if bad else "good"
    tail = " Closest to their limit:" if near else ""
    yield Line(
        text=f" {total - len(bad)} of {total} cases agree.{tail}", tone=tone
    )
    width = max((len(verdict.id) for verdict in near), default=0)
    for verdict in near:
        worst = verdict.worst
        assert worst is not None  # noqa: S101  # a finite usage has a row
        place = worst.row.module or worst.row.probe
        yield Line(
            text=f"   {verdict.id:<{width}}  {place}  {worst.verdict.reason}"
        )


def _gaps(verdicts: Iterable[CaseVerdict]) -> Iterator[Line]:
    gaps = [verdict for verdict in verdicts if verdict.outcome is Outcome.GAP]
    if gaps:
        cases = sorted({verdict.case for verdict in gaps})
        yield Line(
            text=f" {len(cases)} of them only by a known gap: {_few(cases)}", tone="quiet"
        )


def _coverage(records: Iterable[CaseRecord]) -> Iterator[Line]:
    lowest: dict[str, CaseRecord] = {}
    for record in records:
        if record.coverage is None:
            continue
        kept = lowest.get(record.backend)
        if kept is None or coverage_share(record) < coverage_share(kept):
            lowest[record.backend] = record
    shares = []
    for backend, record in lowest.items():
        counts = record.coverage or {}
        left = [
            f"{counts[key]} {words}"
            for key, words in (("fused", "fused away"), ("unmatched", "unmatched"))
            if counts[key]
        ]
        detail = f" ({', '.join(left)} in {record.case})" if left else ""
        shares.append(f"{coverage_share(record):.1%} in {backend}{detail}")
    if shares:
        yield Line(text=f" coverage at least {'; '.join(shares)}", tone="quiet")


def _ran(records: Iterable[CaseRecord]) -> Iterator[Line]:
    seen: dict[str, None] = {}
    for record in records:
        if record.ran:
            ran = record.ran
            words = (
                f"{ran['backend']} {ran['version']} {ran['device'].upper()} "
                f"×{ran['threads']} {ran['precision']}"
            )
            seen[words] = None
    if seen:
        yield Line(text=f" ran on {', '.join(seen)}", tone="quiet")


def layer_lines(
    record: CaseRecord, verdicts: Sequence[CaseVerdict], *, sample: str = ""
) -> Iterator[Line]:
    """Yield a case's values in order of execution, errors as a small plot.

    One line a value, the worst over samples, or those of one sample.
    """
    worst: dict[str, JudgedRow] = {}
    for verdict in verdicts:
        for judged in verdict.rows:
            row = judged.row
            if sample and row.sample != sample:
                continue
            key = f"{row.what}:{row.probe}"
            kept = worst.get(key)
            if kept is None or judged.verdict.usage > kept.verdict.usage:
                worst[key] = judged
    ordered = sorted(worst.values(), key=lambda judged: judged.row.position)
    if not ordered:
        yield Line(text=f"{record.case}: no values were compared", tone="bad")
        return
    yield Line(text=f"{record.case}: {len(ordered)} values in order of execution")
    yield Line(text=f"{_curve(ordered)}  error in floors along the depth, log scale")
    yield Line(text=f"{'floors':>9} {'max abs':>9} {'SQNR dB':>8}  where", tone="quiet")
    for judged in ordered:
        c, row = judged.row.comparison, judged.row
        floors = "-" if c.floor_multiple is None else f"{c.floor_multiple:.3g}"
        mark = " " if judged.verdict.passed else "✗"
        place = f"{row.module or row.probe}  {_operator(row.op)}"
        bar = _bar(c.floor_multiple)
        yield Line(
            text=f"{floors:>9} {c.max_abs:>9.2e} {c.sqnr_db:>8.1f} {mark}{bar:<8} {place}",
            tone="" if judged.verdict.passed else "bad",
        )


def _curve(rows: Sequence[JudgedRow], width: int = 72) -> str:
    """Return a one-line plot of the largest error in each stretch of the depth."""
    step = max(1, math.ceil(len(rows) / width))
    heights = [
        max(_height(judged.row.comparison.floor_multiple) for judged in rows[at : at + step])
        for at in range(0, len(rows), step)
    ]
    return "".join(_PLOT[height] for height in heights)


def _bar(multiple: float | None) -> str:
    return "▪" * _height(multiple)


def _height(multiple: float | None) -> int:
    """Return 0 for no error up to 8 for 10⁷ floors and more."""
    if multiple is None or multiple <= 0:
        return 0
    if not math.isfinite(multiple):
        return len(_PLOT) - 1
    return min(len(_PLOT) - 1, max(1, 1 + math.floor(math.log10(max(multiple, 1.0)))))


def _operator(op: str) -> str:
    return op.removeprefix("aten.").partition(".")[0]


def _floors(value: float) -> str:
    return f"{value:.3g} floors"


def _few(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _last_words(log: str, message: str) -> list[str]:
    lines = [line.rstrip() for line in log.splitlines() if line.strip()]
    return [line for line in lines[-_LOG_LINES:] if line.strip() not in message]
