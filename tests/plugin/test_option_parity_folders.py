"""--parity-store DIR and --parity-runs DIR, and the keys of the same names."""

import shlex

import pytest

from tests.plugin.project import PYTEST


def test_reports_go_where_the_option_says(quick):
    assert quick.pytest("-k", "outputs", "--parity-runs=elsewhere").code == 0

    assert len(list(quick.path.glob("elsewhere/*/report.json"))) == 1
    assert not (quick.path / "reports").exists()


def test_keys_name_folders_from_the_root(quick, store):
    (quick.path / "store").symlink_to(store)
    (quick.path / "pytest.ini").write_text(
        "[pytest]\nparity_runs = kept\nparity_store = store\n"
    )
    (quick.path / "below").mkdir()
    quick.change("test_parity.py", '"parity.toml"', '"../parity.toml"')
    (quick.path / "test_parity.py").rename(quick.path / "below" / "test_parity.py")

    ended = quick.run(
        "sh", "-c", f"cd below && PARITY_STORE=none {shlex.join(PYTEST)} -k outputs"
    )

    assert ended.code == 0, ended.text
    assert len(list(quick.path.glob("kept/*/report.json"))) == 1
    assert not (quick.path / "below" / "none").exists()


def test_a_store_elsewhere_does_not_move_the_reports(quick, store):
    # Of two words pytest takes the second for a path of tests, and looks for its root.
    ended = quick.pytest("-k", "outputs", "--parity-store", str(store))

    assert ended.code == 0, ended.text
    assert len(quick.reports) == 1


@pytest.mark.parametrize("option", ["runs", "store"])
def test_a_folder_that_cannot_be_written_is_a_sentence(quick, option):
    (quick.path / "file").write_text("")

    ended = quick.pytest(f"--parity-{option}=file/below")

    assert ended.code == 2, ended.text
    assert ended.has("file")
    assert not ended.has("Traceback")
    assert not ended.has("INTERNALERROR")
