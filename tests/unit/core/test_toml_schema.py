"""Declared tables: the values that they accept, and the message about all others."""

from datetime import date
from typing import Annotated, Any, ClassVar

import pytest
from msgspec import Meta, field

from harness.core.errors import SuiteError
from harness.core.toml_file import TomlFile
from harness.core.toml_schema import (
    DISTINCT,
    HUGE,
    WORDS,
    Count,
    Keys,
    TableError,
    Word,
    one_of,
    read,
)

COLOURS = ("red", "green")


class Open(Keys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Takes other keys, which are counts."""

    OTHERS: ClassVar[Any] = Count
    on: bool = True


class Part(Keys, frozen=True, kw_only=True):
    """Has one key, which is required."""

    size: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size > 9:
            text = f"{self.size:g} is too large."
            raise TableError(text, "size")


class Sheet(Keys, frozen=True, kw_only=True):
    """One key for each thing that can be declared."""

    name: Word
    begin: str = field(name="from", default="")
    colour: Annotated[str, one_of(COLOURS)] = "red"
    count: Count = 1
    factor: Annotated[float, Meta(gt=0, lt=HUGE)] = 1.0
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


class Parent(Keys, frozen=True, kw_only=True):
    """Has tables with a default."""

    inner: Open = Open()
    absent: Open = Open()


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


MISTAKES = {
    # Each stands alone in a file.
    "absent": ("", "1: the file has no 'name', which it must have."),
    "near-a-required-key": (
        "\nnam = 'x'",
        "2: unknown key 'nam'; did you mean 'name'?",
    ),
    "blank": ("name = ' '", "1: 'name' is empty."),
    "another-type": ("name = 1", "1: 'name' must be text in quotes, got 1."),
}
AFTER_NAME = {
    "unknown-key": ("color = 'red'", "2: unknown key 'color'; did you mean 'colour'?"),
    "renamed": ("begin = 'y'", "2: unknown key 'begin'; it can"),
    "choice": ("colour = 'rad'", """2: unknown colour "rad"; did you mean 'red'?"""),
    "choice-in-a-list": (
        "colours = [\n'red',\n'gren']",
        "4: unknown 'gren' in 'colours'; did you mean 'green'?",
    ),
    "twice": ("colours = ['red', 'red']", "2: 'red' stands in 'colours' twice."),
    "empty-list": (
        "colours = []",
        "2: 'colours' is empty, so there would be nothing to test.",
    ),
    "item": ("axes = ['a', 1]", "2: item 2 of 'axes' must be text in quotes, got 1."),
    "least": ("count = 0", "2: 'count' must be 1 or more, got 0."),
    "boolean-for-a-number": (
        "count = true",
        "2: 'count' must be a whole number, got true.",
    ),
    "more-than": ("factor = 0", "2: 'factor' must be more than 0, got 0."),
    "infinite": ("factor = inf", "2: 'factor' must be less than 1e+300, got inf."),
    "between": ("part = 95", "2: 'part' must be from 0 to 1, got 95."),
    "nan": ("part = nan", "2: 'part' must be from 0 to 1, got nan."),
    "own-sentence": ("age = 17", "2: 18 or older, got 17."),
    "own-sentence-is-of-the-bounds": (
        "age = '18'",
        "2: 'age' must be a whole number, got \"18\".",
    ),
    "text-for-a-date": (
        "day = '2027-01-31'",
        "2: 'day' must be a date such as 2027-01-31, got \"2027-01-31\".",
    ),
    "time-for-a-date": (
        "day = 2027-01-31T00:00:00",
        "2: 'day' must be a date such as 2027-01-31, got 2027-01-31 00:00:00.",
    ),
    "neither-of-two": (
        "issue = 1.5",
        "2: 'issue' must be text in quotes or a whole number, got 1.5.",
    ),
    "own-sentence-of-types": (
        "plain = [1]",
        "2: only plain things, got a list in [ ].",
    ),
    "in-a-table-of-free-names": (
        "[sizes]\nbatch = 'two'",
        "3: 'batch' must be a whole number, got \"two\".",
    ),
    "other-key-of-an-open-table": (
        "[[open]]\n[[open]]\nwidth = 0",
        "4: 'width' must be 1 or more, got 0.",
    ),
    "absent-in-a-table": (
        "[[inner]]\nsize = 1\n[[inner]]",
        "4: [inner] has no 'size', which it must have.",
    ),
    "unknown-key-in-a-table": (
        "[[inner]]\nsize = 1\nzebra = 1",
        "4: unknown key 'zebra' in [inner]; it can be 'size'.",
    ),
    "number-beyond-floats": (
        f"factor = 1{'0' * 400}",
        f"2: 'factor' must be less than 1e+300, got 1{'0' * 400}.",
    ),
    "number-for-a-table": ("open = [1]", "2: item 1 of 'open' must be a table, got 1."),
    "choice-or-table": (
        "bounds = 'blue'",
        """2: unknown bounds "blue"; it can be 'red', 'green'.""",
    ),
    "check-of-a-table-alone": (
        "[[inner]]\nsize = 1\n[[inner]]\n\nsize = 10",
        "6: 10 is too large.",
    ),
    "table-of-a-choice-or-table": (
        "[bounds]\non = 1",
        "3: 'on' must be true or false, got 1.",
    ),
}
"""Mistakes in the lines below `name`."""
MISTAKES |= {
    key: (f"name = 'x'\n{text}", said) for key, (text, said) in AFTER_NAME.items()
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_names_its_line_and_what_would_be_right(load, mistake):
    text, message = MISTAKES[mistake]
    with pytest.raises(SuiteError) as error:
        read(load(text), Sheet)
    assert str(error.value).rpartition("/")[2].startswith(f"sheet.toml:{message}")


def test_each_struct_knows_its_place(load):
    text = "name = 'x'\n[[open]]\nwidth = 4\n[[open]]\n[sizes]\nbatch = 2"
    sheet = read(load(text), Sheet)
    assert [part.place.line() for part in sheet.open] == [2, 4]
    assert [part.others for part in sheet.open] == [{"width": 4}, {}]
    assert "width" in sheet.open[0]
    assert "on" not in sheet.open[0]
    assert str(sheet.open[0].error("Too wide.", "width")).endswith(":3: Too wide.")
    assert str(sheet.error("So few.", "sizes", "batch")).endswith(":6: So few.")


def test_a_table_that_is_left_out_has_the_place_of_what_holds_it(load):
    parents = [read(load("\n\n[inner]\non = true"), Parent) for _ in range(2)]
    for parent in parents:
        assert str(parent.absent.error("No.", "on")).endswith("sheet.toml:1: No.")
    assert parents[0].absent.place is not parents[1].absent.place
