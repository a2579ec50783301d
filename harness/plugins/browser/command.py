"""`parity target make browser`: what a browser needs to run ONNX Runtime's files."""

from __future__ import annotations

import click

from harness.core.shown import echo


@click.command()
@click.option(
    "--version",
    default="",
    help="The version of onnxruntime-web; the default is the tested one.",
)
@click.option(
    "--browser",
    "program",
    default="",
    help="A browser that is made of Chromium; the default is the first one on PATH.",
)
def browser(version: str, program: str) -> int:
    """Make a target of a browser: npm brings onnxruntime-web, and a page is opened.

    It says which WebGPU adapters the browser has, and prints the table for parity.toml.
    """
    from harness.plugins.browser.chromium import browser_at, version_of
    from harness.plugins.browser.driving import adapter_of
    from harness.plugins.browser.package import NAME, package_of
    from harness.plugins.browser.targets import SOFTWARE, TESTED

    at = browser_at(program)
    echo(f"  {at}: {version_of(at)}")
    package = package_of("", version or TESTED)
    echo(f"  {NAME} {package.version}")
    devices, lines = ["wasm"], []
    found = adapter_of(at, software=False)
    adapter = found or adapter_of(at, software=True)
    if adapter:
        devices.append("webgpu")
        echo(f"  WebGPU adapter: {adapter}")
        if not found:
            lines.append(f'adapter = "{SOFTWARE}"')
    else:
        echo("  WebGPU adapter: none, so the table has WebAssembly alone")
    if program:
        lines.append(f'browser = "{at}"')
    if version and version != TESTED:
        lines.append(f'versions = ["{version}"]')
    echo("next  put this into parity.toml, and the name into `targets`:")
    echo()
    echo("[target.browser]")
    echo('kind = "browser"')
    listed = ", ".join(f'"{one}"' for one in devices)
    echo(f"device = [{listed}]")
    for line in lines:
        echo(line)
    return 0
