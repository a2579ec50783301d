"""`parity families`: recorded runs as a table, and whether a README is stale."""

import json
import shutil

import pytest

from harness.commands.family_table import BEGIN, END


@pytest.fixture
def told(quick):
    """A project that has run once, and a README with a place for the table."""
    index = quick.path / "checkpoint" / "model_index.json"
    index.write_text(json.dumps({"_class_name": "TinyPipeline"}))
    assert quick.parity("run").code == 0
    (quick.path / "README.md").write_text(f"# Mine\n\n{BEGIN}\n{END}\n\nMore.\n")
    return quick


def test_the_table_names_family_exporter_and_error(told):
    ended = told.parity("families")

    assert ended.code == 0
    assert "| Tiny (`project`) | `vae_decoder` | dynamo | fp32 " in ended.text


def test_a_stale_readme_is_found_written_and_then_as_it_should_be(told):
    stale = told.parity("families", "--check")
    assert stale.code == 1
    assert stale.has("README.md is stale; `parity families --write` mends it")

    assert told.parity("families", "--write").code == 0
    text = (told.path / "README.md").read_text()
    assert text.startswith("# Mine\n")
    assert text.endswith("More.\n")
    assert "| Tiny (`project`) |" in text

    assert told.parity("families", "--check").code == 0


def test_a_readme_without_markers_is_one_sentence_with_what_to_add(told):
    (told.path / "README.md").write_text("# Mine\n")
    ended = told.parity("families", "--write")

    assert ended.code == 2
    assert ended.has("has no place for the table")
    assert (told.path / "README.md").read_text() == "# Mine\n"


def test_without_a_run_there_is_nothing_to_tell(project):
    ended = project.parity("families")

    assert ended.code == 2
    assert ended.has("`parity run` makes one")


def test_a_run_whose_suite_is_gone_is_named_and_the_others_are_told(told):
    (newest,) = (told.path / "reports" / "runs").glob("2*")
    gone = newest.with_name("2001-01-01T00-00-00")
    shutil.copytree(newest, gone)
    report = gone / "report.json"
    text = report.read_text().replace(newest.name, gone.name)
    report.write_text(text.replace(f"{told.path}/parity.toml", "/gone/parity.toml"))

    ended = told.parity("families")

    assert ended.code == 0
    assert ended.has("run 2001-01-01T00-00-00 is left out: there is no suite at /gone")
    assert "| Tiny (`project`) | `vae_decoder` | dynamo | fp32 " in ended.text

    alone = told.parity("families", gone.name)
    assert alone.code == 2
    assert alone.has("no run is left to make a table from")
