"""Declared tables: the values that they accept, and the message about all others."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, ClassVar

import pytest
from msgspec import Meta, field

from harness.core.errors import SuiteError
from harness.core.toml_file import TomlFile
from harness.core.toml_schema import DISTINCT, WORDS, Count, Keys, one_of, read
from harness.suite.schema import PIPELINES, SuiteFile, TextToImageT5

COLOURS = ("red", "green")


class Open(Keys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Takes other keys, which are counts."""

    OTHERS: ClassVar[Any] = Count
    on: bool = True


class Part(Keys, frozen=True, kw_only=True):
    """Has one key, which is required."""

    size: float


class Sheet(Keys, frozen=True, kw_only=True):
    """One key for each thing that can be declared."""

    name: Annotated[str, Meta(min_length=1)]
    begin: str = field(name="from", default="")
    colour: Annotated[str, one_of(COLOURS)] = "red"
    count: Count = 1
    factor: Annotated[float, Meta(gt=0)] = 1.0
    part: Annotated[float, Meta(ge=0, le=1)] | None = None
    age: Annotated[int, Meta(ge=18, extra={"sentence": "18 or older"})] = 18
    day: date | None = None
    issue: str | int = ""
    plain: Annotated[str | int, Meta(extra={"sentence": "only plain things"})] = 0
    colours: Annotated[tuple[Annotated[str, one_of(COLOURS)], ...], WORDS] = COLOURS
    axes: Annotated[tuple[str, ...], DISTINCT] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    open: tuple[Open, ...] = ()
    inner: tuple[Part, ...] = ()
    bounds: Annotated[str, one_of(COLOURS)] | Open | None = None


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "sheet.toml"

    def load(text):
        path.write_text(text, encoding="utf-8")
        return TomlFile.load(path).root

    return load


def test_what_is_left_out_has_its_default(load):
    assert read(load('name = "x"'), Sheet) == Sheet(name="x")


