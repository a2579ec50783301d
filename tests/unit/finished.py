"""Folders of finished runs made by hand, and suites that tell if they were loaded."""

import json
from contextlib import chdir

from harness.commands.cli import main
from harness.core.digest import digest_value
from tests.unit.reports import chain, output, record
from tests.unit.snapshots import report

TOLERANCES = """\
[mnn.fp32]
layers = { tier = "standard", floors = 50.0 }
outputs = { tier = "standard", rtol = 1e-4, atol = 1.0, floors = 50.0 }
why = "only floors matter here"
"""
ID = "2026-11-20T10-00-00"
_SUITE = """\
components = ["unet"]

[source]
checkpoint = "checkpoint"

[component.unet]
recipe = "{recipe}"

[backend.mnn]
variants = ["fp32"]

[[shapes]]
batch = 1
"""
_RECIPE = """\
from pathlib import Path

from harness.core.case import TensorSpec

Path(__file__).with_name("loaded").touch()


def signature(source, options):
    x = TensorSpec(name="x", shape=("batch",), draw="normal")
    return (x,), (TensorSpec(name="y", shape=("batch",)),)


def build(component):
    raise NotImplementedError


realistic = build
"""


def suite_in(folder, tolerances=TOLERANCES):
    """Write a suite whose recipe leaves a file `loaded` beside it when it runs."""
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "config.json").write_text("{}")
    # A process imports a module of one name once.
    recipe = f"own_{digest_value(str(folder))}"
    (folder / "parity.toml").write_text(_SUITE.format(recipe=recipe))
    (folder / f"{recipe}.py").write_text(_RECIPE)
    (folder / "tolerances.toml").write_text(tolerances)
    return folder


def told_of(suite, *records, tolerances=TOLERANCES, **about):
    """A report's JSON whose suite has this path, and which keeps its tolerances."""
    records = records or (record(*chain(1, 2), output(1)),)
    data = report(*records, **{"id_": ID, **about})
    text = json.dumps(data).replace("/somewhere/digits/parity.toml", str(suite))
    data = json.loads(text)
    if tolerances is not None:
        kept = {"tolerances": tolerances, "known_gaps": "", "coverage": 0.9}
        data["suites"][0] |= kept
    return data


def run_in(folder, data):
    """Write the folder of a run."""
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(data), encoding="utf-8")
    return folder


def called(capsys, here, *words):
    """Exit code and text of a command, which runs in this process."""
    with chdir(here):
        code = main([*map(str, words)])
    said = capsys.readouterr()
    return code, said.out + said.err
