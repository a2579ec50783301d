"""``[target.NAME]`` of the kind ``browser``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, field

from harness.core.case import Case, Device, Target
from harness.core.toml_schema import WORDS, Word, one_of
from harness.runtimes.onnxruntime.providers import FORCED, kept_on_cpu
from harness.suite.places import ReproScript, TargetKind
from harness.suite.schema import ProviderOption, TargetTable
from harness.suite.tables import path_beside

if TYPE_CHECKING:
    from harness.plugins.explain.setting_changes import SettingChange

KIND: Final = "browser"
WASM: Final = "wasm"
WEBGPU: Final = "webgpu"
SOFTWARE: Final = "swiftshader"
"""The adapter that Chromium brings along, which computes on the processor."""

TESTED: Final = "1.30.0"
"""The version of onnxruntime-web that a suite gets if it names none."""

LAYOUT: Final = "preferredLayout"
NCHW, NHWC = "NCHW", "NHWC"
"""The option of WebGPU for the order of a picture's axes; the default is `NHWC`."""

_KEPT: Final = 32
"""The largest number of nodes that are kept off WebGPU at once."""

Words = Annotated[tuple[str, ...], WORDS]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class BrowserTable(TargetTable, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A browser in which onnxruntime-web runs the files of ONNX Runtime.

    Attributes:
        device: ``wasm`` for the processor, ``webgpu`` for the graphics card, or a list
            of both. Each makes cases of its own.
        browser: Program of a browser that is made of Chromium; the default is the first
            one on PATH.
        adapter: ``default`` for the WebGPU adapter that the browser chooses, or
            ``swiftshader`` for the one in software that needs no graphics card.
        versions: Versions of onnxruntime-web from npm. If there are several, each makes
            cases of its own.
        package: Folder of an onnxruntime-web of your own, which has ``package.json``
            and ``dist``. It takes the place of the versions.
        provider_options: Options of the provider of ``webgpu``, such as
            ``preferredLayout``.
        cpu_nodes: Largest share of the nodes that may run in WebAssembly where the
            device is ``webgpu``. Nodes of whole numbers alone do not count, and nor do
            those that the option ``forceCpuNodeNames`` names, each on a line.

    """

    device: str | Words = WASM
    browser: Word = ""
    adapter: Annotated[str, one_of(("default", SOFTWARE))] = "default"
    versions: Words = (TESTED,)
    package: Word = ""
    provider_options: dict[str, ProviderOption] = field(default_factory=dict)
    cpu_nodes: Share = 0.0


def targets(name: str, table: BrowserTable) -> Iterator[Target]:
    """Yield a target for each device and version."""
    devices = (table.device,) if isinstance(table.device, str) else table.device
    table.check_options("device", (WASM, WEBGPU))
    named = {
        key: str(path_beside(table, key, value)) if "/" in value else value
        for key in ("browser", "package")
        if (value := getattr(table, key))
    }
    versions = ("",) if table.package else table.versions
    for device, version in product(devices, versions):
        words = [name, device, *([version] if len(versions) > 1 else [])]
        on_gpu = device == WEBGPU
        own = {
            "device": device,
            "provider_options": tuple(sorted(table.provider_options.items()))
            if on_gpu
            else (),
            "cpu_nodes": table.cpu_nodes if on_gpu else 0.0,
        }
        yield Target(
            name="-".join(words),
            kind=KIND,
            table=name,
            version=version,
            settings=tuple(sorted({**named, "adapter": table.adapter}.items())),
            device=tuple(own.items()),
        )


def bundle(case: str, device: Device, folder: Path) -> None:
    """Write the page of a bundle, as `TargetKind` says."""
    from harness.plugins.browser.bundle import write_page

    write_page(case, device, folder)


def repro(device: Device) -> ReproScript:
    """Return the script of a repro, as `TargetKind` says."""
    from harness.plugins.browser.repro import script_of

    return script_of(device)


def versions(target: Target) -> dict[str, Target]:
    """Return a target with each version of onnxruntime-web that npm has, in order.

    Raises:
        StageError: npm is not there, or it does not answer.

    """
    from harness.plugins.browser.package import available

    name = f"{target.table}-{dict(target.device)['device']}"
    # A folder of the suite's own would take the place of each version.
    settings = tuple(pair for pair in target.settings if pair[0] != "package")
    return {
        one: replace(target, name=f"{name}-{one}", version=one, settings=settings)
        for one in available()
    }


def changes(case: Case, nodes: Sequence[str]) -> Iterator[SettingChange]:
    """Yield what may be changed of a case in WebGPU: layout, nodes, the device."""
    from harness.plugins.explain.setting_changes import SettingChange

    device, target = case.device, case.device.target
    if target is None or device.device != WEBGPU:
        return
    options = dict(device.provider_options)
    now, other = (NCHW, NHWC) if options.get(LAYOUT) == NCHW else (NHWC, NCHW)
    tried = [(LAYOUT, other, f"kernels for the layout {now}")]
    before = kept_on_cpu(device)
    if kept := [one for one in nodes if one not in before][:_KEPT]:
        cause = f"WebGPU's kernels of {', '.join(kept)}"
        tried.append((FORCED, "\n".join((*before, *kept)), cause))
    for name, value, cause in tried:
        changed = tuple(sorted({**options, name: value}.items()))
        yield SettingChange(
            name=f"{name} = {json.dumps(value)}",
            cause=cause,
            part="device",
            fields={"provider_options": changed},
        )
    wasm = {"device": WASM, "provider_options": (), "cpu_nodes": 0.0}
    place = replace(
        target,
        name=target.name.replace(f"-{WEBGPU}", f"-{WASM}", 1),
        device=tuple(wasm.items()),
    )
    yield SettingChange(
        name=f'device = "{WASM}"',
        cause=f"arithmetic of {WEBGPU}",
        part="device",
        fields={**wasm, "target": place},
        lines={"device": [WEBGPU, WASM]},
    )


BROWSER = TargetKind(
    kind=KIND,
    table=BrowserTable,
    targets=targets,
    bundle=bundle,
    repro=repro,
    versions=versions,
    changes=changes,
)
