"""Say what is wrong with somebody's own call of a right file.

The file runs here with its inputs or outputs changed in one way. If that gives the
outputs of a dump on every sample that is off, the program that wrote the dump made its
calls in that way. A factor is fitted to the dump.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from harness.core.errors import StageError
from harness.core.record import OUTPUTS, Row
from harness.core.runtime import runtime
from harness.measure.named_arrays import Arrays, Run
from harness.measure.patterns import beyond_noise
from harness.plugins.elsewhere.call_forms import Form, call_forms, fitted
from harness.runtimes.candidate.candidate import STALE
from harness.runtimes.session import Opening, open_session

FITS = 0.1
"""Largest error of an explained output, as a share of what its call changed."""

BUDGET_S = 180.0
"""Seconds after which no other call is tried."""


def with_wrong_call(
    rows: list[Row],
    opening: Opening,
    feeds: Mapping[str, Arrays],
    made: Mapping[str, Arrays],
) -> list[Row]:
    """Return rows with the wrong call of a dump as the pattern of its outputs.

    It must explain every sample whose outputs are off and not `STALE`. The rows stay as
    they are if none does, or if the file cannot run here.

    `rows` may have rows of other files. `feeds` has the inputs of each sample, in
    order, and `made` its outputs in the dump.
    """
    outputs, device = opening.outputs, opening.device
    off = [
        row
        for row in rows
        if row.what == OUTPUTS and row.probe in outputs and row.sample in made
        if row.looks != STALE and beyond_noise(row.comparison)
    ]
    if not off:
        return rows
    declared = runtime(opening.backend)
    here = replace(
        device,
        device=declared.devices[0],
        precision=declared.precision if declared.precisions else device.precision,
        target=None,
        provider_options=(),
        cpu_nodes=0.0,
    )
    given: dict[str, dict[str, np.ndarray]] = {}
    for row in off:
        given.setdefault(row.sample, {})[row.probe] = made[row.sample][row.probe]
    words = ""
    with (
        suppress(StageError),
        open_session(opening.backend, opening.path, here, outputs) as session,
    ):
        words = wrong_call(session.run, feeds, given)
    mine = {id(row) for row in off if words}
    return [replace(row, looks=words) if id(row) in mine else row for row in rows]


def wrong_call(
    run: Run, feeds: Mapping[str, Arrays], given: Mapping[str, Arrays]
) -> str:
    """Return what is wrong with the calls of a dump; empty if nothing explains it.

    `feeds` has the inputs that each call should have had, by sample and in order.
    `given` has those outputs of the dump that are off, by sample.
    """
    tried = _Tried(run, feeds, given)
    if not tried.is_off:
        return ""
    found, least = "", FITS
    for form in call_forms(feeds):
        share = tried.share(form) if tried.has_time else np.inf
        if share < least:  # of two that are equal the first
            found, least = f"it is what the file gives {form.words}", share
    return found or next(_factors(tried, feeds), "")


def _factors(tried: _Tried, feeds: Mapping[str, Arrays]) -> Iterator[str]:
    """Yield the input that a factor must have multiplied, and the factors."""
    names = [name for name, value in tried.first.items() if value.dtype == np.float32]
    for name in names:
        if not tried.has_time:
            return
        factors: dict[str, float] = {}
        for sample in tried.samples:

            def error(factor: float, sample: str = sample, name: str = name) -> float:
                scaled = feeds[sample][name] * np.float32(factor)
                return tried.error(sample, {name: scaled})

            factors[sample] = fitted(error)
            if error(factors[sample]) >= FITS:
                break
        else:
            yield f"it is what the file gives with {name!r} {_said(factors)}"


def _said(factors: Mapping[str, float]) -> str:
    values = [*factors.values()]
    one, most = values[0], max(abs(value) for value in values)
    if max(values) - min(values) <= 0.01 * most:
        return (
            f"times {one:.5g} (1 / {1 / one:.5g}), fitted to the dump: the app applies "
            "that factor, or leaves out its inverse"
        )
    listed = ", ".join(f"{value:.4g} on {name}" for name, value in factors.items())
    words = f"times a factor of each sample, fitted to the dump: {listed}"
    if min(values) >= 1.0:
        words += "; so does an app that leaves out the scheduler's scale_model_input"
    return words


@dataclass
class _Tried:
    """The calls of a dump, and how well another call explains each that is off.

    Attributes:
        run: Runs the file here.
        feeds: The right inputs, by sample.
        given: The outputs of the dump that are off, by sample.

    """

    run: Run
    feeds: Mapping[str, Arrays]
    given: Mapping[str, Arrays]

    def __post_init__(self) -> None:
        self._end_s = time.monotonic() + BUDGET_S
        self.samples = list(self.given)
        self.first = self.feeds[self.samples[0]]
        self._right = {sample: self.run(self.feeds[sample]) for sample in self.samples}
        self._wrong = {
            (sample, name): _rms(self._right[sample][name], value)
            for sample, values in self.given.items()
            for name, value in values.items()
        }

    @property
    def has_time(self) -> bool:
        """Whether another call may be tried; a large network takes seconds for one."""
        return time.monotonic() < self._end_s

    @property
    def is_off(self) -> bool:
        """Whether every output differs, by a finite number."""
        return all(0.0 < error < np.inf for error in self._wrong.values())

    def error(self, sample: str, changed: Arrays) -> float:
        """Return the error that is left of a sample with some inputs changed."""
        with suppress(StageError):
            return self._share(sample, self.run({**self.feeds[sample], **changed}))
        return np.inf

    def share(self, form: Form) -> float:
        """Return the largest error that is left of any sample, as a share of 1."""
        worst = 0.0
        for sample in self.samples:
            changed = form.inputs(sample)
            if changed is None or (
                form.outputs is None and not self._moves(sample, changed)
            ):
                return np.inf
            if form.outputs is not None:
                right = self._right[sample]
                made = {name: form.outputs(value) for name, value in right.items()}
                worst = max(worst, self._share(sample, made))
            else:
                worst = max(worst, self.error(sample, changed))
            if worst >= FITS:  # the other samples need not run
                return np.inf
        return worst

    def _moves(self, sample: str, changed: Arrays) -> bool:
        """Whether the changed inputs of a sample are others than its own."""
        return any(
            not np.array_equal(self.feeds[sample][name], value)
            for name, value in changed.items()
        )

    def _share(self, sample: str, made: Arrays) -> float:
        return max(
            _rms(made[name], value) / self._wrong[sample, name]
            for name, value in self.given[sample].items()
        )


def _rms(one: np.ndarray, two: np.ndarray) -> float:
    """Return the size of a difference; infinite where the shapes or values differ."""
    if one.shape != two.shape:
        return np.inf
    error = one.astype(np.float64) - two.astype(np.float64)
    size = float(np.sqrt(np.mean(np.square(error)))) if error.size else 0.0
    return size if np.isfinite(size) else np.inf
