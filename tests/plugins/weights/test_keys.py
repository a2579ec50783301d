"""The code that compares graphs decides what the store has of a comparison."""

import pytest

from harness.engine import keys, tasks

NAME = "harness.plugins.weights.graph:differences"


@pytest.fixture(autouse=True)
def _forget():
    yield
    keys.code_of_plugins.cache_clear()


def test_the_code_of_the_plug_in_decides_an_entry():
    known = tasks.CHECKED.of(takes=()).key()["plugins"]
    assert known == {NAME: keys.code_digest(("plugins/weights",))}


def test_a_function_less_decides_another_entry(monkeypatch):
    before = tasks.CHECKED.of(takes=()).key()
    monkeypatch.setattr(keys, "declared", lambda _kind: ())
    keys.code_of_plugins.cache_clear()
    assert tasks.CHECKED.of(takes=()).key() != before
