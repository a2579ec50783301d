"""A tiny suite, the `parity` command, and what it ended in.

One real run makes every artifact; each test damages a copy.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from harness.core.digest import digest_value
from tests.plugin.project import called

PARITY = Path(sys.executable).with_name("parity")
COLOURS = re.compile(r"\x1b\[[0-9;]*[a-zA-Z]")
RUN_LIMIT_S = 300.0
BROKEN_INDENT = 5

VAE = {
    "_class_name": "AutoencoderKL",
    "act_fn": "silu",
    "block_out_channels": [8, 8],
    "down_block_types": ["DownEncoderBlock2D", "DownEncoderBlock2D"],
    "up_block_types": ["UpDecoderBlock2D", "UpDecoderBlock2D"],
    "in_channels": 3,
    "out_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 16,
    "scaling_factor": 0.18215,
}
CLIP = {
    "architectures": ["CLIPTextModel"],
    "model_type": "clip_text_model",
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "max_position_embeddings": 16,
    "vocab_size": 100,
    "bos_token_id": 98,
    "eos_token_id": 99,
    "pad_token_id": 99,
    "hidden_act": "quick_gelu",
}

SUITE = """\
components = {components}
[source]
{source}
[[shapes]]
{shapes}
[inputs]
profiles = ["realistic"]
realistic = 1
{backends}
[limits]
timeout_s = {timeout_s}
coverage = 0.5
jobs = 1
{more}
"""
BOTH = "[backend.onnxruntime]\n[backend.mnn]"
TOLERANCES = """\
[{backend}.fp32]
outputs = "standard"
layers = "relaxed"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How the command ended: exit code, and what it printed, without colours."""

    code: int
    said: str

    def sentence(self, *facts: str) -> str:
        """Return the one sentence that has all of the facts; there must be one."""
        found = [one for one in self._sentences() if all(fact in one for fact in facts)]
        assert len(found) == 1, f"{facts} stand in {found} of:\n{self.said}"
        return found[0]

    def _sentences(self) -> list[str]:
        """Return each line once; those that were broken to fit are joined again."""
        joined: list[str] = []
        before = -1
        for line in self.said.splitlines():
            indent = len(line) - len(line.lstrip())
            if indent == before >= BROKEN_INDENT:
                joined[-1] += f" {line.strip()}"
            # A stage's last words are quoted behind a bar; they are not ours.
            elif not line.lstrip().startswith("│"):
                joined.append(line.strip())
                before = indent
        return list(dict.fromkeys(joined))


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder with a suite, and a store beside it."""

    folder: Path
    checkpoint: Path
    env: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def runs(self) -> Path:
        return self.folder / "reports" / "runs"

    def write(
        self,
        *components: str,
        source: str = "",
        shapes: str = "batch = 1\nheight = 4\nwidth = 6",
        backends: str = BOTH,
        timeout_s: float = 200,
        more: str = "",
    ) -> None:
        """Write parity.toml and tolerances.toml."""
        text = SUITE.format(
            components=json.dumps(components),
            source=source
            or f"checkpoint = {json.dumps(str(self.checkpoint))}\nseed = 0",
            shapes=shapes,
            backends=backends,
            timeout_s=timeout_s,
            more=more,
        )
        (self.folder / "parity.toml").write_text(text, encoding="utf-8")
        text = "".join(
            TOLERANCES.format(backend=backend)
            for backend in ("onnxruntime", "mnn")
            if f"[backend.{backend}]" in backends
        )
        (self.folder / "tolerances.toml").write_text(text, encoding="utf-8")

    def import_from(self, folder: Path) -> None:
        """Let the command and its children import what lies in a folder."""
        path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.env["PYTHONPATH"] = os.pathsep.join(path)

    def write_recipe(self, name: str, text: str, settings: str = "") -> str:
        """Write a recipe of one's own; return the table of its component."""
        (self.folder / f"{name}_net.py").write_text(text, encoding="utf-8")
        self.import_from(self.folder)
        return f'[component.{name}]\nrecipe = "{name}_net"\n{settings}\n'

    def start(self, *arguments: str, wrap: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start `parity` with some arguments."""
        return subprocess.Popen(
            [*wrap, str(PARITY), *arguments],
            cwd=self.folder,
            env=os.environ
            | {"PARITY_STORE": str(self.store), "HF_HUB_OFFLINE": "1"}
            | self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(
        self, *arguments: str, wrap: Sequence[str] = (), command: str = "run"
    ) -> Ended:
        """Run `parity`, and hold it to what must be true however it ends.

        It is a process of its own only where it needs another environment.
        """
        before, words = self.reports(), (*command.split(), *arguments)
        if self.env or wrap:
            return self.ended(self.start(*words, wrap=wrap), before)
        with patch.dict(os.environ, {"PARITY_STORE": str(self.store)}):
            ended = called(self.folder, *words)
        return self.held(ended.code, ended.text, before)

    def ended(
        self, process: subprocess.Popen[str], before: Mapping[str, Any] | None = None
    ) -> Ended:
        """Wait for a command and hold it to what must be true however it ends."""
        said, _ = process.communicate(timeout=RUN_LIMIT_S)
        return self.held(process.returncode, said, before)

    def held(self, code: int, said: str, before: Mapping[str, Any] | None) -> Ended:
        """Check what must be true however a command ends."""
        ended = Ended(code=code, said=COLOURS.sub("", said))
        assert "Traceback" not in ended.said, ended.said
        self.check_whole()
        for name, report in self.reports().items():
            if name not in (before or {}):
                assert report["exit_code"] == ended.code, ended.said
        return ended

    def check_whole(self) -> None:
        """Nothing lies about half-written, in the store or among the reports."""
        assert sorted(self.store.glob("making/*")) == []
        assert sorted(self.runs.glob("**/*.part")) == []

    def reports(self) -> dict[str, Any]:
        """Return every report by the name of its run."""
        return {
            path.parent.name: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted(self.runs.glob("*/report.json"))
        }

    def outcomes(self) -> dict[str, str]:
        """Return how each check of the newest run ended."""
        newest = list(self.reports().values())[-1]
        return {check["id"]: check["outcome"] for check in newest["verdicts"]}

    def reason(self, check: str) -> str:
        """Return the newest report's one sentence about a check."""
        newest = list(self.reports().values())[-1]
        (reason,) = (c["reason"] for c in newest["verdicts"] if c["id"] == check)
        assert "\n" not in reason
        return str(reason)

    def entry(self, kind: str) -> Path:
        """Return the folder of an entry of a kind, the first where there are more."""
        return min(self.store.glob(f"v1/{kind}/*/*/entry.json")).parent

    def forget(self, recipe: str) -> None:
        """Take out what was made of a component, which others do not need."""
        paths = sorted(self.store.glob("v1/*/*/*/entry.json"))
        keys = {path: json.loads(path.read_bytes())["key"] for path in paths}
        graphs = {
            digest_value(key)
            for path, key in keys.items()
            if "/onnx/" in str(path) and key["component"]["recipe"]["name"] == recipe
        }
        for path, key in keys.items():
            drawn = "sample" in key and key["component"]["recipe"]["name"] == recipe
            if drawn or graphs & {digest_value(key), key.get("onnx")}:
                shutil.rmtree(path.parent)

    def copy(self, folder: Path) -> Project:
        """Return this project, store and all, in another folder."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("reports"))
        return Project(folder=folder, checkpoint=self.checkpoint, env=dict(self.env))


def write_checkpoint(folder: Path, **configs: Mapping[str, object]) -> Path:
    """Write a diffusers folder of configurations; weights are drawn from a seed."""
    folder.mkdir(parents=True)
    index = json.dumps({"_class_name": "StableDiffusionPipeline"})
    (folder / "model_index.json").write_text(index, encoding="utf-8")
    for name, config in configs.items():
        (folder / name).mkdir()
        text = json.dumps(config)
        (folder / name / "config.json").write_text(text, encoding="utf-8")
    return folder


def package_list() -> str:
    """Return what `pip freeze` says, the installers included."""
    command = [sys.executable, "-m", "pip", "freeze", "--all", "--local"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def installed() -> Callable[[], str]:
    """Return a function that lists what is installed."""
    return package_list


@pytest.fixture(scope="session")
def packages() -> Iterator[str]:
    """What was installed before the first run; it still is after the last."""
    before = package_list()
    yield before
    assert package_list() == before


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny"
    return write_checkpoint(folder, vae=VAE, text_encoder=CLIP)


@pytest.fixture(scope="session")
def new_project(
    tmp_path_factory,
    checkpoint,
    packages,  # noqa: ARG001  # looked at before the first run and after the last
) -> Callable[[], Project]:
    """Return a function that makes a project without suite or artifacts."""

    def make() -> Project:
        return Project(folder=tmp_path_factory.mktemp("project"), checkpoint=checkpoint)

    return make


@pytest.fixture(scope="session")
def made(new_project) -> tuple[Project, Ended]:
    """A project whose artifacts are all made, and how the run that made them ended.

    The VAE's decoder agrees everywhere; the text encoder does not convert to MNN.
    """
    project = new_project()
    project.write("vae_decoder", "text_encoder")
    ended = project.run()
    project.forget("text_encoder")
    project.write("vae_decoder")
    return project, ended


@pytest.fixture
def project(made, tmp_path) -> Project:
    """A copy of the project with the decoder's artifacts, to be damaged."""
    return made[0].copy(tmp_path / "project")


@pytest.fixture
def empty(new_project) -> Project:
    """A project without artifacts, for what must end before any is made."""
    return new_project()
