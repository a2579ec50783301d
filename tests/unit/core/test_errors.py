"""`harness.core.errors`: the text that people read about a library's exception."""

import pytest

from harness.core.errors import first_line


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("it is so.\nfor a reason", "it is so"),
        ("\n  it is so\r\nfor a reason", "it is so"),
        ("", "ValueError"),
        (" \n", "ValueError"),
        ("These are wrong:\n\n  - one.\n  - two.", "These are wrong: - one"),
        ("Missing keys:\n" + "k" * 999, "Missing keys: " + "k" * 200),
        ("it is so:", "it is so:"),
    ],
)
def test_the_first_line_that_says_something_is_quoted_or_else_the_class(said, line):
    assert first_line(ValueError(said)) == line
