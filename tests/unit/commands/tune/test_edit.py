"""The ratchet tightens by itself, loosens with a reason, and writes whole files."""

import errno
from pathlib import Path

import pytest

from harness.core.errors import ParityError, SuiteError
from harness.judge.policy import Policy
from harness.plugins.tune.edit import edit
from harness.plugins.tune.headroom import Headroom
from harness.plugins.tune.proposal import propose
from tests.unit.reports import output, row
from tests.unit.tunings import case_of, judge_of, tuning_of

HEADROOM = Headroom()
TEXT = """\
# Ours.
[mnn.fp32]
outputs = { tier = "standard", atol = 1.0 }
layers = "standard"
why = "an array of ones"
"""


def edited(folder, *rows, text=TEXT, why="", allow_looser=False):
    judge = judge_of(folder, text)
    tuning = tuning_of(case_of(*rows))
    parts = propose(tuning, judge, HEADROOM, allow_looser=allow_looser)
    return edit(judge.policy, tuning, parts, HEADROOM, why)


def layers_of(path):
    return Policy.load(path).for_probe(
        ("unet", "mnn", "fp32"), group="layers", probe="v0"
    )


def test_tightening_needs_no_word_and_says_where_it_comes_from(tmp_path):
    change = edited(tmp_path, row("v0", 1.0))
    change.write()

    assert layers_of(change.path).tolerance.floors == 2.0
    text = change.path.read_text()
    assert text.startswith(TEXT)
    assert "# tuned 2026-11-21, torch 2.13.0, mnn 3.6.1: headroom 2 x or 3 dB" in text
    assert "over the worst, s-0 (layers)" in text
    assert "layers of 20 draws (86.1%)" in text
    assert '+layers = { tier = "strict", floors = 2.0 }' in change.diff


def test_without_leave_nothing_is_loosened(tmp_path):
    change = edited(tmp_path, row("v0", 40.0))

    assert change.new == change.old
    assert change.diff == []


def test_loosening_with_leave_writes_its_reason_and_the_figures(tmp_path):
    change = edited(tmp_path, row("v0", 40.0), why="other sums", allow_looser=True)
    change.write()

    rule = layers_of(change.path)
    assert rule.tolerance.floors == 80.0
    assert rule.why == "other sums; layers 40 floors when tuned"


def test_loosening_without_a_reason_is_refused(tmp_path):
    with pytest.raises(SuiteError, match=r"would be looser .*say --why"):
        edited(tmp_path, row("v0", 40.0), allow_looser=True)


def test_a_narrower_table_inherits_the_reason_of_the_wider_one(tmp_path):
    text = TEXT.replace(
        'layers = "standard"', 'layers = { tier = "standard", floors = 400.0 }'
    )

    change = edited(tmp_path, row("v0", 40.0), text=text)
    change.write()

    rule = layers_of(change.path)
    assert rule.tolerance.floors == 80.0
    assert rule.why == "an array of ones; layers 40 floors when tuned"


def test_tuning_twice_changes_nothing_more(tmp_path):
    rows = (row("v0", 1.0), output(2.0))
    first = edited(tmp_path, *rows)
    second = edited(tmp_path, *rows, text=first.new)

    assert second.new == first.new


def test_a_file_that_changed_meanwhile_is_not_written_over(tmp_path):
    change = edited(tmp_path, row("v0", 1.0))
    change.path.write_text("# mine\n")

    with pytest.raises(SuiteError, match="has changed since it was read"):
        change.write()
    assert change.path.read_text() == "# mine\n"


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    change = edited(tmp_path, row("v0", 1.0))
    monkeypatch.setattr(Path, "replace", full)

    with pytest.raises(ParityError, match="cannot be written"):
        change.write()
    assert change.path.read_text() == TEXT
