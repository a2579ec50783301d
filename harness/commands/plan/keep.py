"""Keep a plan: the converter's file, the suite's tables, and a record to explain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from msgspec import structs

from harness.commands.plan.place import PlanSubject
from harness.commands.plan.run import Found
from harness.commands.tune.toml_edit import TableChange, changed, inline, text_of
from harness.core.errors import ParityError, SuiteError
from harness.core.text import few
from harness.core.whole_file import write_whole
from harness.judge.policy import Policy
from harness.judge.tolerance import GROUPS, TIERS, Tolerance
from harness.suite.suite import Suite

_LOOSEST = "quantized"


def write(suite: Suite, found: Found, file: str, loosest: str) -> tuple[Path, ...]:
    """Write the plan beside the suite, and a variant that uses it.

    Args:
        suite: The suite.
        found: The plan.
        file: Name of the converter's file.
        loosest: Name of the variant whose tolerances the other checks begin with.

    Returns:
        The written files.

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
        change = TableChange(path=header[1:], values=_bounds(found, loosest))
        texts[tolerances] = changed(tolerances, [change])
    before = {path: text_of(path) for path in texts}
    written: list[Path] = []
    for path, text in texts.items():
        try:
            write_whole(path, text)
            written.append(path)
        except OSError as error:
            for done in written:
                if before[done]:
                    write_whole(done, before[done])
                else:
                    done.unlink()
            msg = f"{path} cannot be written ({error.strerror}); nothing changed."
            raise ParityError(msg) from error
    return tuple(texts)


def _bounds(found: Found, loosest: str) -> dict[str, Any]:
    """Return the tolerances of the new variant: the plan's bound, and loose others."""
    place = found.place
    own = place.case.subject if place.drawing is None else place.drawing.subject
    stated: dict[str, Any] = {}
    for group in GROUPS:
        asked = group == place.what
        if asked and place.bound is not None:
            stated[group] = _said(place.bound, group)
            continue
        variant = place.origin if asked else loosest
        stated[group] = _said(
            _tolerance(place.policy, own if asked else "", place, variant, group), group
        )
    stated["why"] = f"the bound of a plan by `parity plan`, of {place.what}"
    return stated


def _tolerance(
    policy: Policy, component: str, place: PlanSubject, variant: str, group: str
) -> Tolerance:
    try:
        return policy.for_probe(
            component=component,
            backend=place.case.backend,
            variant=variant,
            group=group,
            probe="",
        ).tolerance
    except SuiteError:  # the suite has no such check yet
        return TIERS[_LOOSEST][group]


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
    """Return what `parity plan --explain` reads."""
    layers = [
        {
            "names": layer.names,
            "modules": layer.modules,
            "bits": bits,
            "bytes": layer.costs[bits],
            "costs": layer.costs,
            "seconds": layer.seconds,
            "shares": {number: layer.share(number) for number in layer.errors},
        }
        for layer, bits in zip(found.layers, found.bits, strict=True)
    ]
    return {
        "component": found.place.case.subject,
        "backend": found.variant.backend,
        "variant": found.variant.name,
        "within": within,
        "layers": layers,
    }


def save_record(found: Found, within: str, path: Path) -> None:
    """Write the record of a plan.

    Raises:
        ParityError: The file cannot be written.

    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(record_of(found, within), indent=1))
    except OSError as error:
        msg = f"{path} cannot be written ({error.strerror})."
        raise ParityError(msg) from error


def load_record(into: Path, name: str, backend: str) -> dict[str, Any]:
    """Read the record of a plan.

    Args:
        into: The folder that plans are recorded in.
        name: Name of the component and of the variant, ``unet-planned``.
        backend: The runtime; empty for that of the newest plan.

    Raises:
        ParityError: There is no plan, or its record cannot be read.

    """
    place = f"{backend or '*'}/{name}.json"
    try:
        path = max(into.glob(place), key=lambda one: one.stat().st_mtime)
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = (
            f"there is no plan at {into / place} that can be read; `parity plan "
            "COMPONENT --within outputs` makes one."
        )
        raise ParityError(msg) from error
    return found


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
