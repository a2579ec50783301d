"""Run every operator on the reference's own inputs, to measure its local error.

The cumulative error also contains the error propagated from its inputs. An operator is
the cause when its local error is out of tolerance, however wrong its inputs are. This
runs in a child process; only numbers come back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.core.case import Component, Device
from harness.core.entry import check_artifact
from harness.core.plugins import merged
from harness.core.probes import load_probes
from harness.core.record import ISOLATED, Row, as_read
from harness.engine.deployed import Deployed
from harness.engine.host import report_progress
from harness.measure.align import source_value
from harness.measure.patterns import NOISE, Isolated
from harness.measure.trace import load_inputs, open_trace
from harness.runtimes.candidate.candidate import Watcher
from harness.runtimes.session import open_session

if TYPE_CHECKING:
    import numpy as np


def run_isolated(
    case: str,
    component: Component,
    device: Device,
    backend_name: str,
    file: Deployed,
) -> tuple[Row, ...]:
    """Run one sample's operators on the reference's values; return rows.

    Raises:
        StageError: The artifact is damaged, or the runtime refuses it or a cut of it.

    """
    (reading,) = file.readings
    for entry in (file.artifact, reading.inputs, reading.reference):
        check_artifact(entry)
    trace = open_trace(reading.reference.path)
    probes = load_probes(file.probes)
    feeds = load_inputs(reading.inputs, component)
    isolated = Isolated(trace=trace, probes=probes, feeds=feeds, graph=file.graph)
    watcher = Watcher(reading.sample, trace, probes, isolated)
    outputs = [spec.name for spec in component.outputs]
    kinds: dict[str, Kind] = {}

    def note(name: str, actual: np.ndarray) -> None:
        kinds[name] = (actual.dtype, actual.shape)

    report_progress("isolating", case, reading.sample)
    path = file.artifact.file(file.model)
    with open_session(backend_name, path, device, outputs) as session:
        session.watch(feeds, watcher.sizes, note)
        session.isolate(feeds, Given(watcher, kinds), watcher.on_value)
    said = merged("differences", probes, path, file.graph)
    return tuple(
        replace(row, what=ISOLATED, looks=_both(said.get(row.probe, ""), row.looks))
        for row in as_read(watcher.rows())
    )


def _both(said: str, looks: str) -> str:
    if said and looks.startswith(NOISE):  # what differs in the file is the reason
        return said
    return "; ".join(words for words in (said, looks) if words)


class Given(Mapping[str, "np.ndarray"]):
    """The reference's values under a runtime's names, in its dtypes; read when needed.

    `kinds` has the dtype and shape that each value had, by the runtime's name.
    """

    def __init__(self, watcher: Watcher, kinds: Mapping[str, Kind]) -> None:
        self._watcher = watcher
        self._kinds = kinds

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the value; in the runtime's shape where the runtime renamed it."""
        dtype, shape = self._kinds[name]
        source = source_value(name)
        value = self._watcher.expected(source).astype(dtype)
        return value.reshape(shape) if source != name and value.size else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


Kind = tuple["np.dtype[np.generic]", tuple[int, ...]]
