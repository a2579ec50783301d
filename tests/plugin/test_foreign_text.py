"""What a network or a library says cannot act on the terminal of pytest or `parity`."""

import pytest

from tests.plugin.planted import write_planted
from tests.plugin.project import TEST_FILE, Project
from tests.unit.report.test_foreign_text import FORGED, HOSTILE, check_plain

FAILS = f"""

def build(component, attention=""):
    print({HOSTILE!r})
    raise ValueError({HOSTILE.lstrip()!r})
"""


@pytest.fixture
def saying(store, tmp_path):  # noqa: ARG001  # whose place commands use
    """A project whose recipe prints a hostile text, and fails with it."""
    folder = write_planted(tmp_path / "saying", {"net": {}}, ("onnxruntime",))
    project = Project(folder)
    # A process reads a recipe once, so this one has a name of its own.
    (folder / "planted.py").rename(folder / "saying.py")
    project.change("parity.toml", 'recipe = "planted"', 'recipe = "saying"')
    project.add("saying.py", FAILS)
    project.add("test_parity.py", TEST_FILE)
    return project


def test_a_failure_that_a_library_words_acts_on_no_terminal(saying):
    ran = saying.parity("run")
    shown = saying.parity("show", "last")
    tested = saying.pytest("--junitxml=junit.xml", "-rA")

    assert (ran.code, shown.code, tested.code) == (2, 2, 2)
    for ended in (ran, shown, tested):
        assert "]0;x" in ended.text
        check_plain(ended.text)
        assert f"\n {FORGED}" not in ended.text
    check_plain((saying.path / "junit.xml").read_text(encoding="utf-8"))
