"""Each key of the store has one whole entry, even after a crash or on a full disk."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from harness.commands.cli import main
from harness.core.digest import digest_file, digest_tree, digest_value
from harness.core.entry import Entry
from harness.core.errors import SpecError, StoreError
from harness.core.kinds import PROGRAM
from harness.core.store_root import local_root
from harness.engine.run import open_store
from harness.engine.store import Store, limit_bytes, stored_bytes
from tests.places import ROOT

KEY = {"component": "unet", "opset": 18}


@pytest.fixture
def store(tmp_path):
    return Store(root=tmp_path / "store")


def build(folder: Path) -> dict[str, object]:
    (folder / "weights").mkdir()
    (folder / "weights" / "0.bin").write_bytes(b"w" * 1000)
    (folder / "model.onnx").write_bytes(b"graph")
    return {"inputs": ["sample"]}


def never(_folder: Path) -> dict[str, object]:
    pytest.fail("it was built a second time")


def visible(store: Store) -> list[str]:
    """Return every file below the root except locks and the mark."""
    return sorted(
        path.relative_to(store.root).as_posix()
        for path in store.root.rglob("*")
        if path.is_file() and path.parent.name != "locks" and path.name != "store.json"
    )


def maker(root: Path, body: str, *prefix: str) -> subprocess.Popen[str]:
    """Start a process that makes KEY in the store with `body` as its build."""
    script = f"""
        import errno, os, resource, signal, sys, time
        from pathlib import Path
        from harness.core.errors import ParityError
        from harness.engine.store import Store
        def build(folder):
            (folder / "a.bin").write_bytes(b"a" * 1000)
            {body}
            return {{}}
        try:
            print(Store(root=Path({str(root)!r})).make("onnx", {KEY!r}, build).path)
        except ParityError as error:
            sys.exit(f"{{type(error).__name__}}: {{error}}")
    """
    return subprocess.Popen(
        [*prefix, sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def workplace_of_a_live_maker(store: Store) -> Path:
    end = time.monotonic() + 20
    while not (found := list(store.root.glob("making/*/a.bin"))):
        assert time.monotonic() < end, "the maker did not start"
        time.sleep(0.01)
    return found[0]


def test_what_was_made_is_found_with_its_files_meta_and_makers(store):
    made = store.make("onnx", KEY, build)
    found = store.find("onnx", KEY)

    assert found is not None
    assert found.meta == {"inputs": ["sample"]}
    assert found.key == KEY
    assert sorted(found.files) == ["model.onnx", "weights/0.bin"]
    assert found.file("weights/0.bin").read_bytes() == b"w" * 1000
    assert found.size_bytes == 1005
    assert found.made_by["harness"]
    assert found.path == made.path
    assert made.path.parent.parent.parent == store.root / "v1"
    found.check()


def test_a_key_is_made_once_and_another_kind_or_key_is_another_entry(store):
    store.make("onnx", KEY, build)
    store.make("onnx", dict(reversed(KEY.items())), never)
    assert store.find("mnn", KEY) is None
    assert store.find("onnx", KEY | {"opset": 17}) is None


def test_finding_in_a_store_that_is_not_there_writes_nothing(store):
    assert store.find("onnx", KEY) is None
    assert list(store.entries()) == []
    assert list(store.verify()) == []
    assert not store.root.exists()


def test_a_file_it_does_not_have_is_named_with_those_it_has(store):
    entry = store.make("onnx", KEY, build)
    with pytest.raises(
        StoreError, match=r"no file 'model\.mnn'; it has \['model\.onnx'"
    ):
        entry.file("model.mnn")


def test_four_processes_that_want_one_key_build_it_once(tmp_path):
    log = tmp_path / "built"
    body = f"open({str(log)!r}, 'a').write('x'); time.sleep(0.3)"
    artifacts = [maker(tmp_path / "store", body) for _ in range(4)]
    answers = {process.communicate(timeout=60)[0] for process in artifacts}
    assert [process.returncode for process in artifacts] == [0, 0, 0, 0]
    assert len(answers) == 1
    assert log.read_text() == "x"


def broken(folder):
    build(folder)
    raise KeyboardInterrupt


SPOILT = {
    "raises": (broken, KeyboardInterrupt, "^$"),
    "returns no JSON": (
        lambda _: {"shape": {1, 2}},
        *(SpecError, r"Build of 'onnx' returned: meta\.shape"),
    ),
    "leaves a link": (
        lambda at: (at / "link").symlink_to("/etc") or {},
        *(StoreError, "wrote 'link': an entry holds plain files"),
    ),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_build_that_is_spoilt_leaves_nothing_and_its_error_passes(store, how):
    spoilt, error, words = SPOILT[how]
    with pytest.raises(error, match=words):
        store.make("onnx", KEY, spoilt)
    assert visible(store) == []
    assert list((store.root / "making").iterdir()) == []


def test_a_maker_killed_in_the_middle_leaves_no_entry_and_the_next_succeeds(store):
    process = maker(store.root, "time.sleep(60)")
    workplace_of_a_live_maker(store)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    assert len(visible(store)) == 1  # in its workplace, which no one looks at
    assert store.find("onnx", KEY) is None
    assert list(store.entries()) == []
    store.make("onnx", KEY, build).check()
    assert list((store.root / "making").iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(f"onnx.{'0' * 32}.1234", id="of an entry"),
        pytest.param("tmp1234", id="of no entry"),
    ],
)
def test_what_a_killed_maker_of_another_key_left_is_found_and_swept(store, name):
    left = store.root / "making" / name
    left.mkdir(parents=True)
    [finding] = store.verify()
    assert (finding.path, finding.removed) == (left, True)
    assert not left.exists()


def test_a_live_maker_is_neither_swept_nor_cleared(store):
    process = maker(store.root, "time.sleep(60)")
    try:
        left = workplace_of_a_live_maker(store)

        assert list(store.verify()) == []
        assert store.clear() == ()
        assert left.exists()
    finally:
        process.kill()
        process.communicate()


def test_a_file_system_that_is_full_is_said_with_sizes_and_leaves_nothing(tmp_path):
    mount = f'mount -t tmpfs -o size=4m none {tmp_path} && exec "$@"'
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount"]
    prefix = [*own_mounts, "sh", "-c", mount, "sh"]
    try:
        subprocess.run([*prefix, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system of our own can be mounted here: {error}")
    look = f"print(list(Path({str(tmp_path)!r}).rglob('*.bin')), file=sys.stderr)"
    last = f"__import__('atexit').register(lambda: {look})"
    fill = "(folder / 'b.bin').write_bytes(bytes(8 << 20))"
    process = maker(tmp_path, f"{last}; {fill}", *prefix)
    err = process.communicate(timeout=60)[1]

    assert process.returncode == 1
    assert "StoreError: The store at" in err
    assert (
        "No space left on device; it needs more than the 4.2 MB written so far" in err
    )
    assert "0.0 MB are free. Run `parity store prune`" in err
    assert err.endswith("[]\n")


def test_a_native_build_that_fails_on_a_full_disk_is_told_so(store, monkeypatch):
    monkeypatch.setattr("harness.engine.store.free_bytes", lambda _: 4096)

    def converter(_folder):
        msg = "Converted Failed!"
        raise RuntimeError(msg)

    with pytest.raises(StoreError, match="No space left on device"):
        store.make("onnx", KEY, converter)


def test_a_limit_on_file_size_is_said_and_leaves_nothing(store):
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))"
    process = maker(store.root, f"{limit}; (folder / 'b').write_bytes(bytes(1 << 20))")
    err = process.communicate(timeout=60)[1]
    assert "StoreError" in err
    assert "File too large" in err
    assert visible(store) == []


def test_a_disk_that_is_full_at_the_last_step_leaves_nothing(store, monkeypatch):
    def full(path, target):
        if target.name.startswith("discarded"):
            return
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "rename", full)

    with pytest.raises(StoreError, match="No space left on device"):
        store.make("onnx", KEY, build)
    assert visible(store) == []


def test_a_root_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    roots = {"Not a directory": tmp_path / "file" / "store"}
    if Path("/proc/self").exists():
        roots["Set PARITY_STORE to a folder that you can"] = Path("/proc/parity")
    for words, root in roots.items():
        with pytest.raises(StoreError, match=f"cannot be used: .*{words}"):
            Store(root=root).make("onnx", KEY, build)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        pytest.param({"path": Path("x")}, r"path cannot be .*PosixPath", id="path"),
        pytest.param({"a": {"b": [1, float("nan")]}}, r"a\.b\[1\] .* nan", id="nan"),
        pytest.param({"a": {1: 2}}, r"a cannot be written .*\{1: 2\}", id="number-key"),
    ],
)
def test_a_key_without_an_exact_json_form_is_refused_by_place(store, key, message):
    with pytest.raises(SpecError, match=message):
        store.make("onnx", key, never)


@pytest.mark.parametrize("kind", ["", "../up", "Onnx", "a/b"])
def test_a_kind_that_is_no_name_is_refused(store, kind):
    with pytest.raises(SpecError, match="kind must be"):
        store.find(kind, KEY)


def damaged(entry: Entry, how: str) -> None:
    path = entry.path / "weights" / "0.bin"
    match how:
        case "missing":
            path.unlink()
        case "truncated":
            os.truncate(path, 10)
        case "changed":
            path.write_bytes(b"v" * 1000)


@pytest.mark.parametrize("how", ["missing", "truncated", "changed"])
def test_check_names_the_file_that_is_damaged_and_the_way_out(store, how):
    entry = store.make("onnx", KEY, build)
    damaged(entry, how)
    with pytest.raises(StoreError, match=rf"0\.bin .*{how}.*`parity store verify`"):
        entry.check()
    if how != "changed":  # which only the digest tells
        assert store.find("onnx", KEY) is None
        store.make("onnx", KEY, build).check()


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(None, id="missing"),
        pytest.param("{", id="half-written"),
        pytest.param("[]", id="no-mapping"),
        pytest.param('{"kind": "onnx"}', id="incomplete"),
    ],
)
def test_an_entry_whose_record_is_unreadable_is_absent_and_replaced(store, record):
    path = store.make("onnx", KEY, build).path / "entry.json"
    path.unlink() if record is None else path.write_text(record)
    assert store.find("onnx", KEY) is None
    store.make("onnx", KEY, build).check()


def test_verify_takes_out_what_is_damaged_and_leaves_the_rest(store):
    sound = store.make("onnx", KEY | {"opset": 17}, build)
    bad = store.make("onnx", KEY, build)
    damaged(bad, "changed")
    [finding] = store.verify()
    assert finding.path == bad.path
    assert "0.bin was changed" in finding.problem
    assert [entry.id for entry in store.entries()] == [sound.id]
    assert list(store.verify()) == []


def weights(folder: Path) -> dict[str, object]:
    (folder / "weights.bin").write_bytes(b"w" * (1 << 17))
    return {}


@pytest.fixture
def alike(store):
    """Return two entries that have one large file in common."""
    return [store.make("mnn", KEY | {"opset": opset}, weights) for opset in (17, 18)]


def test_a_large_file_of_two_entries_is_on_the_disk_once(alike):
    one, two = (entry.path / "weights.bin" for entry in alike)
    assert one.samefile(two)
    assert stored_bytes(alike) == 1 << 17
    assert sum(entry.size_bytes for entry in alike) == 2 << 17


def test_onnx_reads_the_weights_of_two_entries(store):
    """It refuses weights that have several names."""
    weights = onnx.numpy_helper.from_array(np.ones((256, 256), np.float32), "w")
    graph = onnx.helper.make_graph([], "g", [], [], [weights])

    def external(folder: Path) -> dict[str, object]:
        model = onnx.helper.make_model(graph)
        onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="w")
        return {}

    entries = [store.make("onnx", KEY | {"opset": at}, external) for at in (17, 18)]

    assert entries[0].file("w").stat().st_size == 4 * 256 * 256
    for entry in entries:
        assert onnx.load(entry.file("m.onnx")).graph.initializer[0].raw_data


def test_without_links_a_large_file_is_in_each_entry(store, monkeypatch):
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)

    entries = [store.make("mnn", KEY | {"opset": at}, weights) for at in (17, 18)]

    assert stored_bytes(entries) == 2 << 17
    assert list(store.verify()) == []


def test_a_large_file_goes_with_the_last_entry_that_has_it(store, alike):
    then = time.time() - 2 * 86_400
    os.utime(alike[0].path / "entry.json", (then, then))
    store.prune(0)
    assert [entry.id for entry in store.entries()] == [alike[1].id]
    assert len(list(store.root.glob("files/*"))) == 1
    store.clear()
    assert list(store.root.glob("files/*")) == []


def test_a_large_file_that_was_damaged_is_in_no_entry_made_later(store, alike):
    (alike[0].path / "weights.bin").write_bytes(b"x" * (1 << 17))
    damaged_ids = {finding.path.name for finding in store.verify()}
    store.make("mnn", KEY, weights).check()
    assert damaged_ids == {entry.key_digest for entry in alike}


def test_a_store_of_a_newer_schema_is_refused_and_not_touched(store):
    store.make("onnx", KEY, build)
    mark = store.root / "store.json"
    mark.write_text(json.dumps({"schema": 2}))
    before = visible(store)

    left = r"schema 2; harness .* knows 1, so it was left untouched. Take a newer har"
    with pytest.raises(StoreError, match=left):
        Store(root=store.root)
    with pytest.raises(StoreError, match="schema 2"):
        store.make("onnx", KEY | {"opset": 17}, never)
    assert visible(store) == before


def test_a_mark_that_is_not_one_is_refused(store):
    store.root.mkdir()
    (store.root / "store.json").write_text("nonsense")
    with pytest.raises(StoreError, match="is not a store's mark"):
        Store(root=store.root)


def aged(store: Store, opset: int, age_s: float) -> Entry:
    entry = store.make("onnx", KEY | {"opset": opset}, build)
    then = time.time() - age_s
    os.utime(entry.path / "entry.json", (then, then))
    return entry


def opsets(entries) -> list[object]:
    return [entry.key["opset"] for entry in entries]


def test_prune_takes_the_least_recently_used_until_the_rest_fits(store):
    for opset, age_s in [(15, 400), (16, 300), (17, 200), (18, 100)]:
        aged(store, opset, age_s)
    store.find("onnx", KEY | {"opset": 15})  # used just now
    assert opsets(store.prune(2 * 1005, spared_s=60.0)) == [16, 17]
    assert set(opsets(store.entries())) == {15, 18}


def test_prune_spares_what_a_running_process_may_need(store):
    aged(store, 17, 2 * 86_400)
    aged(store, 18, 3 * 3600)
    assert opsets(store.prune(0)) == [17]
    assert opsets(store.entries()) == [18]


def test_prune_spares_what_was_used_while_it_looked(store, monkeypatch):
    old = aged(store, 17, 2 * 86_400)
    listed = tuple(store.entries())
    store.find("onnx", KEY | {"opset": 17})
    monkeypatch.setattr(Store, "entries", lambda _: iter(listed))
    assert store.prune(0) == ()
    assert old.path.exists()


@pytest.mark.parametrize("said", ["much", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_no_size_is_refused(said, monkeypatch):
    monkeypatch.setenv("PARITY_STORE_GB", said)
    with pytest.raises(StoreError, match=f"PARITY_STORE_GB is '{said}'; give a number"):
        limit_bytes()


def test_clear_takes_what_a_clock_that_was_set_back_dates_ahead(store):
    aged(store, 17, -3600)
    assert opsets(store.clear()) == [17]
    assert not visible(store)


def test_prune_needs_no_space(store, monkeypatch):
    aged(store, 17, 2 * 86_400)
    mkdir = Path.mkdir

    def full(path, *args, **options):
        if not path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        mkdir(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", full)

    assert opsets(store.prune(0)) == [17]


@pytest.mark.parametrize(("older_than_s", "left"), [(150, {18}), (0, set())])
def test_clear_takes_what_was_not_used_for_so_long(store, older_than_s, left):
    aged(store, 17, 200)
    aged(store, 18, 100)
    (store.make("onnx", KEY | {"opset": 16}, build).path / "entry.json").unlink()
    assert set(opsets(store.clear(older_than_s=older_than_s))) == {17, 18} - left
    assert set(opsets(store.entries())) == left
    assert len(visible(store)) == 3 * len(left)


def test_remove_takes_one_entry_out(store):
    entry = store.make("onnx", KEY, build)
    store.remove(entry)
    store.remove(entry)
    assert store.find("onnx", KEY) is None


def test_the_root_is_of_the_environment_and_stays(monkeypatch, tmp_path):
    monkeypatch.setenv("PARITY_STORE", str(tmp_path))
    assert local_root() == tmp_path
    monkeypatch.delenv("PARITY_STORE")
    assert local_root().name == "parity-harness"
    monkeypatch.chdir(tmp_path)
    store = Store(root=Path("store"))
    monkeypatch.chdir("/")
    assert store.root == tmp_path / "store"


def test_a_folder_keeps_its_digest_when_moved_and_loses_it_when_changed(tmp_path):
    build(tmp_path)
    before = digest_tree(tmp_path / "weights", [".bin"])
    moved = (tmp_path / "weights").rename(tmp_path / "moved")
    (moved / "notes.txt").write_text("not covered")

    assert digest_tree(moved, [".bin"]) == before
    (moved / "0.bin").write_bytes(b"v" * 1000)
    assert digest_tree(moved, [".bin"]) != before
    (empty := tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"no file ends in \['\.bin'\]"):
        digest_tree(empty, [".bin"])


def test_equal_values_have_equal_digests_and_unequal_ones_do_not(tmp_path):
    assert digest_value({"a": (1,)}) == digest_value({"a": [1]})
    assert digest_value({"a": 1}) != digest_value({"a": "1"})
    (tmp_path / "empty").touch()
    assert digest_file(tmp_path / "empty") == "99aa06d3014798d86001c324468d497f"


def record_of(entry: Entry, **changes: object) -> str:
    return json.dumps(json.loads((entry.path / "entry.json").read_text()) | changes)


def sized(size: object) -> dict[str, object]:
    return {"model.onnx": {"size_bytes": size, "digest": "0" * 32}}


def named(name: str) -> dict[str, object]:
    return {name: {"size_bytes": 5, "digest": "0" * 32}}


RECORDS: dict[str, Callable[[Entry], str | bytes]] = {
    "a list for a number": lambda entry: record_of(entry, files=sized([1])),
    "a negative size": lambda entry: record_of(entry, files=sized(-1)),
    "a size that is no whole number": lambda entry: record_of(entry, files=sized(1.5)),
    "a file of a folder above": lambda entry: record_of(entry, files=named("../x")),
    "a file of the root": lambda entry: record_of(entry, files=named("/etc/hosts")),
    "a list of files": lambda entry: record_of(entry, files=[]),
    "notes of another type": lambda entry: record_of(entry, meta={"unread": 3}),
    "another kind": lambda entry: record_of(entry, kind="mnn"),
    "a deep list": lambda entry: record_of(entry) + "[" * 100_000,
    "a deep key": lambda entry: record_of(entry).replace(
        '"unet"', "[" * 900 + "]" * 900
    ),
    "no UTF-8": lambda _: b"\xff\xfe{}",
    "NaN": lambda _: '{"kind": NaN}',
    "nothing": lambda _: "",
}


def harmed(entry: Entry, how: str) -> None:
    """Damage an entry; a record of `RECORDS`, or its files."""
    record, folder = entry.path / "entry.json", entry.path
    elsewhere = folder.parents[4] / "elsewhere"
    if how in RECORDS:
        content = RECORDS[how](entry)
        record.write_bytes(content.encode() if isinstance(content, str) else content)
    elif how == "a folder for the record":
        record.unlink()
        record.mkdir()
    elif how == "a pipe for the record":
        record.unlink()
        os.mkfifo(record)
    elif how == "a file for the folder":
        shutil.rmtree(folder)
        folder.write_text("not a folder")
    elif how == "a file for the kind":
        shutil.rmtree(folder.parents[1])
        folder.parents[1].write_text("not a folder")
    elif how == "a folder for a file":
        folder.joinpath("model.onnx").unlink()
        folder.joinpath("model.onnx").mkdir()
    elif how == "a link for a file":
        folder.joinpath("model.onnx").rename(elsewhere)
        folder.joinpath("model.onnx").symlink_to(elsewhere)
    elif how == "a link for a folder of files":
        folder.joinpath("weights").rename(elsewhere)
        folder.joinpath("weights").symlink_to(elsewhere)


DAMAGE = (
    *RECORDS,
    *("a folder for the record", "a pipe for the record", "a file for the folder"),
    *("a file for the kind", "a folder for a file", "a link for a file"),
    "a link for a folder of files",
)


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_entry_is_moved_aside_and_made_anew(store, how, capfd):
    harmed(store.make("onnx", KEY, build), how)
    assert store.find("onnx", KEY) is None
    store.make("onnx", KEY, build).check()
    said = capfd.readouterr().err
    if how != "a file for the kind":
        assert said.count("is made anew") == 1
        assert f"moved to {store.root / 'damaged'}" in said
    assert list(store.verify()) == []


@pytest.mark.parametrize("words", [["list"], ["verify"], ["prune"], ["clear", "--yes"]])
@pytest.mark.parametrize("how", DAMAGE)
def test_no_command_ends_in_a_traceback_for_a_damaged_entry(store, how, words, capsys):
    harmed(store.make("onnx", KEY, build), how)
    sound = store.make("mnn", KEY, weights)
    code = main(["store", *words, "--store", str(store.root)])
    assert code == (2 if words == ["verify"] else 0), capsys.readouterr()
    assert sound.path.exists() == (words != ["clear", "--yes"])
    if words == ["clear", "--yes"]:
        assert not visible(store)


def test_an_unusual_key_can_be_listed(store, capsys):
    store.make("onnx", {"component": {"recipe": [1]}, "kind": {"a": 1}}, build)
    os.utime(
        store.make("mnn", {"component": 3}, build).path / "entry.json", (9e11, 9e11)
    )
    assert main(["store", "list", "--store", str(store.root)]) == 0
    assert capsys.readouterr().out.count("onnx") == 1


MARKS: dict[str, bytes | None] = {
    "no JSON": b"nonsense",
    "a list": b"[]",
    "a list for a number": b'{"schema": [1]}',
    "too deep": b"[" * 100_000,
    "no UTF-8": b'{"schema": "\xff"}',
    "a number for the URL": b'{"schema": 1, "shared": 3}',
    "a folder": None,
    "missing": b"",
}


@pytest.mark.parametrize("how", MARKS)
def test_a_damaged_mark_of_a_store_is_made_anew(store, how, capfd):
    entry = store.make("onnx", KEY, build)
    mark = store.root / "store.json"
    mark.unlink()
    if MARKS[how] is None:
        mark.mkdir()
    elif MARKS[how]:
        mark.write_bytes(MARKS[how])

    again = Store(root=store.root)

    assert again.make("onnx", KEY, never).path == entry.path
    again.make("mnn", KEY, weights)
    assert json.loads(mark.read_text())["schema"] == 1
    assert capfd.readouterr().err.count("is damaged") == (how != "missing")


def test_what_was_damaged_is_kept_within_bounds(store):
    for opset in range(12):
        harmed(store.make("onnx", KEY | {"opset": opset}, build), "nothing")
    list(store.verify())
    assert len(list((store.root / "damaged").iterdir())) == 8


def modes_of(store: Store) -> dict[str, set[int]]:
    """Return the modes of the folders and of the files of a store."""
    found: dict[str, set[int]] = {"folders": set(), "files": set()}
    for path in (store.root, *store.root.rglob("*")):
        found["folders" if path.is_dir() else "files"].add(path.stat().st_mode & 0o777)
    return found


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277])
def umask(request):
    """Set the mask of modes that a shell would."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("there", ["nothing", "an empty folder"])
