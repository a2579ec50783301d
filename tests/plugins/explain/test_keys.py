"""What decides an excerpt: the graph, the values of its reference, and the place."""

from dataclasses import asdict, replace

import pytest

from harness.engine.deployed import Reading
from harness.engine.keys import code_digest
from harness.engine.store import Store
from harness.plugins.explain.excerpt import CUT, Spot


def stored(root, data):
    def build(folder):
        (folder / "model.onnx").write_bytes(data)
        return {}

    return Store(root=root).make("onnx", {"data": data.decode()}, build)


@pytest.fixture
def decides(tmp_path):
    entry = stored(tmp_path, b"graph")
    return {
        "graph": entry,
        "reading": Reading(sample="s", inputs=entry, reference=entry, layers=True),
        "spot": Spot(probe="v", shown=()),
        "other": stored(tmp_path, b"other"),
    }


def key(parts):
    return CUT.key(parts["graph"], parts["reading"], asdict(parts["spot"]))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("reading", {"inputs": "other"}),
        ("reading", {"reference": "other"}),
        ("spot", {"probe": "w"}),
        ("spot", {"shown": ("u",)}),
    ],
)
def test_a_part_of_a_spot_or_a_reading_decides_an_excerpt(decides, name, changes):
    changes = {k: decides["other"] if v == "other" else v for k, v in changes.items()}
    assert key({**decides, name: replace(decides[name], **changes)}) != key(decides)


def test_the_graph_decides_an_excerpt(decides):
    assert key({**decides, "graph": decides["other"]}) != key(decides)


def test_the_code_that_cuts_decides_an_excerpt():
    folders = ("engine", "measure", "plugins/explain", "runtimes/graph")
    assert key_code() == code_digest(folders)


def key_code():
    return CUT.of(takes=()).key()["code"]
