"""`harness.core.runtime`: the runtimes that packages declare."""

import pytest

from harness.core.errors import SpecError
from harness.core.runtime import runtimes


def test_two_runtimes_of_one_name_are_refused(tmp_path, monkeypatch):
    """One of them would run in the place of the other, under its name."""
    about = tmp_path / "fork-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: fork\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[parity.runtimes]\nfork = fork:RUNTIME\n")
    (tmp_path / "fork.py").write_text("from harness.runtimes.mnn import RUNTIME\n")
    monkeypatch.syspath_prepend(tmp_path)

    says = "two runtimes are called 'mnn', fork:RUNTIME and harness.runtimes.mnn:"
    with pytest.raises(SpecError, match=says):
        runtimes.__wrapped__()
