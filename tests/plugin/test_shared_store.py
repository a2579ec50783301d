"""A store that machines share: each makes what no other has put there."""

import io
import json
import pickle
import shutil
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from harness.commands.cli import main
from harness.commands.progress import ProgressLines
from harness.core.digest import digest_file
from harness.core.errors import StoreError
from harness.engine import shared
from harness.engine.run import open_store
from harness.engine.store import Store, located
from harness.plugins.fleet import shared as module
from harness.plugins.fleet.cluster import NodeSettings
from harness.plugins.fleet.shared import Shared
from harness.suite.schema import Limits
from tests.plugin.bucket import SECRETS
from tests.plugin.project import write_project


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Be another machine: one with an empty cache folder."""

    def become(name):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        monkeypatch.delenv("PARITY_STORE", raising=False)

    become("first")
    return become


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path}/shared"


def built(into):
    (into / "model.onnx").write_bytes(b"weights" * 1000)
    return {"unread": []}


def refuse(_):
    pytest.fail("it is there already")


KEY = {"component": "unet"}


def archives(url):
    return sorted(Path(url.removeprefix("file://")).rglob("*.tar*"))


def test_what_one_machine_makes_another_fetches(machine, url):
    made = Store(root=located(url)).make("onnx", KEY, built)
    machine("second")
    store = Store(root=located(url))
    fetched = store.make("onnx", KEY, refuse)
    assert fetched.path != made.path
    assert fetched.meta == made.meta
    assert fetched.file("model.onnx").read_bytes() == b"weights" * 1000
    assert [path.suffix for path in archives(url)] == [".tar"]


@pytest.mark.usefixtures("machine")
def test_a_second_look_needs_no_server(url):
    Store(root=located(url)).make("onnx", KEY, built)
    root = located(url)
    shutil.rmtree(url.removeprefix("file://"))
    assert Store(root=root).find("onnx", KEY) is not None


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("memory://box/a?sig=1", "memory://box/a?sig=2"),
        ("memory://one@box/a", "memory://two@box/a"),
        ("memory://box/a/?sig=1&se=2#x", "memory://box/a"),
    ],
)
def test_another_signature_keeps_the_cache_and_is_the_one_in_use(first, second):
    root = located(first)
    Store(root=root).make("onnx", KEY, built)
    again = located(second)
    assert again == root
    assert Store(root=again).shared == Shared(url=second)
    assert Store(root=again).find("onnx", KEY) is not None


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    "other", ["memory://box/b", "memory://crate/a", "memory://box:1/a", "file://box/a"]
)
def test_another_place_has_another_cache(other, tmp_path):
    other = other.replace("file://", f"file://{tmp_path}/")
    assert located(other) != located("memory://box/a?sig=1")


@pytest.mark.usefixtures("machine")
def test_a_worker_knows_the_shared_store_by_the_folder_alone(url):
    assert Store(root=located(url)).shared == Shared(url=url)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    "scheme", ["file", "memory", pytest.param("s3", marks=pytest.mark.fleet)]
)
def test_the_environment_names_a_shared_store(scheme, url, monkeypatch, request):
    if scheme == "s3":
        request.getfixturevalue("server")
    urls = {"file": url, "memory": "memory://ours", "s3": "s3://parity/ours"}
    monkeypatch.setenv("PARITY_STORE", urls[scheme])

    store = open_store("")
    made = store.make("onnx", KEY, built)

    assert store.shared == Shared(url=urls[scheme])
    assert [one.name for one in store.shared.entries()] == [
        "/".join(made.path.parts[-3:])
    ]


def damage(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path):
    path.write_bytes(path.read_bytes()[:700])


@pytest.mark.parametrize("harm", [damage, cut])
def test_a_damaged_object_is_made_anew_and_said(machine, url, harm, capfd):
    Store(root=located(url)).make("onnx", KEY, built)
    harm(*archives(url))
    machine("second")
    Store(root=located(url)).make("onnx", KEY, built)
    machine("third")
    Store(root=located(url)).make("onnx", KEY, refuse).check()
    assert "has a damaged entry, which is made anew" in capfd.readouterr().err


def test_nothing_is_put_into_a_store_that_may_only_be_read(machine, url):
    Store(root=located(url)).make("onnx", KEY, built)
    before = archives(url)
    machine("second")
    store = Store(root=located(url, read_only=True))
    store.make("onnx", KEY, refuse)
    store.make("onnx", {"component": "vae"}, built)
    assert archives(url) == before


def test_an_entry_that_is_removed_leaves_the_shared_store_that_may_be_written(url):
    store = Store(root=located(url))
    entry = store.make("onnx", KEY, built)

    reader = Store(root=located(url, read_only=True))
    fetched = reader.find("onnx", KEY)
    assert fetched is not None
    reader.remove(fetched)
    assert archives(url)

    store.remove(entry)
    assert not archives(url)
    assert store.find("onnx", KEY) is None


class Slow(LocalFileSystem):
    """A healthy disk that takes seconds for a file."""

    protocol = "slow"

    def get_file(self, path, into, callback=None, **_):
        size = self.size(path)
        callback.set_size(size)
        with self.open(path) as source, Path(into).open("wb") as target:
            for part in (source.read(size // 4), *([b""] * 6), source.read()):
                target.write(part)
                callback.relative_update(len(part) or 1)
                time.sleep(0.15)


def test_a_transfer_that_moves_says_how_far_it_is(machine, url, monkeypatch, capfd):
    Store(root=located(url)).make("onnx", KEY, big)
    machine("second")
    fsspec.register_implementation("slow", Slow, clobber=True)
    monkeypatch.setattr(module, "SAY_S", 0.5)
    monkeypatch.setattr(module, "_MOVED_S", 0.1)
    told = []
    monkeypatch.setattr(shared, "on_wait", lambda *words: told.append(words))
    slow = url.replace("file://", "slow://")
    Store(root=located(slow)).make("onnx", KEY, refuse)

    assert {stage for stage, _, _ in told} == {"fetching", "done"}
    assert told[0] == ("fetching", slow, "onnx: 2 of 8 MB")
    assert "waiting" not in capfd.readouterr().err


def big(into):
    (into / "model.onnx").write_bytes(b"w" * (8 << 20))
    return {}


def test_two_writers_of_one_key_do_no_harm(machine, url):
    first = Store(root=located(url)).make("onnx", KEY, built)
    Path(*archives(url)).unlink()
    machine("second")
    second = Store(root=located(url)).make("onnx", KEY, built)
    Store(root=first.path.parents[3]).push(first)
    assert len(archives(url)) == 1
    assert second.files == first.files


def test_a_file_that_would_land_elsewhere_is_not_written(machine, url, tmp_path):
    Store(root=located(url)).make("onnx", KEY, built)
    (path,) = archives(url)
    with tarfile.open(path, "w") as tar:
        tar.add(__file__, "../../../escaped")
    machine("second")
    Store(root=located(url)).make("onnx", KEY, built)
    assert not list(tmp_path.rglob("escaped"))


def test_prune_keeps_the_newest(machine, url, capsys):
    store = Store(root=located(url))
    for name in ("old", "new"):
        store.make("onnx", {"component": name}, built)
        time.sleep(0.05)
    size = archives(url)[0].stat().st_size

    assert main(["store", "prune", "--store", url, "--max-gb", str(size / 2**30)]) == 0
    assert "removed 1 entry" in capsys.readouterr().out
    machine("second")
    assert Store(root=located(url)).find("onnx", {"component": "new"})


def test_push_and_pull_copy_all(machine, url, tmp_path, capsys):
    store = Store(root=tmp_path / "own")
    store.make("onnx", KEY, built)
    assert main(["store", "push", url, "--store", str(store.root)]) == 0
    assert capsys.readouterr().out.startswith("onnx ")
    machine("second")

    assert main(["store", "pull", url]) == 0
    said = capsys.readouterr().out
    assert said.startswith("onnx ")
    assert "fetched 1 entry" in said


@pytest.mark.usefixtures("machine")
def test_a_node_tells_of_a_damaged_object(url, monkeypatch):
    """Nobody reads what it prints."""
    Store(root=located(url)).make("onnx", KEY, built)
    damage(*archives(url))
    monkeypatch.setattr(shared, "on_wait", shared.on_wait)  # which a node sets
    monkeypatch.setenv("XDG_CACHE_HOME", url.removeprefix("file://") + "-cache")
    node = NodeSettings(store=url, read_only=False, limits=Limits(), mnn_convert=None)
    told, said = [], io.StringIO()

    with node.engine(told.append) as (engine, _):
        engine.store.make("onnx", KEY, built)
    lines = ProgressLines(said, live=False)
    for one in told:
        lines.tell(one)

    assert [(one.stage, one.subject) for one in told] == [("damaged", url)]
    assert said.getvalue().split()[:2] == ["damaged", url]


@pytest.mark.fleet
@pytest.mark.usefixtures("machine", "server")
def test_missing_credentials_are_said_at_once(monkeypatch, capsys):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    start_s = time.monotonic()
    assert main(["store", "pull", "s3://parity/ours"]) == 2
    assert time.monotonic() - start_s < 30
    assert "look at its credentials" in capsys.readouterr().err


@pytest.mark.fleet
@pytest.mark.usefixtures("machine", "server")
def test_a_bucket_that_is_not_there_cannot_be_read_either():
    assert not list(Shared(url="s3://parity/never", read_only=True).entries())
    Shared(url="s3://parity/never", read_only=True).open()
    with pytest.raises(StoreError, match="s3://nowhere/ours is not there"):
        Shared(url="s3://nowhere/ours", read_only=True).open()


BAD = {
    "schema": "has schema 7, and this version of the harness knows 1",
    "password": "must not have a password",
    "chained password": "must not have a password",
    "package": "install its package, such as s3fs for s3://",
    "folder": "is no URL of a shared store",
    "missing": "make the bucket or folder, or correct the URL",
}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("how", BAD)
def test_a_shared_store_that_cannot_be_used_is_a_sentence(url, how, capsys):
    if how == "schema":
        located(url)
        mark = Path(url.removeprefix("file://"), "store.json")
        mark.write_text(json.dumps({"schema": 7}))
    named = {
        "password": "ssh://me:secret@host/path",
        "chained password": "simplecache::ssh://me:secret@host/path",
        "package": "nosuch://bucket",
        "folder": "some/folder",
    }.get(how, url)

    assert main(["store", "pull", named]) == 2
    said = capsys.readouterr().err
    assert BAD[how] in said
    assert Path(url.removeprefix("file://")).is_dir() == (how == "schema")
    assert "secret" not in said
    assert "Traceback" not in said


def test_a_run_of_another_machine_exports_nothing(machine, url, tmp_path):
    project = write_project(tmp_path / "project")
    project.only_onnxruntime()
    first = project.parity("run", "--store", url)
    machine("second")
    second = project.parity("run", "--store", url, "--read-only")

    assert (first.code, second.code) == (0, 0), first.text + second.text
    cases = [json.loads(path.read_text())["cases"][0] for path in project.reports]
    assert cases[0]["rows"] == cases[1]["rows"]
    marks = [
        {path.parent.name: path.read_bytes() for path in folder.rglob("entry.json")}
        for folder in (tmp_path / "first", tmp_path / "second")
    ]
    assert marks[1].items() <= marks[0].items()  # with the time when each was made
    assert len(marks[1]) >= 3


@pytest.mark.fleet
@pytest.mark.usefixtures("server")
def test_machines_share_a_bucket(machine):
    url = "s3://parity/ours"
    Store(root=located(url)).make("onnx", KEY, built)
    machine("second")
    Store(root=located(url)).make("onnx", KEY, refuse).check()
    (entry,) = Shared(url=url).entries()
    assert entry.name.startswith("onnx/")
    assert Shared(url=url).prune(0) == [entry]


@pytest.mark.fleet
@pytest.mark.usefixtures("machine", "server")
def test_a_bucket_that_is_not_there_is_a_sentence(capsys):
    assert main(["store", "pull", "s3://nowhere/ours"]) == 2
    said = capsys.readouterr().err
    assert "the shared store s3://nowhere/ours is not there" in said
    assert not [one for one in SECRETS if one in said]


@pytest.mark.fleet
@pytest.mark.usefixtures("machine")
def test_a_server_that_stops_is_waited_for(server, capfd, monkeypatch):
    monkeypatch.setattr(module, "SAY_S", 1.0)
    monkeypatch.setattr(shared, "on_wait", shared.on_wait)  # which a node sets
    url = "s3://parity/ours"
    node = NodeSettings(store=url, read_only=False, limits=Limits(), mnn_convert=None)
    told = []

    def again():
        time.sleep(3)
        server.start()
        server.bucket("parity")

    with node.engine(told.append) as (engine, _):
        server.stop()
        thread = threading.Thread(target=again)
        thread.start()
        engine.store.make("onnx", KEY, built)
        thread.join()

    assert "waiting: s3://parity/ours is asked for onnx/" in capfd.readouterr().err
    assert {one.subject for one in told} == {url}
    assert (told[0].stage, told[-1].stage) == ("waiting", "done")
    assert len(list(Shared(url=url).entries())) == 1


class Planted:
    """What touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return (open, (self.path, "w"))


