"""The strict reader: right values, and complaints that name the line and the word."""

from __future__ import annotations

from datetime import date

import pytest

from harness.core.errors import SuiteError
from harness.core.toml_file import TomlFile, dotted

EVERYTHING = '''\
# a comment with [a.header]
title = """
[fake]
x = 1 """"
numbers = [
  1, # not the end: ]
  { a = 1, "b c".d = 'x' },
  [ 3,
    4 ],
]
when = 1979-05-27 07:32:00
dotted . "k.ey" = 2

[mnn.fp32]  # trailing
outputs = "strict # no comment"
[unet.mnn.fp32.probes."*.attn2.*"]
layers = QUOTES'q'QUOTES
[unet]
own = true
[[gap]]
x = "\\" ]"
[gap.sub]
y = 2
[[gap]]
x = 3
[[gap.inner]]
z = 1
[[gap.inner]]
z = 2
'''.replace("QUOTES", "'''")


@pytest.fixture
def load(tmp_path):
    path = tmp_path / "suite.toml"

    def load(text):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return TomlFile.load(path).root

    return load


def complaint(error):
    """Drop the folder, which differs from run to run."""
    return str(error.value).rpartition("/")[2]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        pytest.param(("title",), 2, id="multi-line-text"),
        pytest.param(("numbers",), 5, id="list"),
        pytest.param(("numbers", 0), 6, id="item"),
        pytest.param(("numbers", 1, "b c", "d"), 7, id="inline-table"),
        pytest.param(("numbers", 2, 1), 9, id="nested-item"),
        pytest.param(("when",), 11, id="date-with-a-space"),
        pytest.param(("dotted", "k.ey"), 12, id="dotted-and-quoted-key"),
        pytest.param(("mnn", "fp32"), 14, id="header"),
        pytest.param(("mnn", "fp32", "outputs"), 15, id="key"),
        pytest.param(("unet", "mnn", "fp32", "probes", "*.attn2.*"), 16, id="quoted"),
        pytest.param(("unet", "mnn"), 16, id="mentioned-only"),
        pytest.param(("unet",), 18, id="declared-after-it-was-mentioned"),
        pytest.param(("gap", 0), 20, id="first-of-several"),
        pytest.param(("gap", 0, "sub", "y"), 23, id="table-in-one-of-several"),
        pytest.param(("gap", 1, "x"), 25, id="second-of-several"),
        pytest.param(("gap", 1, "inner", 1, "z"), 29, id="several-in-several"),
        pytest.param(
            ("mnn", "fp32", "absent"), 14, id="absent-falls-back-to-its-table"
        ),
        pytest.param(("absent",), 1, id="absent-falls-back-to-the-file"),
    ],
)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_each_key_is_found_on_its_line(load, path, line, ends):
    root = load(EVERYTHING.replace("\n", ends))

    assert root.line(*path) == line


def test_values_arrive_with_the_kind_that_was_asked_for(load):
    root = load(
        'name = "unet"\nfloors = 8\ncount = 3\non = true\nuntil = 2027-01-01\n'
        'flags = ["--a", "--b"]\n[[gap]]\nx = 1\n[[gap]]\nx = 2\n[free]\na = 1\n'
    )

    assert root.take("name", str) == "unet"
    floors = root.take("floors", float)
    assert (floors, type(floors)) == (8.0, float)
    assert root.take("count", int) == 3
    assert root.take("on", bool) is True
    assert root.take("until", date) == date(2027, 1, 1)
    assert root.take_list("flags", str) == ("--a", "--b")
    assert [gap.take("x", int) for gap in root.tables("gap")] == [1, 2]
    assert [(name, table.name) for name, table in root.children()] == [
        ("free", "[free]")
    ]
    root.done()


def test_what_is_missing_takes_its_default(load):
    root = load("")

    assert root.take("a", float, None) is None
    assert root.take_list("b", str, ()) == ()
    assert root.choice("c", ("x",), "x") == "x"
    assert root.tables("d") == ()
    assert root.table("e").take("f", int, 1) == 1
    assert "a" not in root
    root.done()


