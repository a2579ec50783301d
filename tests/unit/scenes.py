"""Finished runs of every kind that reports word, made by hand."""

from dataclasses import replace
from typing import Any

import numpy as np

from harness.core.outcome import Outcome
from harness.core.record import ISOLATED, OUTPUTS
from harness.judge.known_gaps import Gap
from harness.measure.compare import compare
from harness.report.explained import Explained, measured_by
from tests.unit.found import found_in
from tests.unit.reports import CASE, chain, output, record, row

RAN = {
    "backend": "mnn",
    "version": "3.6.1",
    "device": "cpu",
    "threads": 1,
    "precision": "high",
}


def good(case=CASE, **about):
    return record(*chain(1, 2), output(2), case=case, ran=RAN, **about)


def bad(case=CASE, floors=411.0, **about):
    return record(*chain(1, 3, floors, 90), output(61), case=case, ran=RAN, **about)


def failed(case=CASE, message="it died", log="", outcome="crashed"):
    failure = {"outcome": outcome, "message": message, "log": log}
    return record(case=case, failure=failure, coverage=None)


def alone(rows, *floors):
    """The local error of each value's operator, on the reference's own inputs."""
    return [
        replace(each, what=ISOLATED, comparison=row(each.probe, own).comparison)
        for each, own in zip(rows, floors, strict=True)
    ]


def _isolated():
    rows = chain(1, 40, 90)
    return record(*rows, *alone(rows, 1, 40, 80), output(2), ran=RAN)


def _between():
    first, second = chain(1, 40)
    second = replace(second, op="Linear", between=True)
    return record(first, second, replace(second, what=ISOLATED), output(2), ran=RAN)


def _nan():
    rows = list(chain(1, 2))
    expected = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(2, 8)
    actual = expected.copy()
    actual[1, 3] = np.nan
    broken = compare(expected=expected, actual=actual, floor_rms=1e-3)
    rows[1] = replace(rows[1], comparison=broken)
    own = [alone(rows[:1], 1)[0], replace(rows[1], what=ISOLATED)]
    return record(*rows, *own, output(2), ran=RAN)


def _batch_item():
    expected = np.ones((2, 8))
    actual = expected.copy()
    actual[1] += 1.0
    wrong = compare(expected=expected, actual=actual, floor_rms=1e-3)
    return record(replace(row("v0", 1), comparison=wrong), output(1))


def _explained():
    one = bad()
    known = Explained(
        suite=one.suite,
        case=one.case,
        measured=measured_by(one),
        first="v2",
        command=f"parity explain {one.case}",
        facts=(("fixed by", "flag = 0   412 → 3 floors"), ("", "size the same")),
        toml="flag = 0",
    )
    return [one], {"explained": {one.key: known}, "exit_code": 1}


def _drawn():
    picture = row("picture.0", 90.0, what="image", module="a seven")
    about: Any = {"roles": {"unet": CASE}, "pictures": [], "attribution": None}
    return record(picture, case="text2img/mnn/fp32", pipeline=about, coverage=None)


_GONE = failed(message="mnn is not installed", outcome="unavailable")
_KNOWN = Gap(case="unet/*", outcome=Outcome.EXCEEDS, why="tanh form of GELU")
_COUNTS = {"computing": 10, "aligned": 9, "fused": 1, "unmatched": 0}

SCENES: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "agrees": ([good(), good("vae/mnn/fp32")], {}),
    "diverges": ([good("vae/mnn/fp32"), bad()], {"exit_code": 1}),
    "local error": ([_isolated()], {"exit_code": 1}),
    "output alone": ([record(*chain(1, 2), output(61))], {"exit_code": 1}),
    "many": ([bad(f"c{n}/mnn/fp32", 20 + n) for n in range(9)], {"exit_code": 1}),
    "between": ([_between()], {"exit_code": 1}),
    "not finite": ([_nan()], {"exit_code": 1}),
    "batch item": ([_batch_item()], {"exit_code": 1}),
    "explained": _explained(),
    "no layers": ([record(output(1))], {"exit_code": 2}),
    "outputs only": ([record(output(61))], {"whats": (OUTPUTS,), "exit_code": 1}),
    "missing": ([_GONE], {}),
    "required": ([_GONE], {"required": ("mnn",), "exit_code": 2}),
    "three ways": ([good(f"unet/mnn/{n}") for n in ("fp32", "fused", "int8")], {}),
    "lossy": ([bad("unet/mnn/int8-weights"), bad()], {"exit_code": 1}),
    "crashed": (
        [
            *(failed(f"{n}/mnn/fp32", f"{n}/mnn/fp32: no IsNaN") for n in "abc"),
            failed("d/mnn/fp32", log="one\ntwo\nit died\n"),
        ],
        {"exit_code": 2},
    ),
    "skipped": (
        [good(), failed("unet/openvino/fp32", "not installed", "", "unavailable")],
        {},
    ),
    "known gap": ([bad(), good("vae/mnn/fp32")], {"gaps": [_KNOWN]}),
    "stale": ([good()], {"gaps": [_KNOWN], "stale": ["no such gap"], "exit_code": 1}),
    "drawn weights": ([good(stand_ins=("weights",), too_large=("batch 9",))], {}),
    "coverage": ([good(coverage={**_COUNTS, "missing": ["gelu_3"]})], {}),
    "nodes": ([good(node="host a"), good("vae/mnn/fp32", node="host b")], {}),
    "picture": ([_drawn()], {"whats": ("image",), "exit_code": 1}),
    "nothing": ([], {}),
}
"""Name of a run to its records and to what `found_in` takes beside them."""


def scene(name, folder):
    """A run of `SCENES`, in a folder."""
    records, about = SCENES[name]
    return found_in(folder, records, **about)
