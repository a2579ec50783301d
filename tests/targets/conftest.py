"""Emulated arm64 processors, which are made once for all tests."""

import pytest

from tests.plugin.project import write_project


@pytest.fixture(scope="session")
def machines(tmp_path_factory):
    """The commands of two processors, the first of which has float16 arithmetic."""
    project = write_project(tmp_path_factory.mktemp("make"))
    for cpu in ("cortex-a76", "cortex-a53"):
        made = project.parity(
            "target", "make", "arm64", "--cpu", cpu, "--into", "arm64"
        )
        if made.has("cannot be had") or made.has("is made from packages of Debian"):
            pytest.skip(f"no emulated arm64 here: {made.text.strip()}")
        assert made.code == 0, made.text
    return [str(project.path / "arm64" / cpu) for cpu in ("cortex-a76", "cortex-a53")]