def test_a_store_is_private_whatever_the_umask_is(store, there):
    if there == "an empty folder":
        store.root.mkdir(mode=0o755)
    store.make("onnx", KEY, build)
    store.make("mnn", KEY, weights)
    harmed(store.make("onnx", KEY | {"opset": 17}, build), "nothing")
    list(store.verify())
    assert modes_of(store) == {"folders": {0o700}, "files": {0o600}}


@pytest.mark.usefixtures("umask")
def test_a_store_that_is_shared_on_purpose_stays_so(store):
    store.root.mkdir()
    store.root.chmod(0o770)
    store.make("onnx", KEY, build)
    assert modes_of(store) == {"folders": {0o770}, "files": {0o660}}


def test_a_file_of_the_users_that_an_entry_links_keeps_its_mode(store, tmp_path):
    mine = tmp_path / "mine.onnx"
    mine.write_bytes(b"graph")
    mine.chmod(0o644)

    def linked(folder: Path) -> dict[str, object]:
        os.link(mine, folder / "model.onnx")
        return {}

    store.make("onnx", KEY, linked)

    assert mine.stat().st_mode & 0o777 == 0o644


def program(folder: Path) -> dict[str, object]:
    (folder / "program.pt2").write_bytes(b"p" * (1 << 17))
    return {"outputs": {}}


