"""The next command names the suite of the run, so that it can be copied."""

import pytest

from harness.core.settings import NextSteps


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

    command = NextSteps().explain("unet/mnn/fp32", str(tmp_path / path))
    assert command == f"parity explain unet/mnn/fp32{option}"
