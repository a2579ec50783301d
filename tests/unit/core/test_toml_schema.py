"""Declared tables: the values that they accept, and the message about all others."""

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


MISTAKES = {
    # Each stands alone in a file.
    "absent": ("", "1: the file has no 'name', which it must have."),
    "near-a-required-key": (
        "\nnam = 'x'",
        "2: unknown key 'nam' in the file; did you mean 'name'?",
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
    "infinite": ("factor = inf", "2: 'factor' must be more than 0, got inf."),
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
        f"2: 'factor' must be a number, got 1{'0' * 400}.",
    ),
    "number-for-a-table": ("open = [1]", "2: item 1 of 'open' must be a table, got 1."),
    "choice-or-table": (
        "bounds = 'blue'",
        """2: unknown bounds "blue"; it can be 'red', 'green'.""",
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