OPENED = {
    "the root": lambda entry: entry.path.parents[3],
    "the folder above it": lambda entry: entry.path.parents[4],
    "the entry": lambda entry: entry.path,
    "its file": lambda entry: entry.path / "program.pt2",
}


@pytest.mark.parametrize("what", OPENED)
def test_a_program_is_not_found_where_others_can_write(store, what):
    entry = store.make(PROGRAM, KEY, program)
    assert store.find(PROGRAM, KEY) is not None
    OPENED[what](entry).chmod(0o777)
    assert store.find(PROGRAM, KEY) is None
    store.make(PROGRAM, KEY, program)  # which replaces it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", OPENED)
def test_a_program_that_another_user_owns_is_not_found(store, what):
    os.chown(OPENED[what](store.make(PROGRAM, KEY, program)), 12_345, 12_345)
    assert store.find(PROGRAM, KEY) is None


def test_it_is_said_once_that_others_can_write_to_a_store(store, capsys):
    store.make("onnx", KEY, build)
    open_store(str(store.root))
    assert capsys.readouterr().err == ""
    shared = shutil.copytree(store.root, store.root.with_name("shared"))
    shared.chmod(0o777)
    for _ in range(2):
        open_store(str(shared))
    assert capsys.readouterr().err.count(f"can write to the store at {shared}") == 1


def test_what_is_data_is_found_where_others_can_write(store):
    store.make("onnx", KEY, build).path.chmod(0o777)
    assert store.find("onnx", KEY) is not None
