"""Every text goes to a terminal and to a page through `harness.core.shown`."""

import ast

import pytest

from harness.core.shown import all_written, shown, written
from harness.core.text import LOG, MESSAGE, NAME
from tests.places import ROOT

PACKAGE = ROOT / "harness"
PRINTS = {"print", "echo", "secho", "echo_via_pager", "confirm", "prompt", "pager"}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
OWN = {
    "core/shown.py": "it is the place",
    "commands/progress.py": "it moves the cursor; its texts are `shown`",
    "plugins/elsewhere/bundle_run.py": "it runs on a target, without the harness",
    "plugins/elsewhere/agent.py": "it runs on a target, without the harness",
    "plugins/browser/serve.py": "it lies in a bundle, without the harness",
}


def printing(tree):
    """Yield the line of each call that prints, without this module."""
    own = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "harness.core.shown"
        for alias in node.names
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in PRINTS - own:
            yield node.lineno
        elif isinstance(called, ast.Attribute):
            of = called.value
            name = of.id if isinstance(of, ast.Name) else ""
            if (name, called.attr) == ("warnings", "warn"):
                yield node.lineno
            if name == "click" and called.attr in PRINTS:
                yield node.lineno
            stream = isinstance(of, ast.Attribute) and of.attr in STREAMS
            if stream and called.attr in {"write", "writelines"}:
                yield node.lineno


@pytest.mark.parametrize(
    "source",
    [
        "print('x')",
        "import click\nclick.echo('x')",
        "import click\nclick.secho('x')",
        "import sys\nsys.stderr.write('x')",
        "from click import echo\necho('x')",
        "import warnings\nwarnings.warn('x')",
    ],
)
def test_a_call_that_prints_is_seen(source):
    assert list(printing(ast.parse(source)))


def test_no_other_module_prints():
    found = {
        path.relative_to(PACKAGE).as_posix(): lines
        for path in sorted(PACKAGE.rglob("*.py"))
        if (lines := [*printing(ast.parse(path.read_text(encoding="utf-8")))])
    }
    assert {name: lines for name, lines in found.items() if name not in OWN} == {}


def test_a_line_for_a_screen_has_no_secret_and_no_second_line():
    text = shown("conv\n ✓ all agree, s3://key:secret@bucket?x=1, /home/ann/x")
    assert text == r"conv\n ✓ all agree, s3://…@bucket?…, /home/ann/x"


def test_a_text_for_a_page_has_no_personal_path_either():
    assert written("at /home/ann/x\x9b31m\nnext") == "at ~/x\\x9b31m\nnext"


@pytest.mark.parametrize(
    ("text", "most"),
    [
        pytest.param("x" * 10_000, NAME, id="name"),
        pytest.param(f"{'x' * 10_000} is off", NAME + len(" is off"), id="in-a-line"),
        pytest.param("no such file " * 10_000, MESSAGE, id="message"),
    ],
)
def test_what_is_shown_is_not_long(text, most):
    assert len(shown(text)) <= most
    assert len(written(text, lines=False)) <= most
    assert len(written(f"{text}\n" * 100)) <= LOG


def test_values_keep_their_form():
    told = {"/home/ann": ["/home/ann/x", 3, None, ("a\x1b", 0.5)]}
    assert all_written(told) == {"/home/ann": ["~/x", 3, None, [r"a\x1b", 0.5]]}
