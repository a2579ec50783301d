"""The strict reader returns right values, or an error with the line and the word."""

import time

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
    assert load(EVERYTHING.replace("\n", ends)).line(*path) == line


def test_tables_are_found_by_name(load):
    ((name, table),) = load("[free.inner]\na = 1\n").table("free").children()
    assert (name, table.name, table.data) == ("inner", "[free.inner]", {"a": 1})


def test_a_missing_table_is_empty(load):
    root = load("")
    assert "a" not in root
    assert root.table("a").data == {}
    assert root.table("a").children() == ()


def test_a_byte_order_mark_means_nothing(load):
    assert load(b"\xef\xbb\xbfx = 1").data == {"x": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "a = 1\nmnn = [1]",
            "2: 'mnn' must be a table, got a list in [ ].",
            id="list",
        ),
        pytest.param("mnn = 1", "1: 'mnn' must be a table, got 1.", id="number"),
    ],
)
def test_what_is_no_table_is_named_with_its_line(load, text, message):
    with pytest.raises(SuiteError) as error:
        load(text).table("mnn")
    assert complaint(error) == f"suite.toml:{message}"


BROKEN = {
    "value": ("a = 1\nb =\n", "2: not valid TOML: invalid value."),
    "twice": ("a = 1\n\na = 2\n", "3: not valid TOML: cannot overwrite a value."),
    "header": ("[a]\n[a]\n", "2: not valid TOML: cannot declare ('a',) twice."),
    "file-ends": ("\na = '''x\n\n", "2: not valid TOML: expected \"'''\"."),
    "latin-1": (b"a = 1\nb = '\xff'", "2: not UTF-8 text, which TOML"),
    "too-deep": ("a = " + "[" * 9999, " cannot be read: maximum"),
    "too-long": ("a = " + "1" * 9999, " cannot be read: Exceeds"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
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


def test_lines_of_many_values_are_found_in_a_time_that_grows_with_their_number(load):
    text = f"many = [{', '.join(['12345678'] * 200_000)}]\nlast = 1\n"
    start = time.process_time()
    assert load(text).where("last").endswith(":2")
    assert time.process_time() - start < 5
