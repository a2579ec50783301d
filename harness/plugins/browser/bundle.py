"""Write the page of a bundle, which makes its calls in any browser."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.core.case import Device
from harness.plugins.browser import serve
from harness.plugins.browser.package import Package, build_of, package_of
from harness.plugins.browser.server import PAGE
from harness.plugins.browser.targets import WEBGPU
from harness.runtimes.graph.onnx_graph import names_of_nodes
from harness.runtimes.onnxruntime import RUNTIME

_MODULES: Final = ("bundle.mjs", "driver.mjs", "npz.mjs")
_SCRIPTS: Final = (".mjs", ".js")
_NAMED: Final = re.compile(r"[\w.-]+\.(?:mjs|wasm|js)(?![\w.])")

_README: Final = f"""\
{{case}}: run `python serve.py` here.
Then open http://localhost:{serve.PORT}/ in a browser.

For an Android phone at a cable, run `adb reverse tcp:{serve.PORT} tcp:{serve.PORT}`.
Then open that address in the phone's browser: WebGPU needs localhost or https.

The page leaves trace.npz; `parity judge trace.npz` beside the suite then judges that
browser, and `--name` gives it another name.
"""


def write_page(case: str, device: Device, folder: Path) -> None:
    """Write what a browser needs to make the calls of the bundle in a folder.

    Raises:
        StageError: There is no onnxruntime-web, or it lacks the device.

    """
    target = device.target
    assert target is not None  # noqa: S101  # the kind of a target asks for this
    package = package_of(dict(target.settings).get("package", ""), target.version)
    build = build_of(package, device.device)
    for name, files in (
        ("page", (PAGE / name for name in _MODULES)),
        ("ort", _loaded(package, build)),
    ):
        folder.joinpath(name).mkdir()
        for file in files:
            shutil.copyfile(file, folder / name / file.name)
    shutil.copyfile(PAGE / "bundle.html", folder / "index.html")
    shutil.copyfile(serve.__file__, folder / "serve.py")
    said: dict[str, Any] = {
        "version": package.version,
        "build": build,
        "nodes": _nodes(folder) if device.device == WEBGPU else {},
    }
    folder.joinpath("browser.json").write_bytes(msgspec.json.encode(said))
    readme = _README.format(case=case)
    folder.joinpath("README.md").write_text(readme, encoding="utf-8")


def _loaded(package: Package, build: str) -> Iterator[Path]:
    """Yield a build's module, and the files that it loads: each is named in another."""
    names = [build]
    for name in names:
        path = package.dist / name
        yield path
        if path.suffix in _SCRIPTS:
            there = _NAMED.findall(path.read_text(encoding="utf-8"))
            names += sorted(
                one
                for one in {*there} - {*names}
                if package.dist.joinpath(one).is_file()
            )


def _nodes(folder: Path) -> dict[str, dict[str, list[str]]]:
    """Return, by the folder of each file, the nodes by which a page counts.

    `harness.runtimes.onnxruntime.providers.Placement` says which nodes count.
    """
    found = {}
    for path in sorted(folder.glob(f"model-*/{RUNTIME.model}")):
        exact, known = names_of_nodes(path)
        found[path.parent.name] = {"exact": sorted(exact), "known": sorted(known)}
    return found
