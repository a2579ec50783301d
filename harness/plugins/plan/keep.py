"""Keep a plan: the converter's file, the suite's tables, and a record to explain."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from statistics import fmean
from typing import Any

from msgspec import Struct, structs, to_builtins

from harness.core.errors import ParityError, SuiteError
from harness.core.received import DamagedError, read_json
from harness.core.record_form import Count, Finite, Name
from harness.core.rounding import FLOAT
from harness.core.text import few
from harness.core.whole_file import write_whole, writing
from harness.engine.run_folder import refuse_damaged
from harness.judge.tolerance import GROUPS, TIERS, Tolerance
from harness.plugins.plan.page import plan_page
from harness.plugins.plan.place import (
    JudgedFile,
    decibels,
    finite,
    moved_by,
)
from harness.plugins.plan.run import Found
from harness.plugins.plan.search import choose, price, summed
from harness.plugins.tune.toml_edit import (
    Edit,
    TableChange,
    changed,
    inline,
    text_of,
    write_all,
)
from harness.suite.suite import Suite

_MOST_BYTES = 64 << 20
"""Largest size of a record; a layer has a few hundred bytes."""
_LOOSEST = "quantized"
_BUDGETS = 16
"""Number of choices that the front has at most."""
_PART = 0.25
"""The least budget, as a share of the error of the most bits below float32."""


def write(suite: Suite, found: Found, file: str) -> tuple[Path, ...]:
    """Write the plan beside the suite, and a variant that uses it; return the files.

    `file` is the name of the converter's file.

    Raises:
        ParityError: A table cannot be changed, or a file cannot be written. Then the
            suite is as it was.

    """
    variant, place = found.variant, found.place
    values = {
        "from": variant.kind,
        "flags": list(variant.flags),
        "components": [place.case.subject],
    }
    table = ("variant", variant.backend, variant.name)
    texts = {suite.path.parent / file: found.text} if found.text else {}
    change = TableChange(path=table, values=values)
    texts[suite.path] = changed(suite.path, [change])
    header = ("", variant.backend, variant.name)
    if not any(scope.case == header for scope in place.policy.scopes):
        tolerances = suite.tolerances_path
        change = TableChange(path=header[1:], values=_bounds(found))
        texts[tolerances] = changed(tolerances, [change])
    write_all([Edit(path=p, old=text_of(p), new=text) for p, text in texts.items()])
    return tuple(texts)


def _bounds(found: Found) -> dict[str, Any]:
    """Return the tolerances of the new variant: the plan's bound, and loose others.

    The others are those of the built-in variant with the fewest bits.
    """
    place, backend = found.place, found.variant.backend
    origin, loosest = place.mixed.origin, [*place.mixed.variants][-1]
    stated: dict[str, Any] = {}
    for group in GROUPS:
        asked = group == place.what
        of = (place.subject, backend, origin) if asked else ("", backend, loosest)
        try:
            tolerance = place.policy.for_probe(of, group=group, probe="").tolerance
        except SuiteError:  # the suite has no such check yet
            tolerance = TIERS[_LOOSEST][group]
        bound = place.bound if asked else None
        stated[group] = _said(bound or tolerance, group)
    stated["why"] = f"the bound of a plan by `parity plan`, of {place.what}"
    return stated


def _said(tolerance: Tolerance, group: str) -> object:
    """Return a tolerance as a table states it: a tier by its name, or bounds."""
    for tier, groups in TIERS.items():
        if groups[group] == tolerance:
            return tier
    usual = Tolerance(rtol=0.0, atol=0.0)
    return inline(
        {
            name: bound
            for name, bound in structs.asdict(tolerance).items()
            if bound is not None and (name != "share" or bound != usual.share)
        }
    )


def record_of(found: Found, within: str) -> dict[str, Any]:
    """Return what `parity plan`, its option `--explain` and the page read."""
    place = found.place
    layers = [
        {
            "names": layer.names,
            "modules": layer.modules,
            "bits": bits,
            "bytes": layer.costs[bits],
            "costs": {str(number): cost for number, cost in layer.costs.items()},
            "seconds": {str(number): took for number, took in layer.seconds.items()},
            "shares": {str(number): layer.share(number) for number in layer.errors},
        }
        for layer, bits in zip(found.layers, found.bits, strict=True)
    ]
    files = {**found.uniform, found.variant.name: found.planned}
    return {
        "component": place.case.subject,
        "backend": found.variant.backend,
        "variant": found.variant.name,
        "within": within,
        "what": place.what,
        "pipeline": "" if place.drawing is None else place.drawing.subject,
        "files": [
            {"name": name, **_file(judged), **_time(found, name)}
            for name, judged in files.items()
        ],
        "unseen": {"count": found.unseen_count, **_file(found.unseen)},
        "front": _front(found),
        "additivity": found.additivity,
        "moved": moved_by(found.planned),
        "conversions": found.conversions,
        "took_s": round(found.took_s),
        "layers": layers,
    }


def _file(judged: JudgedFile) -> dict[str, Any]:
    """Return the size of a file and its worst value; `db` is its SQNR or PSNR."""
    row, verdict = judged.worst.row, judged.worst.verdict
    return {
        "size_bytes": judged.size_bytes,
        "usage": finite(verdict.usage),
        "passed": judged.passed,
        "reason": verdict.reason,
        "db": decibels(row),
    }


def _time(found: Found, name: str) -> dict[str, float]:
    """Return the median time of a run of a file, if the files were timed."""
    return {"time_ms": 1e3 * found.times.medians_s[name]} if found.times else {}


def _front(found: Found) -> list[dict[str, float]]:
    """Return size and foretold error of the choices for several budgets.

    The error is the root of the summed squared errors, as a share of the bound.
    """
    # The front is of bytes, also where the plan is to be fast.
    layers = [replace(layer, seconds={}) for layer in found.layers]
    measured = [layer for layer in layers if layer.errors]
    # From a part of what the most bits cost, to what the fewest do.
    low, high = (
        fmean(summed(measured, [pick({*one.errors} - {FLOAT}) for one in measured]))
        for pick in (max, min)
    )
    others = found.planned.size_bytes - int(price(layers, found.bits))
    steps = [at / (_BUDGETS - 1) for at in range(_BUDGETS)]
    budgets = [low * _PART * (high / (low * _PART)) ** step for step in steps]
    chosen = [choose(layers, budget) for budget in budgets] if low else []
    points = {
        others + int(price(layers, bits)): math.sqrt(max(summed(layers, bits)))
        for bits in chosen
    }
    return [
        {"size_bytes": size, "usage": usage} for size, usage in sorted(points.items())
    ]


def save_record(record: Mapping[str, Any], path: Path) -> tuple[Path, Path]:
    """Write the record of a plan, and its page beside it; return both paths.

    Raises:
        ParityError: A file cannot be written.

    """
    page = path.with_suffix(".html")
    with writing(path.parent, "give another with --into"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(record, indent=1))
        write_whole(page, plan_page(record))
    return path, page


class LayerForm(Struct):
    """A layer of a plan's record, as `record_of` writes it.

    `costs`, `seconds` and `shares` have a value for each number of bits.
    """

    names: tuple[Name, ...]
    modules: tuple[Name, ...]
    bits: Count
    bytes: Count
    costs: dict[Count, Finite]
    seconds: dict[Count, Finite]
    shares: dict[Count, Finite]

    def __post_init__(self) -> None:
        if not (self.names or self.modules):
            msg = "a layer has no name"
            raise DamagedError(msg)
        if self.bits not in self.costs or self.shares.keys() - self.costs.keys():
            msg = f"the layer {(*self.modules, *self.names)[0]!r} lacks a cost"
            raise DamagedError(msg)
        if self.seconds and self.bits not in self.seconds:
            msg = f"the layer {(*self.modules, *self.names)[0]!r} lacks a time"
            raise DamagedError(msg)


class PlanForm(Struct):
    """What ``parity plan --explain`` reads of a plan's record."""

    component: Name
    within: Name
    layers: list[LayerForm]


