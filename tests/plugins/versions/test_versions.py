"""One case in many versions: the table, what changed, and which versions are tried."""

import re
from typing import Any

import pytest

from harness.core.text import FLOORS, screen
from harness.plugins.versions.result import (
    bisected,
    changes,
    code_of,
    result_of,
    version_lines,
    write_versions,
)
from tests.unit.found import verdicts_of
from tests.unit.reports import COVERAGE, chain, output, record, without_floor

NEWER = "MNN 3.4.1 cannot read model.mnn, which the converter of MNN 3.6.1 made."
AGREES = (*chain(0.1, 0.1), output(0.1))
RIGHT: Any = (AGREES, {})
WRONG: Any = ((*chain(0.1, 900), output(800)), {})
UNREAD = ((), {"failure": {"outcome": "load", "message": NEWER}})
FEWER = (AGREES, {"coverage": {**COVERAGE, "aligned": 3}})


@pytest.fixture
def answers(tmp_path):
    """Return the judged answers of versions, of records as the engine makes them."""

    def judged(question="run there", **versions):
        found = []
        for version, (rows, about) in versions.items():
            number = version.strip("v").replace("_", ".")
            made = record(*rows, case=f"unet/mnn/fp32@{number}", **about)
            checks = verdicts_of(tmp_path, made)
            found.append(result_of(number, question, made, checks))
        return found

    return judged


def test_a_change_names_both_versions_and_the_first_divergence(answers):
    (said,) = changes(answers(v1_20_1=RIGHT, v1_21_0=WRONG, v1_22_0=WRONG))
    assert said == (
        "run there: wrong since 1.21.0, right in 1.20.1, first at net.v1 (conv2d), "
        "900 floors."
    )


def test_a_repaired_version_names_the_error_that_was_there(answers):
    (said,) = changes(answers(v3_2_0=WRONG, v3_4_0=RIGHT))
    assert said.startswith("run there: right since 3.4.0, wrong in 3.2.0, first at ")


def test_a_file_that_is_too_new_is_not_read_and_not_wrong(answers):
    found = answers(v3_4_1=UNREAD, v3_5_0=RIGHT)
    assert [one.cell for one in found] == ["cannot be read", "right, 0.1 floors"]
    assert NEWER in changes(found)[0]


def test_without_a_change_one_sentence_says_so(answers):
    assert changes(answers(v1_0=RIGHT, v2_0=RIGHT)) == [
        "run there: right in every version that was tried."
    ]


def test_a_version_that_shows_fewer_values_is_not_wrong(answers):
    assert answers(v1_0=FEWER)[0].state == "right"


@pytest.mark.parametrize(
    ("versions", "code"),
    [
        pytest.param({"v1": RIGHT, "v2": RIGHT}, 0, id="right"),
        pytest.param({"v1": UNREAD, "v2": WRONG}, 1, id="wrong"),
        pytest.param({"v1": UNREAD, "v2": RIGHT}, 2, id="not-known"),
    ],
)
def test_the_exit_code_says_whether_all_are_right(answers, versions, code):
    assert code_of(answers(**versions)) == code


def test_a_file_without_floors_is_off_by_what_its_bound_counts(answers):
    rows = map(without_floor, (*chain(0.0, 900), output(800)))
    (found,) = answers(v1=(rows, {}))
    assert found.words.startswith("first at net.v1 (conv2d), ")
    assert "infinite" not in found.words


def test_text_and_page_have_a_row_per_version_and_all_questions(answers, tmp_path):
    both = [
        *answers("converted and run there", v3_4_1=WRONG, v3_5_0=RIGHT),
        *answers("run there", v3_4_1=UNREAD, v3_5_0=RIGHT),
    ]
    unit, *lines = [line.text for line in screen(version_lines(both))]
    write_versions("<mnn> in 2 versions", both, tmp_path / "new" / "page.html")
    page = (tmp_path / "new" / "page.html").read_text()
    cells = re.findall(r"<t[dh](?: [^>]*)?>(.*?)</t[dh]>", page)

    assert unit == f"floors: {FLOORS}"
    assert re.split(r" {2,}", lines[0]) == cells[:3]
    assert [re.split(r" {2,}", line) for line in lines[1:3]] == [cells[3:6], cells[6:]]
    assert page.count('<tr class="wrong">') == 1
    assert cells[3:6] == [
        "3.4.1",
        "wrong, first at net.v1 (conv2d), 900 floors",
        "cannot be read",
    ]
    assert "<h1>&lt;mnn&gt; in 2 versions</h1>" in page


@pytest.mark.parametrize("since", range(1, 36))
def test_bisection_finds_a_change_wherever_it_is_and_tries_few(since):
    tried = []

    def states(some):
        tried.extend(some)
        return [version >= since for version in some]

    found = bisected(range(36), states, 10)

    assert {since - 1, since} <= set(found)
    assert sorted(tried) == list(found)
    assert len(tried) <= 12


def test_a_fault_that_came_and_went_has_two_changes():
    found = bisected(range(40), lambda some: [7 <= one < 25 for one in some], 5)
    assert {6, 7, 24, 25} <= set(found)
    assert len(found) < 16


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_short_list_is_tried_whole(number):
    assert bisected(range(number), lambda some: some, 10) == tuple(range(number))
