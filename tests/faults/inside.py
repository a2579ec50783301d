"""What runs in child processes: the harness's own stages, with a fault in between."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.core.case import Component, Device
from harness.engine.deployed import Deployed
from harness.measure.trace import OUTPUT, load_inputs, open_trace
from harness.runtimes.candidate import candidate
from harness.runtimes.candidate.candidate import run_candidate
from harness.runtimes.session import Session, open_session
from tests.faults.peers import PEERS, tells

Wrap = Callable[[Session], Session]


def run_wrapped(  # noqa: PLR0917  # what `run_candidate` gets, and `wrap`
    case: str,
    component: Component,
    device: Device,
    backend: str,
    deployed: Sequence[Deployed],
    wrap: Wrap,
) -> dict[str, object]:
    """Do what `run_candidate` does, with something between it and the runtime."""

    @contextmanager
    def between(*given: Any) -> Iterator[Session]:
        with open_session(*given) as session:
            yield wrap(session)

    # This process is forked for this job alone.
    candidate.open_session = between
    return run_candidate(case, component, device, backend, deployed)


def run_peers(  # what `run_candidate` gets, one file and `wrap`
    _case: str,
    component: Component,
    device: Device,
    backend: str,
    file: Deployed,
    wrap: Wrap | None,
) -> dict[str, dict[str, bool]]:
    """Return, for each sample, which of the peers' rules tell by its final outputs."""
    told = {}
    outputs = [spec.name for spec in component.outputs]
    path = file.artifact.path / file.model
    with open_session(backend, path, device, outputs) as bare:
        session = wrap(bare) if wrap else bare
        for reading in file.readings:
            trace = open_trace(reading.reference.path)
            made = session.run(load_inputs(reading.inputs, component))
            expected = {name: trace[OUTPUT + name] for name in outputs}
            told[reading.sample] = {
                name: tells(name, component.name, expected, made) for name in PEERS
            }
    return told
