"""Arrays that somebody else may have sent are read as numbers only, and bounded."""

from __future__ import annotations

import io
import struct
import zipfile

import numpy as np
import pytest

from harness.core.received import DamagedError
from harness.measure.received_arrays import Arrays, read_array


def _npy(dtype: str, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + data


@pytest.mark.parametrize(
    ("content", "clause"),
    [
        (_npy("<f4", (2**45,)), "declares 35,184,372,088,832 numbers"),
        (_npy("|O", (1,), b"\x80\x04N."), "holds object"),
        (_npy("<U4", (1,), b"a" * 16), "only numbers"),
        (_npy("<f4", (4,), b"\0" * 12), "ends 4 bytes early"),
        (b"\x93NUMPY\x03\x00", "format 3.0"),
        (b"no array", "magic"),
        (b"", "EOF"),
    ],
)
def test_an_array_file_without_numbers_is_one_clause(tmp_path, content, clause):
    path = tmp_path / "array.npy"
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=clause):
        read_array(path)


def test_arrays_are_read_by_name_with_their_dtypes_and_shapes(tmp_path):
    arrays: dict[str, np.ndarray] = {
        "a": np.arange(6.0).reshape(2, 3),
        "scalar": np.array(3, np.float32),
        "empty": np.zeros((0, 3)),
        "by column": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "mask": np.array([True, False]),
    }
    np.savez_compressed(tmp_path / "a.npz", allow_pickle=False, **arrays)
    with Arrays(tmp_path / "a.npz") as found:
        assert list(found) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[name], array, strict=True)


def test_arrays_that_unpack_to_more_than_the_limit_are_refused_unread(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(1 << 20), b=np.zeros(1 << 20))
    with pytest.raises(DamagedError, match=r"16,777,\d+ bytes, and 10,000,000"):
        Arrays(tmp_path / "a.npz", most_total=10_000_000)
    with (
        Arrays(tmp_path / "a.npz", most_bytes=1 << 20) as found,
        pytest.raises(DamagedError, match=r"'a'.*1,048,576 bytes are read"),
    ):
        found["a"]


def test_two_arrays_of_one_name_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", _npy("<f4", (1,), b"\0" * 4))
        with pytest.warns(UserWarning, match="Duplicate"):
            file.writestr("a.npy", _npy("<f4", (1,), b"\1" * 4))
    with pytest.raises(DamagedError, match="two arrays 'a'"):
        Arrays(tmp_path / "a.npz")


@pytest.mark.parametrize("is_large", [False, True], ids=["zip", "zip64"])
def test_a_list_of_arrays_without_end_is_refused_unread(tmp_path, is_large):
    size = 17 << 20
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("a.npy", _npy("<f4", (1,), b"\0" * 4))
    content = (tmp_path / "a.npz").read_bytes()
    end = content.index(b"PK\x05\x06")
    listed = content[:end] + bytes(size)
    where = len(listed)
    if is_large:
        listed += struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, 1, 1, size, 0)
        listed += struct.pack("<4sLQL", b"PK\6\7", 0, where, 1)
        size = 0xFFFFFFFF
    listed += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, size, 0, 0)
    (tmp_path / "a.npz").write_bytes(listed)

    with pytest.raises(DamagedError, match="a list of arrays of over 16,777,216 bytes"):
        Arrays(tmp_path / "a.npz")
