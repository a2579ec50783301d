"""The text of a bug report: names of others are text in it, and nothing else."""

import re

import pytest

from harness.report.markdown import cell, fenced, word
from tests.places import ODD_NAMES

HOSTILE = {
    **ODD_NAMES,
    "html": "<img src=x onerror=alert(1)>",
    "link": "[here](https://example.org)",
    "bare link": "https://example.org",
    "picture": "![](http://example.org/x.png)",
    "mention": "@somebody",
    "number": "#12",
    "ticks": "```\n# title\n```",
    "more ticks": "`" * 30,
    "bar": "a | b",
    "heading": "x\n# y",
    "direction": "a\u202eb",
}
SPAN = re.compile(r"(?P<ticks>`+) ?(?P<inside>.*?) ?(?P=ticks)")


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_a_name_in_a_line_is_plain_or_one_span_of_code(name):
    said = word(name)
    assert said.isprintable()
    span = SPAN.fullmatch(said)
    if span is None:
        assert not re.search(r"[`*<>\[\]|\\\\@#$!]|://", said)
    else:
        runs = {len(run) for run in re.findall("`+", span["inside"])}
        assert len(span["ticks"]) not in runs


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_a_name_in_a_table_ends_no_cell(name):
    assert not re.search(r"(?<!\\)\|", cell(name))


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_a_name_in_a_block_does_not_end_it(name):
    first, *lines, last = fenced(f"v0 = {name}(x0)").splitlines()
    assert first == last
    assert set(first) == {"`"}
    assert not [line for line in lines if line.lstrip().startswith(first)]
    assert all(line.isprintable() for line in lines)