def plant_program(local, url, mark):
    """Put a program that touches `mark` into the shared store, as sound as any entry.

    The references are taken out there, so that the next machine needs the program.
    """
    home = Path(url.removeprefix("file://"))
    for path in home.glob("v1/reference/*/*.tar"):
        path.unlink()
    (program,) = local.rglob("program.pt2")
    folder = shutil.copytree(program.parent, home.parent / "planted")
    with (
        zipfile.ZipFile(program) as source,
        zipfile.ZipFile(folder / program.name, "w") as target,
    ):
        for name in source.namelist():
            is_read_first = name.endswith("data/sample_inputs/model.pt")
            evil = pickle.dumps(Planted(mark))
            target.writestr(name, evil if is_read_first else source.read(name))
    about = (folder / "program.pt2").stat()
    record = json.loads((folder / "entry.json").read_text())
    digest = digest_file(folder / "program.pt2")
    said = {"size_bytes": about.st_size, "digest": digest}
    record["files"]["program.pt2"] = said
    (folder / "entry.json").write_text(json.dumps(record))
    kind, two, name = program.parent.parts[-3:]
    archive = home / "v1" / kind / two / f"{name}.tar"
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)


@pytest.mark.parametrize("words", [(), ("--read-only",)])
def test_a_program_in_a_shared_store_never_runs(machine, url, tmp_path, words):
    """It takes two runs, because the worker of a second machine must need it."""
    project = write_project(tmp_path / "project")
    project.only_onnxruntime()
    project.parity("run", "--store", url).check(0)
    plant_program(tmp_path / "first", url, tmp_path / "ran")
    machine("second")

    project.parity("run", "--store", url, *words).check(0)

    assert not (tmp_path / "ran").exists()
    assert len(list((tmp_path / "second").rglob("values.bin"))) == 1  # made anew
