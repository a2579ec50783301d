"""The same findings as Markdown, for a pull request or a CI's step summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.pipeline import IMAGE, LATENTS
from harness.core.record import (
    LAYERS,
    OUTPUTS,
    CaseRecord,
    Key,
    coverage_share,
    labels,
)
from harness.core.text import Line, in_floors
from harness.judge.case import CaseVerdict, max_floors
from harness.judge.pipeline import CLEAN_DB, attribution_of


def markdown(
    records: Sequence[CaseRecord],
    verdicts: Sequence[CaseVerdict],
    lines: Sequence[Line],
    run: str,
) -> str:
    """Return the summary and one table row a case."""
    by_check = {(*verdict.key, verdict.what): verdict for verdict in verdicts}
    names = labels(records)
    body = "\n".join(line.text for line in lines)
    head = f"## Parity {run}\n\n```text\n{body}\n```\n"
    # A pipeline that failed has no chain, and is known by what was asked of it.
    drawn = {verdict.key for verdict in verdicts if verdict.what in {LATENTS, IMAGE}}
    parts = [record for record in records if record.key not in drawn]
    chains = [record for record in records if record.key in drawn]
    tables = []
    if parts:
        tables.append(_components(parts, by_check, names))
    if chains:
        tables.append(_pipelines(chains, by_check, names))
    return "\n".join((head, *tables))


Checks = Mapping[tuple[str, str, str], CaseVerdict]


def _components(
    records: Sequence[CaseRecord], by_check: Checks, names: Mapping[Key, str]
) -> str:
    table = [
        "| case | layers | outputs | worst output | SQNR dB | coverage |",
        "|---|---|---|--:|--:|--:|",
    ]
    for record in records:
        layers, outputs = (
            by_check.get((*record.key, what)) for what in (LAYERS, OUTPUTS)
        )
        table.append(
            f"| {names[record.key]} | {_outcome(layers)} | {_outcome(outputs)} "
            f"| {_floors(outputs)} | {_sqnr(outputs)} | {_coverage(record)} |"
        )
    return "\n".join(table) + "\n"


def _pipelines(
    records: Sequence[CaseRecord], by_check: Checks, names: Mapping[Key, str]
) -> str:
    """Return a row a pipeline, then what was drawn where it is off."""
    table = [
        "| pipeline | latents | image | PSNR dB | SSIM | parts at | brought by |",
        "|---|---|---|--:|--:|---|---|",
    ]
    drawn: list[str] = []
    for record in records:
        latents, image = (by_check.get((*record.key, w)) for w in (LATENTS, IMAGE))
        first = latents.first.row.module if latents and latents.first else ""
        pictures = [
            row.comparison.picture
            for row in record.rows
            if row.comparison.picture is not None
        ]
        psnr = min((p.psnr_db for p in pictures), default=None)
        ssim = min((p.ssim for p in pictures), default=None)
        found = attribution_of(record)
        by = ""
        if psnr is not None and not psnr > CLEAN_DB:
            parts = found.parts.items() if found else ()
            by = ", ".join(f"{seat} {part.share:.0%}" for seat, part in parts)
            drawn += [
                f"\n{names[record.key]}: PyTorch, candidate, difference\n",
                *(f"![{names[record.key]}]({path})" for path in _worst_of(record)),
            ]
        table.append(
            f"| {names[record.key]} | {_outcome(latents)} | {_outcome(image)} "
            f"| {_number(psnr, '.1f')} | {_number(ssim, '.4f')} | {first} | {by} |"
        )
    return "\n".join((*table, *drawn)) + "\n"


def _worst_of(record: CaseRecord) -> Sequence[str]:
    """Return the path of the picture that is off most, among those that were kept."""
    paths = (record.chain or {}).get("pictures") or ()
    pictures = [row for row in record.rows if row.what == IMAGE][: len(paths)]
    worst = max(range(len(pictures)), key=lambda i: pictures[i].comparison.rms)
    return paths[worst : worst + 1]


def _number(value: float | None, spec: str) -> str:
    return "" if value is None else f"{value:{spec}}"


def _outcome(verdict: CaseVerdict | None) -> str:
    if verdict is None:
        return ""
    return verdict.outcome.value if verdict.outcome.passed else f"**{verdict.outcome}**"


def _floors(verdict: CaseVerdict | None) -> str:
    worst = max_floors(verdict.rows if verdict else ())
    return "" if worst is None else in_floors(worst)


def _sqnr(verdict: CaseVerdict | None) -> str:
    values = [
        judged.row.comparison.sqnr_db for judged in (verdict.rows if verdict else ())
    ]
    return f"{min(values):.1f}" if values else ""


def _coverage(record: CaseRecord) -> str:
    return f"{coverage_share(record):.1%}" if record.coverage else ""
