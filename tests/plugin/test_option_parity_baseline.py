"""--parity-baseline NAME: hold the run against a reviewed baseline too."""

import json

from tests.plugin.project import CASES

MOVED = json.dumps("threads 2 → 1").strip('"')  # as data of the page has it


def page_of(project):
    return project.reports[-1].with_suffix(".html").read_text()


def test_what_is_worse_than_the_baseline_fails_a_run_that_agrees(quick):
    assert quick.pytest().code == 0
    accepted = quick.parity("baseline", "accept", "--who", "A", "--name", "kept")
    assert accepted.code == 0, accepted.text

    same = quick.pytest("--parity-baseline=kept")
    assert same.code == 0, same.text
    assert same.has("34 rows: 34 same")

    # A part of the suite is held against that part alone.
    part = quick.pytest("--parity-baseline=kept", "-k", "outputs")
    assert part.code == 0, part.text
    assert part.has("1 row: 1 same")

    quick.change(
        "parity.toml", "[backend.onnxruntime]", "[backend.onnxruntime]\nthreads = 1"
    )
    for ended in (
        quick.pytest("--parity-baseline=kept"),
        quick.parity("run", "--baseline", "kept"),
    ):
        assert ended.code == 1, ended.text
        assert ended.has(f"INCOMPARABLE {CASES[0]}/settings threads 2 → 1")
        assert json.loads(quick.reports[-1].read_text())["exit_code"] == 1

    # Its page is the same when it is written again: `parity bench` asks for that.
    assert quick.parity("report").code == 0
    assert MOVED in page_of(quick)
    assert "Worse than the baseline" in page_of(quick)

    # The page of a run that was held against none is written again with one.
    quick.parity("run")
    assert MOVED not in page_of(quick)
    again = quick.parity("report", "--baseline", "kept")
    assert again.code == 0, again.text
    assert MOVED in page_of(quick)
    assert quick.parity("report", "--baseline", "gone").code == 2


def test_a_baseline_that_is_not_there_is_refused_before_anything_runs(quick):
    ended = quick.pytest("--parity-baseline=kept")

    assert ended.code == 4
    assert ended.has("--parity-baseline: there is no baseline 'kept'")
    assert not (quick.path / "reports").exists()