def test_a_byte_order_mark_means_nothing(load):
    assert load(b"\xef\xbb\xbfx = 1").take("x", int) == 1


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        pytest.param(
            "\n[mnn]\nfloor = 8\n",
            lambda root: (
                (mnn := root.table("mnn")).take("floors", float, None) or mnn.done()
            ),
            "suite.toml:3: unknown key 'floor' in [mnn]; did you mean 'floors'?",
            id="misspelt-key",
        ),
        pytest.param(
            "\nzebra = 8\n",
            lambda root: root.take("floors", float, None) or root.done(),
            "suite.toml:2: unknown key 'zebra'; it can be 'floors'.",
            id="unknown-key",
        ),
        pytest.param(
            "\ncas = 'x'\n",
            lambda root: root.take("case", str),
            "suite.toml:2: unknown key 'cas' in the file; did you mean 'case'?",
            id="misspelt-required-key",
        ),
        pytest.param(
            "[[gap]]\nx = 1\n[[gap]]\n",
            lambda root: [gap.take("x", int) for gap in root.tables("gap")],
            "suite.toml:3: [gap] has no 'x', which it must have.",
            id="required-key",
        ),
        pytest.param(
            "\ntier = 'strikt'",
            lambda root: root.choice("tier", ("exact", "strict")),
            """suite.toml:2: unknown tier "strikt"; did you mean 'strict'?""",
            id="misspelt-choice",
        ),
        pytest.param(
            "\ntier = ''",
            lambda root: root.choice("tier", ("exact", "strict"), ""),
            """suite.toml:2: unknown tier ""; it can be 'exact', 'strict'.""",
            id="empty-choice-is-not-the-default",
        ),
        pytest.param(
            "\ntier = 'x'",
            lambda root: root.choice("tier", ()),
            'suite.toml:2: unknown tier "x"; there is none to choose from.',
            id="no-choice-at-all",
        ),
        pytest.param(
            "floors = '8'",
            lambda root: root.take("floors", float),
            "suite.toml:1: 'floors' must be a number, got \"8\".",
            id="text-for-a-number",
        ),
        pytest.param(
            "count = true",
            lambda root: root.take("count", int),
            "suite.toml:1: 'count' must be a whole number, got true.",
            id="boolean-for-a-number",
        ),
        pytest.param(
            "until = 2027-01-01T00:00:00",
            lambda root: root.take("until", date),
            "suite.toml:1: 'until' must be a date such as 2027-01-31, "
            "got 2027-01-01 00:00:00.",
            id="time-for-a-date",
        ),
        pytest.param(
            f"floors = 1{'0' * 400}",
            lambda root: root.take("floors", float),
            f"suite.toml:1: 'floors' must be a number, got 1{'0' * 400}.",
            id="number-beyond-floats",
        ),
        pytest.param(
            "flags = [\n'a',\n1,\n]",
            lambda root: root.take_list("flags", str),
            "suite.toml:3: item 2 of 'flags' must be text in quotes, got 1.",
            id="item-of-another-kind",
        ),
        pytest.param(
            "\nmnn = [1]",
            lambda root: root.table("mnn"),
            "suite.toml:2: 'mnn' must be a table, got a list in [ ].",
            id="list-for-a-table",
        ),
        pytest.param(
            "\n[a]\nmnn = 1",
            lambda root: root.table("a").children(),
            "suite.toml:3: 'mnn' must be a table, got 1.",
            id="number-for-a-table",
        ),
    ],
)
def test_each_mistake_names_its_line_and_what_would_be_right(load, text, read, message):
    root = load(text)

    with pytest.raises(SuiteError) as error:
        read(root)

    assert complaint(error) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a = 1\nb =\n", "2: not valid TOML: invalid value.", id="value"),
        pytest.param(
            "a = 1\n\na = 2\n",
            "3: not valid TOML: cannot overwrite a value.",
            id="twice",
        ),
        pytest.param(
            "[a]\n[a]\n", "2: not valid TOML: cannot declare ('a',) twice.", id="header"
        ),
        pytest.param(
            "\na = '''x\n\n", "2: not valid TOML: expected \"'''\".", id="file-ends"
        ),
        pytest.param(
            b"a = 1\nb = '\xff'", "2: not UTF-8 text, which TOML", id="latin-1"
        ),
        pytest.param("a = " + "[" * 9999, " cannot be read: maximum", id="too-deep"),
        pytest.param("a = " + "1" * 9999, " cannot be read: Exceeds", id="too-long"),
    ],
)
def test_what_is_not_toml_is_one_sentence_with_a_line(load, text, message):
    with pytest.raises(SuiteError) as error:
        load(text)

    assert complaint(error).startswith(f"suite.toml:{message}")
    assert "\n" not in str(error.value)


def test_a_missing_file_and_a_folder_are_one_sentence_each(tmp_path):
    with pytest.raises(SuiteError, match=r"absent\.toml: there is no such file\.$"):
        TomlFile.load(tmp_path / "absent.toml")
    with pytest.raises(SuiteError, match=r": this is a folder; a TOML file is needed"):
        TomlFile.load(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SuiteError, match=r"cannot be read \(Not a directory\)\.$"):
        TomlFile.load(tmp_path / "file" / "suite.toml")


def test_a_path_is_written_as_toml_writes_it():
    assert dotted(("gap", 1, "int8.v2", "a-b")) == 'gap."int8.v2".a-b'