def test_what_is_written_is_read(load):
    text = """\
name = "x"
from = "y"
colour = "green"
factor = 2
part = 1
day = 2027-01-31
issue = 31
colours = ["green"]
axes = []
sizes = { batch = 2 }
bounds = { on = false, height = 3 }
[[open]]
width = 4
"""
    sheet = read(load(text), Sheet)

    assert (sheet.begin, sheet.colour, sheet.issue) == ("y", "green", 31)
    assert (sheet.factor, type(sheet.factor)) == (2.0, float)
    assert (sheet.part, sheet.day) == (1.0, date(2027, 1, 31))
    assert (sheet.colours, sheet.axes) == (("green",), ())
    assert sheet.sizes == {"batch": 2}
    assert (sheet.bounds, sheet.open) == (Open(on=False), (Open(),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "1: the file has no 'name', which it must have.", id="absent"),
        pytest.param(
            "\nnam = 'x'",
            "2: unknown key 'nam' in the file; did you mean 'name'?",
            id="near-a-required-key",
        ),
        pytest.param(
            "name = 'x'\ncolor = 'red'",
            "2: unknown key 'color'; did you mean 'colour'?",
            id="unknown-key",
        ),
        pytest.param(
            "name = 'x'\nbegin = 'y'", "2: unknown key 'begin'; it can", id="renamed"
        ),
        pytest.param("name = ' '", "1: 'name' is empty.", id="blank"),
        pytest.param(
            "name = 1", "1: 'name' must be text in quotes, got 1.", id="another-type"
        ),
        pytest.param(
            "name = 'x'\ncolour = 'rad'",
            """2: unknown colour "rad"; did you mean 'red'?""",
            id="choice",
        ),
        pytest.param(
            "name = 'x'\ncolours = [\n'red',\n'gren']",
            "4: unknown 'gren' in 'colours'; did you mean 'green'?",
            id="choice-in-a-list",
        ),
        pytest.param(
            "name = 'x'\ncolours = ['red', 'red']",
            "2: 'red' stands in 'colours' twice.",
            id="twice",
        ),
        pytest.param(
            "name = 'x'\ncolours = []",
            "2: 'colours' is empty, so there would be nothing to test.",
            id="empty-list",
        ),
        pytest.param(
            "name = 'x'\naxes = ['a', 1]",
            "2: item 2 of 'axes' must be text in quotes, got 1.",
            id="item",
        ),
        pytest.param(
            "name = 'x'\ncount = 0", "2: 'count' must be 1 or more, got 0.", id="least"
        ),
        pytest.param(
            "name = 'x'\ncount = true",
            "2: 'count' must be a whole number, got true.",
            id="boolean-for-a-number",
        ),
        pytest.param(
            "name = 'x'\nfactor = 0",
            "2: 'factor' must be more than 0, got 0.",
            id="more-than",
        ),
        pytest.param(
            "name = 'x'\nfactor = inf",
            "2: 'factor' must be more than 0, got inf.",
            id="infinite",
        ),
        pytest.param(
            "name = 'x'\npart = 95",
            "2: 'part' must be from 0 to 1, got 95.",
            id="between",
        ),
        pytest.param(
            "name = 'x'\npart = nan",
            "2: 'part' must be from 0 to 1, got nan.",
            id="nan",
        ),
        pytest.param(
            "name = 'x'\nage = 17", "2: 18 or older, got 17.", id="own-sentence"
        ),
        pytest.param(
            "name = 'x'\nage = '18'",
            "2: 'age' must be a whole number, got \"18\".",
            id="own-sentence-is-of-the-bounds",
        ),
        pytest.param(
            "name = 'x'\nday = '2027-01-31'",
            "2: 'day' must be a date such as 2027-01-31, got \"2027-01-31\".",
            id="text-for-a-date",
        ),
        pytest.param(
            "name = 'x'\nday = 2027-01-31T00:00:00",
            "2: 'day' must be a date such as 2027-01-31, got 2027-01-31 00:00:00.",
            id="time-for-a-date",
        ),
        pytest.param(
            "name = 'x'\nissue = 1.5",
            "2: 'issue' must be text in quotes or a whole number, got 1.5.",
            id="neither-of-two",
        ),
        pytest.param(
            "name = 'x'\nplain = [1]",
            "2: only plain things, got a list in [ ].",
            id="own-sentence-of-types",
        ),
        pytest.param(
            "name = 'x'\n[sizes]\nbatch = 'two'",
            "3: 'batch' must be a whole number, got \"two\".",
            id="in-a-table-of-free-names",
        ),
        pytest.param(
            "name = 'x'\n[[open]]\n[[open]]\nwidth = 0",
            "4: 'width' must be 1 or more, got 0.",
            id="other-key-of-an-open-table",
        ),
        pytest.param(
            "name = 'x'\n[[inner]]\nsize = 1\n[[inner]]",
            "4: [inner] has no 'size', which it must have.",
            id="absent-in-a-table",
        ),
        pytest.param(
            "name = 'x'\n[[inner]]\nsize = 1\nzebra = 1",
            "4: unknown key 'zebra' in [inner]; it can be 'size'.",
            id="unknown-key-in-a-table",
        ),
        pytest.param(
            f"name = 'x'\nfactor = 1{'0' * 400}",
            f"2: 'factor' must be a number, got 1{'0' * 400}.",
            id="number-beyond-floats",
        ),
        pytest.param(
            "name = 'x'\nopen = [1]",
            "2: item 1 of 'open' must be a table, got 1.",
            id="number-for-a-table",
        ),
        pytest.param(
            "name = 'x'\nbounds = 'blue'",
            """2: unknown bounds "blue"; it can be 'red', 'green'.""",
            id="choice-or-table",
        ),
        pytest.param(
            "name = 'x'\n[bounds]\non = 1",
            "3: 'on' must be true or false, got 1.",
            id="table-of-a-choice-or-table",
        ),
    ],
)
def test_each_mistake_names_its_line_and_what_would_be_right(load, text, message):
    with pytest.raises(SuiteError) as error:
        read(load(text), Sheet)

    assert str(error.value).rpartition("/")[2].startswith(f"sheet.toml:{message}")


VALUES = (
    *("''", "'x'", "-1", "0", "1", "20", "1.5", "nan", "inf", "true", "2027-01-31"),
    *("07:32:00", "[]", "[1]", "['x', 'x']", "[[]]", "[{}]", "{}", "{ a = 1 }"),
    *("{ a = {} }", "{ a = { b = [] } }", "9007199254740993"),
)


@pytest.mark.parametrize("kind", [Sheet, SuiteFile, *PIPELINES.values(), TextToImageT5])
def test_no_value_of_any_key_ends_in_another_error(load, kind):
    """The check and msgspec's own conversion agree on what a struct takes."""
    inner = [
        ("", kind),
        *(
            (f"{name}.", default.__class__)
            for name, default in zip(
                kind.__struct_fields__[-len(kind.__struct_defaults__) :],
                kind.__struct_defaults__,
                strict=True,
            )
            if isinstance(default, Keys)
        ),
    ]
    taken = refused = 0
    needed = {"name": "name = 'x'", "height": "height = 8", "width": "width = 8"}
    for prefix, table in inner:
        for key in table.__struct_encode_fields__:
            others = [
                text
                for name, text in needed.items()
                if name in kind.__struct_fields__ and name != prefix + key
            ]
            for value in VALUES:
                text = "\n".join([*others, f"{prefix}{key} = {value}"])
                try:
                    read(load(text), kind)
                except SuiteError as error:
                    assert f"sheet.toml:{len(others) + 1}: " in str(error)  # noqa: PT017
                    refused += 1
                else:
                    taken += 1

    assert min(taken, refused) > 10
