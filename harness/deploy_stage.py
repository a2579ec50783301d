"""Stage that makes a variant's deployed file from an exported graph.

Runs in a child process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from harness import export_files
from harness.contract import breach
from harness.convert import convert_mnn
from harness.entry import Entry
from harness.errors import StageError
from harness.isolate import report_progress
from harness.keys import variant_key
from harness.names import Names, as_named
from harness.outcome import Outcome
from harness.probes import load_probes
from harness.spec import Component, Variant
from harness.store import Store
from harness.taken.files import check_whole


def deploy(
    root: Path,
    component: Component,
    variant: Variant,
    onnx: Entry,
    native: str | None,
) -> float:
    """Make the file if it is missing and return the seconds that took.

    Raises:
        StageError: The graph's weights are not all there, or the converter or the
            transformation failed.

    """

    def build(folder: Path) -> Mapping[str, object]:
        report_progress(
            "converting", component.name, f"{variant.backend} {variant.name}"
        )
        source = onnx.file(export_files.MODEL)
        check_whole(source, "onnx", component.name)
        names = Names.load(onnx.path)
        promises = component
        if names:
            names.save(folder)
            promises = as_named(component, names)
        if variant.backend == "mnn":
            try:
                return convert_mnn(
                    source,
                    variant.kind,
                    variant.flags,
                    folder,
                    component=promises,
                    probes=load_probes(onnx.file(export_files.PROBES)),
                    native=native,
                )
            except StageError as error:
                raise _with_unread(error, onnx, names) from error
        from harness.graph import sides_of
        from harness.transform import transform_onnx

        transform_onnx(source, variant.kind, folder, variant.flags)
        sides = sides_of(folder / export_files.MODEL)
        where = f"the graph made {variant.kind}"
        if words := breach(promises, None, sides, where=where):
            raise StageError(words, outcome=Outcome.CONVERT)
        return {}

    start = time.perf_counter()
    Store(root=root).make(variant.backend, variant_key(onnx, variant, native), build)
    return time.perf_counter() - start


def _with_unread(error: StageError, onnx: Entry, names: Names | None) -> StageError:
    """Add what the exported graph has no use for: the converter drops it."""
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
