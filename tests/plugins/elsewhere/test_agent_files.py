"""Which files an agent trusts that it finds on a target, and where it puts others."""

import hashlib
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from harness.plugins.elsewhere import agent

MODEL, PLANTED = b"a model", b"a trick"
DIGEST = hashlib.sha256(MODEL).hexdigest()
SIZES = {DIGEST: len(MODEL)}


@pytest.fixture
def usual(tmp_path, monkeypatch):
    """The usual folder of an agent; it is not there yet."""
    tmp_path.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"parity-agent-{os.getuid()}"


def put(files, data=MODEL):
    files.put(DIGEST, 0, len(data), np.frombuffer(data, np.uint8))


def lacking(files):
    return files.have(SIZES)["lacking"]


@contextmanager
def opened():
    files = agent.Files()
    try:
        yield files
    finally:
        files.leave()


def test_a_file_is_found_in_the_next_session_and_only_this_user_can_write_it(usual):
    with opened() as files:
        put(files)
    with opened() as again:
        assert again.have(SIZES) == {"lacking": [], "note": ""}
    assert usual.stat().st_mode & 0o777 == 0o700
    assert (usual / DIGEST).stat().st_mode & 0o777 == 0o600


def by_another_user(usual, _):
    usual.mkdir(mode=0o700)
    try:
        os.chown(usual, 65534, 65534)
    except PermissionError:
        pytest.skip("only root can give a folder to another user")


def as_a_link(usual, there):
    there.mkdir(mode=0o700)
    usual.symlink_to(there)


def for_all(usual, _):
    usual.mkdir()
    usual.chmod(0o777)


def where_all_may_write(usual, _):
    usual.parent.chmod(0o777)
    usual.mkdir(mode=0o700)


MADE = {
    by_another_user: "belongs to another user",
    as_a_link: "is no folder",
    for_all: "may be written by other users",
    where_all_may_write: "may be replaced by other users",
}


@pytest.mark.parametrize("make", MADE)
def test_a_planted_model_is_not_used_and_the_harness_is_told(usual, tmp_path, make):
    make(usual, tmp_path / "there")
    (usual / DIGEST).write_bytes(PLANTED)

    with opened() as files:
        found = files.have(SIZES)
        put(files)
        placed = Path(files.place({"model.onnx": DIGEST}))

        assert found["lacking"] == [DIGEST]
        assert f"{usual} {MADE[make]}; " in found["note"]
        assert (placed / "model.onnx").read_bytes() == MODEL
        assert usual not in placed.parents

    assert not placed.parent.exists()
    assert (usual / DIGEST).read_bytes() == PLANTED


def test_where_others_may_write_a_file_is_read_again(usual):
    where_all_may_write(usual, None)
    with opened() as files:
        put(files)
        assert lacking(files) == []
        (own,) = usual.parent.glob(f"parity-agent-*/{DIGEST}")
        own.write_bytes(PLANTED)
        assert lacking(files) == [DIGEST]


def as_a_file_of_all(path):
    path.write_bytes(PLANTED)
    path.chmod(0o666)


def as_a_link_to_a_file(path):
    elsewhere = path.parent.parent / "planted"
    elsewhere.write_bytes(PLANTED)
    path.symlink_to(elsewhere)


def as_a_pipe(path):
    os.mkfifo(path)


@pytest.mark.parametrize("plant", [as_a_file_of_all, as_a_link_to_a_file, as_a_pipe])
def test_what_is_no_plain_file_of_this_user_is_sent_again(usual, plant):
    with opened() as files:
        plant(usual / DIGEST)
        assert lacking(files) == [DIGEST]
        put(files)
        assert (usual / DIGEST).read_bytes() == MODEL
    if plant is as_a_link_to_a_file:
        assert (usual.parent / "planted").read_bytes() == PLANTED


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize(
    "digest", ["../x", "/etc/passwd", "", "x" * 64, DIGEST[1:], f"{DIGEST}\n"]
)
def test_a_digest_that_is_none_is_no_name(digest):
    with opened() as files:
        for use in (
            lambda: files.have({digest: 1}),
            lambda: files.put(digest, 0, 1, np.zeros(1, np.uint8)),
            lambda: files.place({"model": digest}),
        ):
            with pytest.raises(ValueError, match="is no digest"):
                use()


@pytest.mark.usefixtures("usual")
@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "", ".", "..", "a/"])
def test_a_name_that_is_a_path_is_refused(name):
    with opened() as files:
        put(files)
        with pytest.raises(ValueError, match="is no name of a file"):
            files.place({name: DIGEST})


def test_a_damaged_file_is_refused(usual):
    with opened() as files:
        with pytest.raises(ValueError, match="damaged"):
            put(files, PLANTED)
        assert list(usual.iterdir()) == []


@pytest.fixture
def shared(tmp_path):
    """A file of the harness's, as the agent is told of it."""
    path = tmp_path / "model"
    path.write_bytes(MODEL)
    return path, {str(path): agent.identity(path)}


def test_a_file_of_the_harness_is_read_where_it_is(shared):
    assert agent.seen_here(shared[1])


@pytest.mark.parametrize("at", range(4), ids=["inode", "size", "time", "owner"])
def test_another_file_of_the_same_path_is_not_used(shared, at):
    path, told = shared
    told[str(path)][at] += 1
    assert not agent.seen_here(told)
