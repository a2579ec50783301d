"""Say which input somebody's own call of a right file left out.

The file runs here with one input changed. If that gives the outputs of a dump, the
program that wrote the dump made its call with that input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.core.case import Device
from harness.core.errors import StageError
from harness.core.record import OUTPUTS, Row
from harness.core.runtime import runtime
from harness.measure.error_patterns.rules import beyond_noise
from harness.measure.sensitivity import Arrays, Run
from harness.runtimes.session import open_session
from harness.runtimes.target.traced import about

STALE = "the same answer as to an earlier sample: a buffer that was not written again"
FITS = 0.1
"""Largest error of an explained output, as a share of what its call changed."""


def with_wrong_call(
    rows: list[Row],
    *,
    backend: str,
    path: Path,
    device: Device,
    outputs: Sequence[str],
    feeds: Mapping[str, Arrays],
    made: Mapping[str, Arrays],
) -> list[Row]:
    """Return rows with the wrong call of a dump as the pattern of its outputs.

    It is looked for in the first sample whose outputs are off and not `STALE`. The rows
    stay as they are if none is found, if the file cannot run here, or if the values are
    of no dump: a bundle makes the calls of a session.

    `rows` may have rows of other files. `feeds` has the inputs of each sample, in
    order, and `made` its outputs in the dump.
    """
    trace = device.target.trace if device.target else ""
    if not trace or about(Path(trace)).samples:
        return rows
    off = [
        row
        for row in rows
        if row.what == OUTPUTS and row.probe in outputs and row.sample in made
        if row.looks != STALE and beyond_noise(row.comparison)
    ]
    off = [row for row in off if row.sample == off[0].sample]
    if not off:
        return rows
    sample = off[0].sample
    earlier = [*feeds][: [*feeds].index(sample)]
    declared = runtime(backend)
    here = replace(
        device,
        device=declared.devices[0],
        precision=declared.precision if declared.precisions else device.precision,
        target=None,
        provider_options=(),
        cpu_nodes=0.0,
    )
    words = ""
    with (
        suppress(StageError),
        open_session(backend, path, here, outputs) as session,
    ):
        before = (earlier[-1], feeds[earlier[-1]]) if earlier else ("", {})
        given = {row.probe: made[sample][row.probe] for row in off}
        words = wrong_call(session.run, feeds[sample], given, *before)
    mine = {id(row) for row in off if words}
    return [replace(row, looks=words) if id(row) in mine else row for row in rows]


def wrong_call(
    run: Run, feeds: Arrays, given: Arrays, before: str, earlier: Arrays
) -> str:
    """Return which input a call had as 0, or from an earlier sample; empty if none.

    `feeds` are the inputs that the call should have had, and `given` those of its
    outputs that are off. `before` names the sample before, and `earlier` has its
    inputs; both are empty if there is none.
    """
    right = run(feeds)
    wrong = {name: _rms(right[name], value) for name, value in given.items()}
    found, least = "", FITS
    if not all(0.0 < error < np.inf for error in wrong.values()):
        return found
    for words, changed in _calls(feeds, before, earlier):
        with suppress(StageError):
            made = run({**feeds, **changed})
            share = max(_rms(made[name], given[name]) / wrong[name] for name in given)
            if share < least:
                found, least = words, share
    return found


def _calls(feeds: Arrays, before: str, earlier: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Yield what may be wrong with a call, and the inputs that it had."""
    gives, late = "it is what the file gives", "written before the session was resized"
    zeros = {name: np.zeros_like(value) for name, value in feeds.items()}
    for name, value in feeds.items():
        if value.any():
            words = f"{gives} with {name!r} = 0: that input was not set, or was {late}"
            yield words, {name: zeros[name]}
        old = earlier.get(name)
        if old is not None and old.shape == value.shape and (old != value).any():
            words = f"{gives} with {name!r} of {before}: that input was not set again, "
            yield f"{words}or was {late}", {name: old}
    if len(feeds) > 1:
        words = f"{gives} with every input 0: none was set, or each was {late}"
        yield words, zeros


def _rms(one: np.ndarray, two: np.ndarray) -> float:
    """Return the size of a difference; infinite where the shapes or values differ."""
    if one.shape != two.shape:
        return np.inf
    error = one.astype(np.float64) - two.astype(np.float64)
    size = float(np.sqrt(np.mean(np.square(error)))) if error.size else 0.0
    return size if np.isfinite(size) else np.inf
