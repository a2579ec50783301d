"""The next command names the suite of the run, so that it can be copied."""

import pytest

from harness.core.settings import suite_option


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("parity.toml", ""),
        ("fast.toml", " --suite fast.toml"),
        ("below/parity.toml", " --suite below"),
        ("my suite/parity.toml", " --suite 'my suite'"),
        ("/srv/x/fast.toml", " --suite /srv/x/fast.toml"),
    ],
)
def test_the_option_names_the_suite_from_here(tmp_path, monkeypatch, path, option):
    monkeypatch.chdir(tmp_path)

    assert suite_option(str(tmp_path / path)) == option
