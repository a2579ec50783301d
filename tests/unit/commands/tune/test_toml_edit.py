"""Tables change; comments, order and every other byte stay."""

import tomllib

import pytest

from harness.commands.tune.toml_edit import MARK, TableChange, changed, value_of
from harness.core.errors import SuiteError

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


def test_a_value_is_replaced_and_the_comment_after_it_stays():
    result = changed(TEXT, [change("unet", "mnn", "fp32", layers='"strict"')], "t")

    assert result == TEXT.replace(
        '[unet.mnn.fp32]\nlayers = { tier = "standard", floors = 40.0 }',
        '# tuned today\n[unet.mnn.fp32]\nlayers = "strict"',
    )


def test_provenance_takes_the_place_of_the_earlier_one_alone():
    once = changed(TEXT, [change("vae", "mnn", "fp32", layers='"exact"')], "t")
    lines = (f"{MARK}tomorrow", f"{MARK}and how")
    twice = changed(
        once,
        [change("vae", "mnn", "fp32", provenance=lines, layers='"exact"')],
        "t",
    )

    assert "# The VAE.\n# tuned tomorrow\n# tuned and how\n[vae.mnn.fp32]" in twice
    assert "today" not in twice


def test_windows_line_ends_stay():
    text = '# mine\r\n[mnn.fp32]\r\nlayers = "standard"\r\n'
    change = TableChange(
        path=("mnn", "fp32"), values={"layers": '"strict"'}, provenance=()
    )

    assert changed(text, [change], "t.toml") == text.replace("standard", "strict")


def test_a_new_table_stands_after_its_kin():
    result = changed(TEXT, [change("unet", "mnn", "int8", outputs='"strict"')], "t")

    assert '"another"\n\n# tuned today\n[unet.mnn.int8]\noutputs' in result
    assert (
        result.replace('\n# tuned today\n[unet.mnn.int8]\noutputs = "strict"\n', "")
        == TEXT
    )


def test_a_new_table_without_kin_stands_at_the_end():
    result = changed(TEXT, [change("clip", "mnn", "fp32", outputs='"strict"')], "t")

    assert result.endswith('\n# tuned today\n[clip.mnn.fp32]\noutputs = "strict"\n')


def test_a_key_that_is_not_there_stands_before_the_reason():
    result = changed(TEXT, [change("unet", "mnn", "fp32", outputs='"strict"')], "t")

    assert 'in May\noutputs = "strict"\nwhy = "a reason"' in result


def test_a_reason_of_several_lines_is_replaced_as_a_whole():
    text = TEXT.replace('"a reason"', '"""a\n[reason]\n"""')

    result = changed(text, [change("unet", "mnn", "fp32", why='"short"')], "t")

    assert 'why = "short"\n\n[unet.mnn.fp32.probes' in result


def test_a_pattern_is_a_key_like_any_other():
    path = ("unet", "mnn", "fp32", "probes", "time_*")

    result = changed(TEXT, [change(*path, layers='"standard"')], "t")

    table = tomllib.loads(result)["unet"]["mnn"]["fp32"]["probes"]["time_*"]
    assert table == {"layers": "standard", "why": "another"}


def test_a_table_that_is_written_inline_is_refused_and_named():
    text = 'vae.mnn.fp32 = { layers = "strict" }\n'

    with pytest.raises(SuiteError, match=r"\[vae\.mnn\.fp32\] cannot be changed"):
        changed(text, [change("vae", "mnn", "fp32", layers='"exact"')], "t.toml")


def test_a_header_in_a_text_is_no_table():
    text = TEXT.replace('"a reason"', '"""a\n[vae.mnn.fp32]\n"""')

    result = changed(text, [change("vae", "mnn", "fp32", layers='"exact"')], "t")

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
def test_a_value_reads_back_as_it_was_meant(tier, bounds, text):
    assert value_of(tier, bounds) == text
    tomllib.loads(f"x = {text}")
