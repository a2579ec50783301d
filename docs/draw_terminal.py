"""Draw docs/terminal.svg: what a terminal shows of a run that fails, and says where.

    pip install rich && python docs/draw_terminal.py

The run is of fixtures/digits' text encoder, without the known gap by which what MNN's
fusion gets wrong would pass. It is run twice, and drawn the second time, when nothing
is left to export.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
DIGITS = HERE.parent / "fixtures" / "digits"
COMMAND = ("run", "text_encoder", "--suite", "fixtures/digits")
WIDTH = 112


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


def main() -> None:
    """Run, and draw."""
    with TemporaryDirectory() as folder:
        suite = Path(folder) / "fixtures" / "digits"
        shutil.copytree(DIGITS, suite, ignore=shutil.ignore_patterns("known_gaps.toml"))
        words = [sys.executable, "-m", "harness", *COMMAND]
        on_a_terminal(words, folder)
        said = on_a_terminal(words, folder)
    shown = Console(record=True, width=WIDTH, file=StringIO())
    shown.print(Text(f"$ parity {' '.join(COMMAND)}", style="bold"))
    shown.print(Text.from_ansi(said.strip("\n")))
    shown.save_svg(str(HERE / "terminal.svg"), title="parity")


if __name__ == "__main__":
    main()
