"""Score traces with statistics alone: do they blame the operator that values blame?

    python -m tests.faults.sketches [--store DIR] [--first N]

Each operator fault is planted in one runtime, and the runtimes take turns. It is run
twice without operators run alone, as a trace has none: once with every value, and once
with what `parity bundle --layers stats` keeps of it.
"""

import argparse
import tempfile
from pathlib import Path

from harness.plugins.elsewhere import bundle_run
from harness.plugins.elsewhere.traced import Sketched
from tests.faults.planting import plant
from tests.faults.stand import Stand
from tests.faults.trials import of_families


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
    """Return the first divergence in the layers; None if they have none."""
    first = trial.verdicts[0].first
    return first and first.row.probe


def scored(root, faults):
    """Yield each fault, its runtime, and where values and sketches see it first."""
    with Stand(root, isolate=False) as whole, SketchStand(root, isolate=False) as brief:
        for fault, backend in faults:
            one, two = (plant(stand, fault, backend) for stand in (whole, brief))
            yield fault.name, backend, first_of(one), first_of(two)


def main():
    """Print each fault, and the score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=Path, help="keep what is exported here")
    parser.add_argument("--first", type=int, help="only so many")
    asked = parser.parse_args()
    faults = [one.values for one in of_families("operator")][: asked.first]
    same = total = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, backend, one, two in scored(asked.store or Path(scratch), faults):
            print(f"{name:30} {backend:12} {two}, by whole values {one}", flush=True)
            # Where nothing ran, or no layer is wrong, there is nothing to localise.
            total += one is not None or two is not None
            same += one is not None and one == two
    print(f"{same} of {total} faults have the same first divergence")


if __name__ == "__main__":
    from tests.faults import sketches  # worker processes find its classes by this name

    sketches.main()
