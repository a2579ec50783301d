"""A case's history: two small plots, a line a run, a mark where something moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.commands.release.history import Step
from harness.core.text import INDENT, Line, count, in_bytes, wrapped
from harness.judge.pipeline import curve
from harness.report.runs.thresholds import Change


def history_lines(case: str, steps: Sequence[Step]) -> Iterator[Line]:
    """Yield the plots, then a line a run; what moved stands below its run."""
    yield Line(text=f"{case}   {count(len(steps), 'run')}, oldest first")
    yield Line(text=f"  error    {curve([step.error or 0.0 for step in steps])}")
    timed = [step for step in steps if step.latency is not None]
    if timed:
        yield Line(text=f"  latency  {curve(_latencies(steps, timed[-1]))}")
    for step in steps:
        latency = "" if step.latency is None else f"{step.metric} {step.latency:.4g}"
        size = in_bytes(step.size_bytes)
        mark = "◆" if step.moved else " "
        text = f"  {mark} {step.run:<22} {step.words:>16} {size:>11}  {latency}"
        yield Line(text=text.rstrip(), tone=_tone(step))
        for finding in step.moved:
            words = f"{finding.what} {finding.change}: {finding.words}"
            yield from wrapped(words, indent=INDENT)
        if step.moved:
            since = ", ".join(step.since) or "nothing that a report tells"
            yield from wrapped(f"changed there: {since}", indent=INDENT)
        if step.doubt:
            text = f"no verdict on its time: {step.doubt}"
            yield from wrapped(text, indent=INDENT, tone="quiet")
    if not any(step.moved for step in steps):
        yield Line(text="  nothing moved beyond noise", tone="good")
    elsewhere = [step for step in timed if not _alike(step, timed[-1])]
    text = ""
    if not timed:
        text = "no time: no kept run has repeated measurements of this case"
    elif elsewhere:
        text = (
            f"{count(len(elsewhere), 'time')} of another machine or number of threads "
            "left out of the plot"
        )
    if text:
        yield Line(text=f"  {text}", tone="quiet")


def _latencies(steps: Sequence[Step], newest: Step) -> list[float]:
    """Return what makes one curve; times of two machines make none."""
    return [
        step.latency if step.latency and _alike(step, newest) else 0.0 for step in steps
    ]


def _alike(step: Step, other: Step) -> bool:
    return (step.machine, step.metric) == (other.machine, other.metric)


def _tone(step: Step) -> str:
    changes = {finding.change for finding in step.moved}
    if Change.WORSE in changes:
        return "bad"
    return "good" if Change.BETTER in changes else ""
