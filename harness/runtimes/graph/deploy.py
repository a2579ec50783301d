"""The stage that makes a variant's deployed file from an exported graph.

It runs in a child process.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from harness.core.case import Component, Variant
from harness.core.entry import Entry, check_artifact
from harness.core.errors import StageError
from harness.core.probes import load_probes
from harness.core.runtime import runtime
from harness.engine import export_files
from harness.engine.host import report_progress
from harness.engine.keys import Native
from harness.measure.name_map import Names, as_named
from harness.measure.trace import load_inputs
from harness.runtimes.renamed import fed


def deploy(  # noqa: PLR0917  # a worker's arguments have no names
    folder: Path,
    component: Component,
    variant: Variant,
    onnx: Entry,
    native: Native,
    calibration: Sequence[Entry],
) -> Mapping[str, object]:
    """Write the file of a variant to a folder, and return the converter's notes.

    A `native` converter replaces the one that the runtime has. `calibration` are drawn
    inputs, for a variant that is calibrated.

    Raises:
        StageError: The graph was changed, or the converter or the transformation
            failed.

    """
    report_progress("converting", component.name, f"{variant.backend} {variant.name}")
    # A foreign file may be the user's own, by a link, and be written over.
    check_artifact(onnx)
    source = onnx.file(export_files.MODEL)
    names = Names.load(onnx.path)
    promises = component
    if names:
        names.save(folder)
        promises = as_named(component, names)
    drawn = [load_inputs(entry, component) for entry in calibration]
    package = runtime(variant.backend).package
    converter: Any = importlib.import_module(f"{package}.convert")
    given: dict[str, Any] = {
        "component": promises,
        "probes": load_probes(onnx.file(export_files.PROBES)),
        "native": native.path,
        "calibration": [fed(names, one) for one in drawn] if names else drawn,
    }
    try:
        made = dict(converter.convert(source, variant, folder, **given))
    except StageError as error:
        raise _with_unread(error, onnx, names) from error
    if variant.flags:
        plain = replace(variant, flags=(), files=())
        # The flags may be there because the conversion fails without them.
        with TemporaryDirectory() as scratch, suppress(Exception):
            converter.convert(source, plain, Path(scratch), **given)
            content = getattr(converter, "content", Path.read_bytes)
            pairs = [(one, folder / one.name) for one in Path(scratch).iterdir()]
            if all(b.is_file() and content(a) == content(b) for a, b in pairs):
                made["no_effect"] = list(variant.flags)
    return made


def _with_unread(error: StageError, onnx: Entry, names: Names | None) -> StageError:
    """Add the inputs that the exported graph does not use: the converter drops them."""
    own = {fed.given: fed.name for fed in names.inputs} if names else {}
    given = [str(name) for name in cast("list[str]", onnx.meta.get("unread", []))]
    unread = [own.get(name, name) for name in given]
    if not any(repr(name) in str(error) for name in unread):
        return error
    words = (
        f"{error} In the exported graph no output depends on {', '.join(unread)}: "
        "either PyTorch ignores it too, and it should leave the recipe's inputs, or it "
        "became a constant while the network was traced."
    )
    return StageError(words, outcome=error.outcome, log=error.log)
