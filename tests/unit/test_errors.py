"""`harness.errors`: what people read of an exception that others raised."""

import pytest

from harness.errors import first_line


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("it is so.\nfor a reason", "it is so"),
        ("\n  it is so\r\nfor a reason", "it is so"),
        ("", "ValueError"),
        (" \n", "ValueError"),
    ],
)
def test_the_first_line_that_says_something_is_quoted_or_else_the_class(said, line):
    assert first_line(ValueError(said)) == line
