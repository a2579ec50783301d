"""Converting installs nothing, and needs no network; the wheel's own command does."""

import shutil


def test_a_conversion_needs_no_network_and_no_package(project, packages, installed):
    shutil.rmtree(project.store / "v1" / "mnn")
    before = installed()
    assert project.run("mnn", wrap=("unshare", "--net")).code == 0
    assert (project.entry("mnn") / "model.mnn").is_file()
    assert installed() == before == packages