def load_record(into: Path, name: str, backend: str) -> dict[str, Any]:
    """Read the record of a plan, such as ``unet-planned``, below the folder `into`.

    An empty `backend` means that of the newest plan.

    Raises:
        ParityError: There is no plan, or its record cannot be read.

    """
    place = f"{backend or '*'}/{name}.json"
    try:
        path = max(into.glob(place), key=lambda one: one.stat().st_mtime)
    except (OSError, ValueError) as error:
        msg = (
            f"there is no plan at {into / place}; `parity plan "
            "COMPONENT --within outputs` makes one."
        )
        raise ParityError(msg) from error
    with refuse_damaged(path, "plan again"):
        return to_builtins(read_json(path, PlanForm, _MOST_BYTES), str_keys=True)


def layer_of(record: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the layer that a name means: a module's path, or an operator's name.

    Raises:
        ParityError: The plan has no such layer.

    """
    layers: dict[str, dict[str, Any]] = {
        one: layer
        for layer in record["layers"]
        for one in (*layer["names"], *layer["modules"])
    }
    if name not in layers:
        close = get_close_matches(name, layers, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"it has {few([*layers])}."
        msg = f"the plan of {record['component']} has no layer {name!r}; {hint}"
        raise ParityError(msg)
    return layers[name]
