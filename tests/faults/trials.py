"""Every fault, in every runtime that it is planted in."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from harness.engine.host import Host
from tests.faults.catalogue import FAULTS
from tests.faults.catalogue.fault import Fault, InRule
from tests.faults.planting import plant
from tests.faults.rules import PRELOAD, break_rule
from tests.faults.score import Result
from tests.faults.stand import Stand

HURRY_S = 10.0
"""Limit of a stage that is known to hang; the others of its case take a second."""

HARNESS = "harness"
"""Stands for a runtime where the fault is in a rule of our own."""


def planted() -> Iterator[tuple[Fault, str]]:
    """Yield each fault with each runtime that it is planted in."""
    for fault in FAULTS:
        if isinstance(fault.plant, InRule):
            yield fault, HARNESS
        else:
            yield from ((fault, backend) for backend in fault.backends)


def of_families(*families: str) -> list[object]:
    """Return some families' faults as pytest's parameters, each in one runtime.

    The runtimes take turns; the command tries every fault in both. A push tries every
    fifth.
    """
    faults = [fault for fault in FAULTS if fault.family in families]
    of = {fault.name: [b for f, b in planted() if f is fault] for fault in faults}
    turns = ((f, of[f.name][turn % len(of[f.name])]) for turn, f in enumerate(faults))
    return [
        pytest.param(
            *(fault, backend),
            id=f"{fault.name}-{backend}",
            marks=() if at % 5 else pytest.mark.smoke,
        )
        for at, (fault, backend) in enumerate(turns)
    ]


class Trials:
    """Tries faults; a context manager, for it owns child processes.

    Args:
        root: Store of what they need.
        peers: Whether to ask what the peers' rules say.
        isolate: Whether to run operators alone where layers part, to blame one.

    """

    def __init__(
        self, root: Path, *, peers: bool = False, isolate: bool = True
    ) -> None:
        self.stand = Stand(root, peers=peers, isolate=isolate)
        self._hurried = Stand(root, limit_s=HURRY_S, peers=peers, isolate=isolate)
        self._rules = Host("rules", PRELOAD)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stand.close()
        self._hurried.close()
        self._rules.close()

    def of(self, fault: Fault, backend: str) -> Result:
        """Plant one fault in one runtime, and return what became of it."""
        start = time.perf_counter()
        found: dict[str, Any] = {}
        if backend == HARNESS:
            caught, said = break_rule(self._rules, fault)
        else:
            trial = plant(self._hurried if fault.hangs else self.stand, fault, backend)
            caught, said = trial.caught, trial.said
            found = {
                "places": trial.places,
                "localised": trial.localised,
                "wrong": tuple(c for c in trial.looks if not fault.allows(c)),
                "peers": trial.peers,
            }
        return Result(
            fault=fault.name,
            family=fault.family,
            backend=backend,
            caught=caught,
            explained=any(word in said for word in fault.expects),
            said=said,
            took_s=time.perf_counter() - start,
            **found,
        )
