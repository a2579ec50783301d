"""A full disk, and stores and reports that cannot be used, end in one sentence."""

import os
import shutil
import subprocess

import pytest

from harness.core.kinds import PROGRAM

needs_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root"
)


@pytest.fixture
def small_disk(tmp_path):
    """Return a function that mounts a disk with so much room, under the test's own."""
    mounted = []

    def mount(size_bytes: int):
        disk = tmp_path / f"disk{len(mounted)}"
        disk.mkdir()
        options = f"size={size_bytes}"
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("this machine lets nobody mount")
        mounted.append(disk)
        return disk

    yield mount
    for disk in mounted:
        subprocess.run(["umount", str(disk)], check=True)


@needs_root
@pytest.mark.parametrize("lacking", [("mnn",), ("reference", PROGRAM)], ids="-".join)
def test_a_full_disk_ends_a_stage_with_nothing_half_written(
    project, small_disk, lacking
):
    for kind in lacking:
        shutil.rmtree(project.store / "v1" / kind)
    disk = small_disk(8 << 20)
    shutil.move(project.store, disk / "store")
    project.env["PARITY_STORE"] = str(disk / "store")
    with (disk / "ballast").open("wb") as file:
        file.write(bytes(shutil.disk_usage(disk).free - (48 << 10)))

    ended = project.run("mnn")

    assert ended.code == 2
    assert ended.sentence("No space left", "parity store prune", "PARITY_STORE")
    assert sorted((disk / "store").glob("making/*")) == []
    for kind in lacking:
        assert sorted((disk / "store").glob(f"v1/{kind}/*/*/*")) == []


@needs_root
def test_reports_that_do_not_fit_on_the_disk_end_in_could_not_tell(project, small_disk):
    disk = small_disk(8 << 20)
    with (disk / "ballast").open("wb") as file:
        file.write(bytes(shutil.disk_usage(disk).free - (4 << 10)))
    ended = project.run("mnn", "--runs", str(disk / "runs"))
    assert ended.code == 2
    assert ended.sentence("parity:", "No space left")
    assert not list(disk.glob("runs/*/report.json"))


def test_a_store_that_is_a_file_is_named(empty):
    empty.write("vae_decoder")
    empty.store.write_text("", encoding="utf-8")
    ended = empty.run()
    assert ended.code == 2
    assert ended.sentence("cannot be used", str(empty.store), "PARITY_STORE")
