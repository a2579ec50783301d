"""Text that is not ours is shown without what a terminal acts on, and not too long."""

import time
import unicodedata

import pytest

from harness.core.text import LOG, MESSAGE, printable, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b]0;x\x07", r"\x1b]0;x\x07", id="title-of-a-window"),
        pytest.param("\x9b31m", r"\x9b31m", id="c1"),
        pytest.param("a\x7fb\x00", r"a\x7fb\x00", id="del-and-nul"),
        pytest.param("a\u202eb\u2066", r"a\u202eb\u2066", id="bidi"),
        pytest.param("a\u200bb\ufeff\u00ad", r"a\u200bb\ufeff\xad", id="zero-width"),
        pytest.param("a\u2028b\u2029", r"a\u2028b\u2029", id="separators"),
        pytest.param("\ud800", r"\ud800", id="half-of-a-pair"),
        pytest.param("\ue000\U000e0041", r"\ue000\U000e0041", id="private-and-tags"),
        pytest.param("a\rb\nc\td\x85", r"a\rb\nc\td\x85", id="line-breaks"),
        pytest.param(
            "unet 日本 é×≤ 🙂\u00a0\u3000", "unet 日本 é×≤ 🙂\u00a0\u3000", id="ours"
        ),
    ],
)
def test_a_character_that_a_terminal_acts_on_is_an_escape(text, shown):
    assert printable(text) == shown


def test_no_character_that_acts_is_left_of_a_whole_alphabet():
    codes = (*range(0x3100), *range(0xD7FF, 0x11100), *range(0xE0000, 0xE0200))
    shown = printable("".join(map(chr, codes)), 0x1000000)
    kinds = {unicodedata.category(letter) for letter in shown}
    assert kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} == set()


def test_lines_are_kept_where_lines_are_meant():
    log = "one\r\n\ttwo\r 5%\r 9%\n"
    assert printable(log, lines=True) == "one\n\ttwo\\r 5%\\r 9%\n"


@pytest.mark.parametrize("text", ["a\x1b[2J\n", "é\u202e" * 5000, "x" * 10_000])
def test_a_text_that_was_made_printable_is_not_changed_again(text):
    once = printable(text)
    assert printable(once) == once
    assert len(once) <= MESSAGE


def test_a_long_text_keeps_its_beginning_and_its_end():
    text = shortened("begin" + "x" * 10**6 + "end", 200)
    assert len(text) <= 200
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "the middle of 1,000,008 characters is left out" in text


def test_a_megabyte_of_control_sequences_is_made_printable_in_no_time():
    start_s = time.perf_counter()
    assert len(printable("\x1b[2J\u202e" * 200_000, LOG, lines=True)) <= LOG
    assert time.perf_counter() - start_s < 2
