"""What somebody else may have sent is read typed and bounded."""

from __future__ import annotations

import msgspec
import pytest

from harness.core.case import TensorSpec
from harness.core.errors import SpecError
from harness.core.received import DamagedError, decode, leads_inside, read_bytes


class Told(msgspec.Struct):
    layers: int
    more: object = None


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ('{"layers": NaN}', "malformed"),
        ('{"layers": [2]}', r"Expected `int`, got `array` - at `\$.layers`"),
        ('{"layers": 1, "more": ' + "[" * 100_000, "nested too deeply"),
        ('{"layers": ' + "9" * 5000 + "}", "out of range"),
        ("[" * 100_000, "Expected `object`"),
        (b"\xff\xfe", "malformed|decode"),
        ("", "truncated"),
    ],
)
def test_json_that_is_not_what_it_must_be_is_one_clause(text, clause):
    with pytest.raises(DamagedError, match=clause):
        decode(text, Told)


@pytest.mark.parametrize("name", ["x" * 256, "ä" * 128, "a/" * 600, "a/" * 3000])
def test_a_path_from_data_that_no_system_holds_leads_nowhere(name):
    assert not leads_inside(name)


def test_a_file_that_is_no_plain_file_or_too_large_is_not_read(tmp_path):
    (tmp_path / "large").write_bytes(b"12345")
    with pytest.raises(DamagedError, match="more than 4 bytes"):
        read_bytes(tmp_path / "large", most_bytes=4)


@pytest.mark.parametrize("size", [None, [4, 8], 2.5])
def test_a_shape_has_whole_numbers_and_symbols_alone(size):
    with pytest.raises(
        SpecError, match=r"^pooled: a size in .* is no number and no symbol"
    ):
        TensorSpec(name="pooled", shape=("batch", size))
