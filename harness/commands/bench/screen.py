"""What was timed, on the screen: a table a component, a line a subject."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.commands.bench.ratio import Pace, Ratio, ratio_of
from harness.commands.bench.timing import Plan, Timing
from harness.core.environment import environment
from harness.core.text import Line, count, cut, joined, wrapped
from harness.report.runs.cpu_load import at_work_words

_NAME = 27
_MEBI = 2**20


def machine_lines(suite: str) -> Iterator[Line]:
    """Yield where every figure below is from; no other machine's stands beside it."""
    about = environment()
    gpus = ", ".join(about.gpus)
    yield from joined(
        (
            f"bench: {suite}",
            about.cpu,
            count(about.core_count, "core"),
            gpus,
            f"{about.system} {about.arch}",
        ),
        indent="",
    )


def plan_lines(plan: Plan) -> Iterator[Line]:
    """Yield how it was measured."""
    yield from joined(
        (
            f"{count(plan.rounds, 'round')}, a new process each",
            f"{plan.warmups} warm-up and {plan.least_runs} to {plan.most_runs} runs",
            f"{plan.of_pipelines.least_runs} of a pipeline at least",
            "host memory to host memory",
            "ONNX Runtime's threads do not spin",
        ),
        indent="",
        tone="quiet",
    )


def compile_lines() -> Iterator[Line]:
    """Say what the wait is for, and how to do without."""
    text = (
        "torch.compile works in the first round of each component, which takes "
        "minutes; --no-compile leaves it out"
    )
    yield from wrapped(text, indent="", tone="quiet")


def component_lines(timings: Sequence[Timing], inputs: str) -> Iterator[Line]:
    """Yield a component's or pipeline's table, PyTorch eager first if it ran."""
    threads = sorted({timing.threads for timing in timings})
    said = " or ".join(map(str, threads))
    yield Line(text="")
    yield Line(text=f"{timings[0].component}   {inputs}, {said} threads")
    head = f" {'':{_NAME}} {'median ms':>9} {'middle half':>15} {'× eager':>15}"
    head += f" {'load s':>7} {'first s':>7} {'+MB':>6} {'file MB':>7} {'cores':>5}"
    yield Line(text=head, tone="quiet")
    eager = timings[0] if timings[0].rounds else None
    for timing in timings:
        name = timing.subject.removeprefix(f"{timing.component}/")
        if not timing.rounds:
            yield Line(text=f" {name}", tone="bad")
            yield from wrapped(timing.failure, tone="bad")
            continue
        low, high = timing.quartiles_s
        yield Line(
            text=f" {cut(name, _NAME):{_NAME}} {_ms(timing.median_s):>9} "
            f"{f'{_ms(low)}–{_ms(high)}':>15} {_beside(timing, eager):>15} "
            f"{timing.load_s:>7.2f} {timing.first_s:>7.2f} "
            f"{timing.memory_bytes / _MEBI:>6.0f} {_megabytes(timing.size_bytes):>7} "
            f"{timing.cores:>5.2f}"
        )
    if words := at_work_words(timing.at_work for timing in timings if timing.rounds):
        yield from wrapped(words, tone="quiet")


def against_lines(before: Timing, after: Timing) -> Iterator[Line]:
    """Yield one comparison of two builds that took turns."""
    for timing in (before, after):
        if not timing.rounds:
            yield Line(text=f" ? {timing.subject}", tone="bad")
            yield from wrapped(timing.failure, tone="bad")
            return
    ratio = ratio_of(after.medians_s, before.medians_s)
    tone = {Pace.SLOWER: "bad", Pace.FASTER: "good"}.get(ratio.pace, "")
    mark = {Pace.SLOWER: "✗", Pace.FASTER: "✓", Pace.UNKNOWN: "?"}.get(ratio.pace, "–")
    yield Line(
        text=f" {mark} {after.subject}: {ratio_words(ratio)} of {before.subject}",
        tone=tone,
    )
    pair = f"{_ms(before.median_s)} ms, then {_ms(after.median_s)} ms"
    yield from joined((str(ratio.pace), pair, count(ratio.rounds, "round")))


def ratio_words(ratio: Ratio) -> str:
    """Return a ratio with its spread, if there are rounds enough for one."""
    if ratio.low == 0.0:
        return f"{ratio.value:.2f}"
    return f"{ratio.value:.2f} ({ratio.low:.2f}–{ratio.high:.2f})"


def _beside(timing: Timing, eager: Timing | None) -> str:
    if eager is None or timing is eager:
        return "-" if eager is None else "1"
    return ratio_words(ratio_of(timing.medians_s, eager.medians_s))


def _megabytes(size_bytes: int) -> str:
    """Return a size; PyTorch's own pipeline has no file."""
    return f"{size_bytes / _MEBI:.1f}" if size_bytes else "-"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"
