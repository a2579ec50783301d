"""What a tuning shows: what was tried, what is needed, what would change."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from harness.commands.tune.drift import Drift
from harness.commands.tune.edit import Edit, figures
from harness.commands.tune.proposal import Proposal
from harness.commands.tune.record import CaseTuning, Tuning
from harness.core.ladder import RTOL_LADDER
from harness.core.text import Line, count, cut, wrapped

_BARS = "▁▂▃▄▅▆▇█"
_NAME = 38
_NARROW = 36


def tuning_lines(
    tuning: Tuning, proposals: Sequence[Proposal], failed: Sequence[str] = ()
) -> Iterator[Line]:
    """Yield what was tried and found, a line for each probe group."""
    for name, tried in tuning.tried.items():
        why = Counter(one.why for one in tried)
        cases = [c for c in tuning.cases.values() if c.record.component == name]
        words = ", ".join(f"{number:,} {reason}" for reason, number in why.items())
        text = (
            f"{name}: {count(len(cases), 'case')} on {count(len(tried), 'input')} "
            f"({words}) in {tuning.took_s[name]:.0f} s"
        )
        yield Line(text=text)
        if gone := tuning.overflowed.get(name):
            text = f"{len(gone)} left out: PyTorch's own outputs are not finite there"
            yield Line(text=f" {text}", tone="quiet")
    for sentence in failed:
        yield from wrapped(f"✗ {sentence}", indent=" ", tone="bad")
    yield Line(text="")
    shown = ""
    for part in proposals:
        case = "/".join(part.case)
        text = f" {case if case != shown else '':<{_NAME}} {_group(part):<8} "
        shown = case
        yield Line(text=text + _words(part), tone="good" if part.changes else "")


def _group(part: Proposal) -> str:
    return cut(part.pattern, 8) if part.pattern else part.group


def _words(part: Proposal) -> str:
    if part.remark:
        return f"as it is: {part.remark}"
    to = " ".join((part.tier, *(f"{k} {v:g}" for k, v in part.bounds.items())))
    return f"{figures(part)} → {to if part.changes else 'as it is'}"


def beyond_lines(proposals: Iterable[Proposal]) -> Iterator[Line]:
    """Yield what healthy builds need and today's tolerances do not give."""
    short = [part for part in proposals if part.beyond]
    if not short:
        return
    yield Line(text="")
    yield Line(text="Less than half of the headroom is left:", tone="bad")
    for part in short:
        bounds = ", ".join(
            f"{bound} {now:g} → {need:.3g}"
            for bound, (now, need) in part.beyond.items()
        )
        group = f"{part.group} of {part.pattern}" if part.pattern else part.group
        text = (
            f"{'/'.join(part.case)} {group}: {bounds}; measured {figures(part)} on "
            f"{part.worst}"
        )
        yield from wrapped(text, indent="   ")


def trade_lines(cases: Iterable[CaseTuning]) -> Iterator[Line]:
    """Yield how much atol each rtol saves: a line for each case, plotted at its end."""
    steps = "".join(f"{_power(rtol):>9}" for rtol in RTOL_LADDER)
    yield Line(text="")
    yield Line(text=f" {'atol that outputs need at rtol':<{_NARROW}}{steps}")
    for case in cases:
        need = case.trade
        numbers = "".join(f"{atol:>9.1e}" for atol in need)
        name = cut(case.record.case, _NARROW)
        yield Line(text=f" {name:<{_NARROW}}{numbers}  {bars(need)}")


def bars(values: Sequence[float]) -> str:
    """Return a bar for each value; a step is half a decade below the largest.

    >>> bars((1e-3, 1e-4, 0.0))
    '█▆▁'
    """
    most = max(values)
    if not 0.0 < most < math.inf:
        return _BARS[0] * len(values)
    steps = len(_BARS) - 1
    return "".join(
        _BARS[max(0, steps + round(2 * math.log10(v / most)))] if v > 0 else _BARS[0]
        for v in values
    )


def noise_lines(cases: Iterable[CaseTuning]) -> Iterator[Line]:
    """Yield how far outputs move when nothing but the circumstances do."""
    worst: dict[tuple[str, str], tuple[float, float, str]] = {}
    for case in cases:
        for noise in case.noise:
            key = (case.record.backend, noise.kind)
            found = (noise.floors or 0.0, noise.max_abs, case.record.case)
            worst[key] = max(worst.get(key, found), found)
    if not worst:
        return
    yield Line(text="")
    yield Line(text=" outputs move, though nothing is wrong, by at most")
    for (backend, kind), (floors, largest, name) in worst.items():
        about = f"{floors:9.3g} floors, {largest:.1e}  {name}" if largest else "nothing"
        yield Line(text=f"   {backend:<12} {kind:<10} {about:>9}", tone="quiet")


def edit_lines(
    edits: Sequence[Edit],
    *,
    written: bool,
    again: str,
    then: str = "parity run, then parity tune --check last",
) -> Iterator[Line]:
    """Yield what changes, as a diff, and what to do next.

    Args:
        edits: Of files.
        written: Whether they were.
        again: The command that writes them.
        then: What to do once they are written.

    """
    yield Line(text="")
    changed = [one for one in edits if one.diff]
    if not changed:
        yield Line(text="Nothing would change.")
        return
    tones = {"+": "good", "-": "bad", "@": "quiet"}
    for one in changed:
        for line in one.diff:
            yield Line(text=line, tone=tones.get(line[:1], ""))
    yield Line(text="")
    if written:
        yield Line(text=f"wrote {', '.join(str(one.path) for one in changed)}")
        yield Line(text=f"next  {then}")
    else:
        yield Line(text=f"next  {again}")


def drift_lines(drifts: Sequence[Drift], checks: int, of: str) -> Iterator[Line]:
    """Yield a sentence for each check that has moved."""
    for drift in drifts:
        mark, tone = ("✗", "bad") if drift.alarm else ("!", "")
        yield from wrapped(f"{mark} {drift.reason}", indent=" ", tone=tone)
    quiet = checks - len(drifts)
    yield Line(
        text=f"{quiet:,} of {count(checks, 'check')} of {of} keep half of their "
        "headroom or more.",
        tone="good" if not drifts else "",
    )
    if drifts:
        yield Line(text="next  parity tune COMPONENT, to see whether it is the build")


def _power(rtol: float) -> str:
    return f"{rtol:.0e}" if rtol else "0"
