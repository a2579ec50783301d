"""The archive of an entry: what somebody may have put into it, and nothing else."""

import io
import json
import tarfile

import onnx
import pytest
import xxhash

from harness.core.kinds import PROGRAM
from harness.core.received import DamagedError
from harness.engine.store import Store
from harness.plugins.fleet.archive import pack, unpack

KEY = {"component": "unet"}


def built(folder):
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "probes.json").write_bytes(b"[]")
    return {}


@pytest.fixture
def entry(tmp_path):
    return Store(root=tmp_path / "store").make("onnx", KEY, built)


@pytest.fixture
def into(tmp_path):
    (folder := tmp_path / "into").mkdir()
    return folder


def archive_of(entry, change):
    """Write an entry's archive with other members; `change` gets a dictionary."""
    members = {path.name: path.read_bytes() for path in entry.path.iterdir()}
    change(members)
    path = entry.path.parents[4] / "entry.tar"
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            if isinstance(content, tarfile.TarInfo):
                tar.addfile(content)
                continue
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def put(name, content=b"x", *, in_record=True):
    """Add a file, and say so in the record."""

    def change(members):
        members[name] = content
        if in_record:
            scratch = json.loads(members["entry.json"])
            scratch["files"][name] = {
                "size_bytes": len(content),
                "digest": digest_of(content),
            }
            members["entry.json"] = json.dumps(scratch).encode()

    return change


def digest_of(content):
    return xxhash.xxh3_128_hexdigest(content)


def member(name, kind, linkname=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, linkname

    def change(members):
        members[name] = info

    return change


def record(**changes):
    def change(members):
        told = json.loads(members["entry.json"]) | changes
        members["entry.json"] = json.dumps(told).encode()

    return change


BAD = {
    "a program in a graph's entry": (put("program.pt2"), "has no file 'program.pt2'"),
    "code in a graph's entry": (put("numpy.py"), r"has no file 'numpy\.py'"),
    "a file in a folder": (put("a/model.onnx"), "has no file 'a/model.onnx'"),
    "a file above": (put("../x"), "no plain relative name"),
    "an absolute file": (put("/x"), "no plain relative name"),
    "a file that the record lacks": (put("x.py", in_record=False), "differ in 'x.py'"),
    "a link": (member("weights.pb", tarfile.SYMTYPE, "/etc/hosts"), "type b'2'"),
    "a hard link": (member("weights.pb", tarfile.LNKTYPE, "model.onnx"), "type b'1'"),
    "a pipe": (member("weights.pb", tarfile.FIFOTYPE), "type b'6'"),
    "a device": (member("weights.pb", tarfile.CHRTYPE), "type b'3'"),
    "a sparse file": (member("weights.pb", tarfile.GNUTYPE_SPARSE), "type b'S'"),
    "a long link": (member("weights.pb", tarfile.GNUTYPE_LONGNAME), "type b'L'"),
    "no record": (lambda members: members.pop("entry.json"), "has no entry.json"),
    "no model": (lambda members: members.pop("model.onnx"), "differ in 'model.onnx'"),
    "other contents": (put("model.onnx", b"other", in_record=False), "another digest"),
    "another size": (put("model.onnx", b"o", in_record=False), "another size"),
    "another key": (record(key={"component": "vae"}), "not its own"),
    "another kind": (record(kind="mnn"), "not its own"),
    "a record of text": (record(files="all"), "Expected `object`"),
}


@pytest.mark.parametrize("what", BAD)
def test_an_archive_with_something_else_is_refused(entry, into, what):
    change, words = BAD[what]
    archive = archive_of(entry, change)

    with pytest.raises(DamagedError, match=words):
        unpack(archive, into, entry.id)

    assert not (into / "entry.json").exists()  # so it is no entry
    assert not list(into.glob("*.p*"))


def test_what_is_packed_is_unpacked(entry, into, tmp_path):
    pack(entry.path, tmp_path / "entry.tar")
    unpack(tmp_path / "entry.tar", into, entry.id)

    names = sorted(path.name for path in into.iterdir())
    assert names == ["entry.json", "model.onnx", "probes.json"]
    for name in names:
        assert (into / name).read_bytes() == (entry.path / name).read_bytes()


def test_weights_that_the_model_names_belong_to_it(tmp_path, into):
    tensor = onnx.numpy_helper.from_array(
        onnx.numpy_helper.to_array(onnx.helper.make_tensor("w", 1, [64], [1.0] * 64)),
        "w",
    )
    output = onnx.helper.make_tensor_value_info("w", 1, [64])

    def foreign(folder):
        graph = onnx.helper.make_graph([], "g", [], [output], [tensor])
        onnx.save(
            onnx.helper.make_model(graph),
            folder / "model.onnx",
            save_as_external_data=True,
            location="theirs.bin",
            size_threshold=0,
        )
        return {}

    entry = Store(root=tmp_path / "store").make("onnx", KEY, foreign)
    pack(entry.path, tmp_path / "entry.tar")
    unpack(tmp_path / "entry.tar", into, entry.id)

    assert (into / "theirs.bin").stat().st_size == 256


def test_a_program_is_refused_even_in_its_own_entry(tmp_path, into):
    def program(folder):
        (folder / "program.pt2").write_bytes(b"p")
        return {"outputs": {}}

    entry = Store(root=tmp_path / "store").make(PROGRAM, KEY, program)
    pack(entry.path, tmp_path / "entry.tar")

    with pytest.raises(DamagedError, match="never comes from elsewhere"):
        unpack(tmp_path / "entry.tar", into, entry.id)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"x" * 5000, id="no tar"),
        pytest.param(bytes(5000), id="zeros"),
        pytest.param(b"\x1f\x8b" + bytes(600), id="gzip"),
    ],
)
def test_what_is_no_archive_is_refused(tmp_path, into, content):
    (tmp_path / "entry.tar").write_bytes(content)

    with pytest.raises(DamagedError):
        unpack(tmp_path / "entry.tar", into, "onnx.1")


def test_a_long_header_is_not_read_into_memory(tmp_path, into):
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, 1 << 40
    (tmp_path / "entry.tar").write_bytes(head.tobuf(tarfile.GNU_FORMAT) + bytes(1024))

    with pytest.raises(DamagedError, match="type b'x'"):
        unpack(tmp_path / "entry.tar", into, "onnx.1")
