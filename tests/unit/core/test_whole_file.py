"""A file is whole, or as it was."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.core.whole_file import write_whole


@pytest.mark.parametrize("content", ["é\r\n", "é\r\n".encode()])
def test_a_file_is_replaced_by_exactly_what_is_given(tmp_path, content):
    path = tmp_path / "report.json"
    path.write_text("old and longer")
    write_whole(path, content)
    assert path.read_bytes() == "é\r\n".encode()
    assert [one.name for one in tmp_path.iterdir()] == ["report.json"]


def test_processes_that_write_one_file_at_once_each_leave_it_whole(tmp_path):
    path = tmp_path / "store.json"
    texts = [str(number) * 10_000 for number in range(4)]
    with ThreadPoolExecutor(4) as threads:  # as processes, they share only the folder
        list(threads.map(lambda text: write_whole(path, text), texts * 50))
    assert path.read_text() in texts
    assert [one.name for one in tmp_path.iterdir()] == ["store.json"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_beside_it(tmp_path):
    path = tmp_path / "report.json"
    path.mkdir()
    with pytest.raises(OSError, match=r"report\.json"):
        write_whole(path, "text")
    assert [one.name for one in tmp_path.iterdir()] == ["report.json"]
