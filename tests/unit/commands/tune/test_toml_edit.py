"""An edit changes TOML tables; comments, order and every other byte stay."""

import tomllib

import pytest

from harness.core.errors import SuiteError
from harness.plugins.tune.edit import bounds_of
from harness.plugins.tune.toml_edit import MARK, TableChange, changed

TEXT = """\
# The user's own words.

[mnn.fp32]   # wide
outputs = "standard"   # as a start
layers = "standard"

# why this one is so
[unet.mnn.fp32]
layers = { tier = "standard", floors = 40.0 }  # measured in May
why = "a reason"

[unet.mnn.fp32.probes."time_*"]
layers = "relaxed"
why = "another"

# The VAE.
[vae.mnn.fp32]
layers = "strict"
"""


def change(*path, provenance=(f"{MARK}today",), **values):
    return TableChange(path=path, values=values, provenance=provenance)


@pytest.fixture
def after(tmp_path):
    """Return a function: a text with one table changed."""

    def write(text, changes):
        path = tmp_path / "t.toml"
        path.write_bytes(text.encode())
        return changed(path, [changes])

    return write


def test_a_value_is_replaced_and_the_comment_after_it_stays(after):
    result = after(TEXT, change("unet", "mnn", "fp32", layers="strict"))

    assert result == TEXT.replace(
        '[unet.mnn.fp32]\nlayers = { tier = "standard", floors = 40.0 }',
        '# tuned today\n[unet.mnn.fp32]\nlayers = "strict"',
    )


def test_provenance_takes_the_place_of_the_earlier_one_alone(after):
    lines = (f"{MARK}tomorrow", f"{MARK}and how")
    once = after(TEXT, change("vae", "mnn", "fp32", layers="exact"))
    twice = after(once, change("vae", "mnn", "fp32", provenance=lines, layers="exact"))

    assert "# The VAE.\n# tuned tomorrow\n# tuned and how\n[vae.mnn.fp32]" in twice
    assert "today" not in twice


def test_windows_line_ends_stay(after):
    text = '# mine\r\n[mnn.fp32]\r\nlayers = "standard"\r\n'

    result = after(text, change("mnn", "fp32", provenance=(), layers="strict"))

    assert result == text.replace("standard", "strict")


@pytest.mark.parametrize("end", ["", "\n"], ids=["", "empty-line"])
def test_a_new_table_comes_last_and_changes_no_other_byte(after, end):
    result = after(TEXT + end, change("unet", "mnn", "int8", outputs="strict"))

    assert result == (f'{TEXT}\n# tuned today\n[unet.mnn.int8]\noutputs = "strict"\n')


def test_a_new_key_stands_in_its_table(after):
    result = after(TEXT, change("unet", "mnn", "fp32", outputs="strict"))

    assert 'why = "a reason"\noutputs = "strict"\n\n[unet.mnn.fp32.probes' in result


def test_a_reason_of_several_lines_is_replaced_as_a_whole(after):
    text = TEXT.replace('"a reason"', '"""a\n[reason]\n"""')

    result = after(text, change("unet", "mnn", "fp32", why="short"))

    assert 'why = "short"\n\n[unet.mnn.fp32.probes' in result


def test_a_pattern_is_a_key_like_any_other(after):
    path = ("unet", "mnn", "fp32", "probes", "time_*")

    result = after(TEXT, change(*path, layers="standard"))

    table = tomllib.loads(result)["unet"]["mnn"]["fp32"]["probes"]["time_*"]
    assert table == {"layers": "standard", "why": "another"}


def test_a_table_that_is_written_inline_is_refused_and_named(after):
    text = 'vae.mnn.fp32 = { layers = "strict" }\n'

    with pytest.raises(SuiteError, match=r"\[vae\.mnn\.fp32\] cannot be changed"):
        after(text, change("vae", "mnn", "fp32", layers="exact"))


def test_a_header_in_a_text_is_no_table(after):
    text = TEXT.replace('"a reason"', '"""a\n[vae.mnn.fp32]\n"""')

    result = after(text, change("vae", "mnn", "fp32", layers="exact"))

    assert '[vae.mnn.fp32]\n"""' in result
    assert result.endswith('# tuned today\n[vae.mnn.fp32]\nlayers = "exact"\n')


@pytest.mark.parametrize(
    ("tier", "bounds", "text"),
    [
        ("strict", {}, '"strict"'),
        ("strict", {"atol": 1e-6}, '{ tier = "strict", atol = 1e-06 }'),
        ("", {"floors": 4.0}, "{ floors = 4.0 }"),
    ],
)
def test_a_group_is_written_as_people_write_it(after, tier, bounds, text):
    result = after(TEXT, change("vae", "mnn", "fp32", layers=bounds_of(tier, bounds)))

    assert f"[vae.mnn.fp32]\nlayers = {text}\n" in result


@pytest.mark.parametrize("mark", ["\ufeff", ""])
@pytest.mark.parametrize("note", ["", "# one line\u2028and its end\n"])
def test_what_editors_of_other_systems_write_stays(after, mark, note):
    text = f'{mark}{note}[mnn.fp32]\noutputs = "standard"\n'

    result = after(text, change("mnn", "fp32", provenance=(), outputs="strict"))

    assert result == text.replace("standard", "strict")
