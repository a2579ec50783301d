"""Draw what a terminal shows of two runs that fail.

    pip install rich && python docs/draw_terminal.py
    parity target make arm64 && python docs/draw_terminal.py targets

The first run is of fixtures/digits' text encoder, without the known gap by which what
MNN's fusion gets wrong would pass. The second one is of its VAE decoder on this
machine, on an emulated ARM processor, and in another version of MNN. Each is run twice
and drawn the second time, when nothing is left to export.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

from harness.engine.run import open_store

HERE = Path(__file__).parent
DIGITS = HERE.parent / "fixtures" / "digits"
WIDTH = 112
PHONE = "targets/arm64/cortex-a76"
"""Where `parity target make` puts the emulated processor, in the store."""

SUITE = """
components = ["vae_decoder"]
[source]
checkpoint = "{checkpoint}"
[export]
exporter = "dynamo"
dynamic_axes = ["batch"]
[[shapes]]
batch = 1
height = 16
width = 16
[inputs]
profiles = ["realistic"]
realistic = 1
seed = 0
[target.phone]
command = ["{phone}"]
[backend.mnn]
variants = ["fp32"]
targets = ["here", "phone"]
precision = ["high", "low"]
versions = ["3.4.1"]
hints = {{ winograd_memory_level = 0 }}
[component.vae_decoder]
variants = ["fp32", "fp32@phone", "fp32@phone-low", "fp32@3.4.1"]
"""

TOLERANCES = """
[mnn.fp32]
outputs = "standard"
layers = "standard"
"""


def on_a_terminal(words: list[str], folder: str) -> str:
    """Return what a command writes to a terminal that cannot move its cursor."""
    ours, theirs = pty.openpty()
    calm = {"TERM": "dumb", "COLUMNS": str(WIDTH), "PARITY_STORE": f"{folder}/store"}
    child = subprocess.Popen(
        words, cwd=folder, env=os.environ | calm, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # how Linux says that nobody writes there any more
            break
        if not more:
            break
        said += more
    child.wait()
    return said.decode().replace("\r\n", "\n")


def failing(folder: Path) -> tuple[str, ...]:
    """Write digits without its known gaps, and return the command that runs it."""
    suite = folder / "fixtures" / "digits"
    shutil.copytree(DIGITS, suite, ignore=shutil.ignore_patterns("known_gaps.toml"))
    return ("run", "text_encoder", "--suite", "fixtures/digits")


def elsewhere(folder: Path) -> tuple[str, ...]:
    """Write a suite of three places, and return the command that runs it."""
    (folder / "parity.toml").write_text(
        SUITE.format(checkpoint=DIGITS, phone=open_store("").root / PHONE)
    )
    (folder / "tolerances.toml").write_text(TOLERANCES)
    return ("run",)


def draw(written: Callable[[Path], tuple[str, ...]], name: str) -> None:
    """Run what `written` returns in a new folder, twice, and draw the second run."""
    with TemporaryDirectory() as folder:
        command = written(Path(folder))
        words = [sys.executable, "-m", "harness", *command]
        on_a_terminal(words, folder)
        said = on_a_terminal(words, folder)
    shown = Console(record=True, width=WIDTH, file=StringIO())
    shown.print(Text(f"$ parity {' '.join(command)}", style="bold"))
    shown.print(Text.from_ansi(said.strip("\n")))
    shown.save_svg(str(HERE / name), title="parity")


if __name__ == "__main__":
    if "targets" in sys.argv:
        draw(elsewhere, "targets.svg")
    else:
        draw(failing, "terminal.svg")
