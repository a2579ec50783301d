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


def test_a_run_of_a_user_that_is_not_here_names_its_suite():
    command = NextSteps().explain("unet/mnn/fp32", "~nobody-of-this-name/parity.toml")
    assert command.endswith(" --suite '~nobody-of-this-name'")
