"""Score traces with statistics alone: do they blame the operator that values blame?

    python -m tests.faults.sketches [--store DIR] [--first N]

Each operator fault is run twice without operators run alone, as a trace has none: once
with every value, and once with what `parity bundle --layers stats` keeps of it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from harness.runtimes.target import bundle_run
from harness.runtimes.target.traced import Sketched
from tests.faults.catalogue import FAULTS
from tests.faults.planting import plant
from tests.faults.stand import Stand


class Sketching:
    """Has a session show sketches of large values."""

    def __init__(self, inner):
        self._inner = inner

    def __call__(self, session):
        return _Session(self._inner(session) if self._inner else session)


class _Session:
    def __init__(self, session):
        self._session = session

    def __getattr__(self, name):
        return getattr(self._session, name)

    def watch(self, feeds, sizes, on_value):
        def sketched(name, value):
            short = bundle_run.is_sketched(value)
            one = Sketched(bundle_run.sketch(value), value.shape) if short else value
            on_value(name, one)

        return self._session.watch(feeds, sizes, sketched)


class SketchStand(Stand):
    """A stand whose cases are judged by sketches."""

    def run(self, case, deployed=None, wrap=None, altered=None):
        return super().run(case, deployed, Sketching(wrap), altered)


def first_of(trial):
    """Return the first divergence in the layers, or how the case failed."""
    if trial.record.failure:
        return trial.record.failure.outcome
    layers = trial.verdicts[0]
    return layers.first.row.probe if layers.first else layers.outcome.value


def scored(root, faults):
    """Yield each fault, its runtime, and where values and sketches see it first."""
    with (
        Stand(root, isolate=False) as whole,
        SketchStand(root, isolate=False) as brief,
    ):
        for turn, fault in enumerate(faults):
            backend = fault.backends[turn % len(fault.backends)]
            one, two = (plant(stand, fault, backend) for stand in (whole, brief))
            yield fault.name, backend, first_of(one), first_of(two)


def operator_faults():
    """Return the catalogue's operator faults that end."""
    return [one for one in FAULTS if one.family == "operator" and not one.hangs]


def main():
    """Print the score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path)
    parser.add_argument("--first", type=int)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        same = total = 0
        faults = operator_faults()[: asked.first]
        for name, backend, one, two in scored(asked.store or Path(scratch), faults):
            total += 1
            same += one == two
            if one != two:
                print(f"{name} in {backend}: {two}, and by whole values {one}")
        print(f"{same} of {total} faults have the same first divergence")


if __name__ == "__main__":
    from tests.faults import sketches  # worker processes find its classes by this name

    sketches.main()
