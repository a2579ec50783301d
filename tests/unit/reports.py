"""Records made by hand, in the form in which the engine makes them."""

from dataclasses import replace

import numpy as np
from msgspec import structs

from harness.core.record import LAYERS, OUTPUTS, READ, CaseRecord, Failure, Row
from harness.judge.policy import Policy
from harness.measure.compare import compare

CASE = "unet/mnn/fp32"
COVERAGE = {"computing": 10, "aligned": 10, "fused": 0, "unmatched": 0, "missing": []}


def policy_of(folder, text):
    """The policy that a text of tolerances.toml is."""
    path = folder / "tolerances.toml"
    path.write_text(text, encoding="utf-8")
    return Policy.load(path)


def row(probe, floors, *, parents=(), what=LAYERS, position=0, sample="s-0", **about):
    """A comparison that is so many noise floors off."""
    expected = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(2, 8)
    error = np.full(expected.shape, floors * 1e-3)
    return Row(
        sample=sample,
        what=what,
        probe=probe,
        position=position,
        op="output" if what == OUTPUTS else "aten.conv2d.default",
        module=about.get("module", "" if what == OUTPUTS else f"net.{probe}"),
        source="" if what == OUTPUTS else "net.py:7",
        parents=tuple(parents),
        comparison=compare(expected=expected, actual=expected + error, floor_rms=1e-3),
    )


def without_floor(one):
    """Return a row of a file that is its own reference: it has no noise floor."""
    none = structs.replace(one.comparison, floor_rms=None, floor_multiple=None)
    return replace(one, comparison=none)


def chain(*errors, sample="s-0"):
    """Layers, each made from the one before."""
    return tuple(
        row(
            f"v{at}",
            floors,
            parents=(f"v{at - 1}",) if at else (),
            position=at,
            sample=sample,
        )
        for at, floors in enumerate(errors)
    )


def output(floors, **about):
    return row("sample", floors, what=OUTPUTS, position=1000, **about)


def twice(what, whole, read):
    """A value that is `whole` floors off, and what is read of it, `read` floors."""
    one = row("v", whole, what=what)
    return one, replace(row("v", read, what=what), what=READ[what])


def record(*rows, case=CASE, failure=None, **about):
    component, backend, variant = case.split("/")
    return CaseRecord(
        case=case,
        component=component,
        backend=backend,
        variant=variant,
        rows=rows,
        asked={"device": "cpu"},
        failure=None if failure is None else Failure(**failure),
        **{"coverage": COVERAGE, **about},
    )
