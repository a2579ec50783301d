"""`parity init` turns on the variants that are safe; the first run is green."""

import json
import re
import shutil
import tomllib
from unittest.mock import patch

import pytest

from harness.commands.cli import main
from harness.plugins.start.init.measure import measure
from tests.places import DIGITS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def measured(tmp_path_factory, store):  # noqa: ARG001  # which it fills
    """The folder of a suite that was measured: the trained text encoder alone."""
    folder = tmp_path_factory.mktemp("measured")
    checkpoint = folder / "checkpoint"
    for part in ("text_encoder", "tokenizer"):
        shutil.copytree(DIGITS / part, checkpoint / part)
    index = json.loads((DIGITS / "model_index.json").read_text())
    kept = {k: v for k, v in index.items() if k[0] == "_" or (checkpoint / k).is_dir()}
    (checkpoint / "model_index.json").write_text(json.dumps(kept))
    # A busy machine does not measure every variant within the minute.
    with patch.dict(measure.__kwdefaults__, budget_s=600.0):
        assert main(["init", str(checkpoint), "--into", str(folder)]) == 0
    return folder


def test_a_variant_that_agrees_is_on_and_a_wrong_one_is_not(measured):
    suite = tomllib.loads((measured / "parity.toml").read_text())
    backends = suite["backend"]

    assert "fp16" in backends["onnxruntime"]["variants"]
    assert "fp16-weights" in backends["mnn"]["variants"]
    assert "fused" not in backends["mnn"]["variants"]


def test_each_has_what_was_measured_beside_it(measured):
    text = (measured / "parity.toml").read_text()
    beside = {
        name: next(line for line in text.splitlines() if f'"{name}"' in line)
        for name in ("fp16", "fused")
    }

    assert re.search(
        r'^  "fp16", +# agreed, at most \d+% of its bound$', beside["fp16"]
    )
    assert beside["fused"].startswith('  # "fused",')
    assert re.search(r"# text_encoder: off by \S+ times its bound$", beside["fused"])


def test_the_first_run_is_green(measured, monkeypatch, capsys):
    monkeypatch.chdir(measured)

    assert main(["run"]) == 0, capsys.readouterr().out
