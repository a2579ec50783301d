"""Make one healthy file of each format, by the commands that write them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.engine.store import Store
from harness.plugins.card.form import digest, load_card
from tests.places import EXPORTED
from tests.plugin.project import write_project

CASE = "vae_decoder/onnxruntime/fp32"
GAPS = """\
[[gap]]
case = "vae_decoder/mnn/fp32/layers"
outcome = "exceeds"
why = "the converter fuses it"
issue = "31"
until = 2027-01-01
who = "B. Owner"
"""


@dataclass(frozen=True)
class Healthy:
    """The folder of all healthy files."""

    home: Path

    @property
    def project(self) -> Path:
        """A suite, its checkpoint, a run of it and its baseline."""
        return self.home / "project"

    @property
    def report(self) -> Path:
        """The record of the run."""
        (path,) = (self.project / "reports" / "runs").glob("*/report.json")
        return path

    def file(self, name: str) -> Path:
        """A file or folder of that name."""
        return self.home / name


def make(home: Path) -> Healthy:
    """Return the healthy files in a folder; make them where they are not there."""
    done = home / "done"
    made = Healthy(home)
    if done.exists():
        return made
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    project = write_project(made.project)
    project.parity("run").check(0)
    project.accept().check(0)
    project.parity("bundle", CASE, "--out", str(home / "bundle")).check(0)
    subprocess.run(
        [sys.executable, "-I", "run.py", "--name", "box", "--out", "../trace.npz"],
        cwd=home / "bundle",
        check=True,
        capture_output=True,
    )
    project.parity("card", "--out", str(home / "card")).check(0)
    _ship(home)
    _store(home)
    _files(home)
    # It would be stale; only the reader of such files reads it.
    (home / "known_gaps.toml").write_text(GAPS)
    done.touch()
    return made


def _ship(home: Path) -> None:
    """The deployed files of the card, as a receiver has them."""
    card, _ = load_card(home / "card")
    wanted = {file.sha256: file for case in card.cases for file in case.files}
    sizes = {file.size_bytes for file in wanted.values()}
    (home / "ship").mkdir()
    for path in Store().root.rglob("v1/*/*/*/*"):
        if path.is_file() and path.stat().st_size in sizes:
            name = digest(path)
            if name in wanted:
                shutil.copy(path, home / "ship" / f"{name[:8]}{path.suffix}")


def _store(home: Path) -> None:
    """A store of a few small entries, with one that is large enough to be linked."""
    store = Store(root=home / "store")
    for size in (10, 100, 100_000):

        def build(folder: Path, size: int = size) -> dict[str, object]:
            (folder / "values.bin").write_bytes(bytes(size))
            (folder / "names.json").write_text(json.dumps(["a", "b"]))
            return {"values": size}

        store.make("floors", {"kind": "fp32", "size": size}, build)


def _files(home: Path) -> None:
    """Models as others send them: ONNX, MNN, safetensors, a LoRA."""
    models = home / "models"
    models.mkdir()
    for path in (home / "ship").iterdir():
        if path.suffix == ".mnn":
            shutil.copy(path, models / "model.mnn")
        if path.suffix == ".onnx":
            shutil.copy(path, models / "model.onnx")
    shutil.copy(EXPORTED / "txtai" / "default.onnx", models / "text.onnx")
    scripts = EXPORTED / "mnn_scripts"
    shutil.copy(scripts / "vae_decoder.mnn", models / "external.mnn")
    shutil.copy(scripts / "vae_decoder.mnn.weight", models / "external.mnn.weight")
    shutil.copy(scripts / "vae_decoder" / "model.onnx", models / "external.onnx")
    weights = scripts / "vae_decoder" / "model.onnx.data"
    shutil.copy(weights, models / "external.onnx.data")
