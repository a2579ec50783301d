"""`harness.core.probes`: probes are equal after they are written and read."""

import json

import pytest

from harness.core.errors import StoreError
from harness.core.probes import Probe, ValueKind, load_probes, save_probes

PROBES = tuple(
    Probe(
        name=f"value_{kind}",
        position=position,
        kind=kind,
        op="aten.conv2d.default",
        module="down_blocks.0.resnets.0.conv1",
        source="diffusers/models/resnet.py:345",
        onnx="conv2d" if position else "",
        parents=("silu", "añb")[:position],
    )
    for position, kind in enumerate(ValueKind)
)


@pytest.mark.parametrize("probes", [PROBES, ()], ids=["some", "none"])
def test_probes_survive_a_file(tmp_path, probes):
    save_probes(probes, tmp_path / "probes.json")
    assert load_probes(tmp_path / "probes.json") == probes


def test_an_unknown_kind_is_not_read(tmp_path):
    save_probes(PROBES[:1], tmp_path / "probes.json")
    rows = json.loads((tmp_path / "probes.json").read_text(encoding="utf-8"))
    rows[0]["kind"] = "guess"
    (tmp_path / "probes.json").write_text(json.dumps(rows), encoding="utf-8")
    with pytest.raises(StoreError, match="guess"):
        load_probes(tmp_path / "probes.json")


def test_a_whole_number_of_an_operator_stays_one_when_it_is_read(tmp_path):
    settings = (("dim", -1), ("num_groups", 8), ("eps", 1.0), ("causal", True))
    save_probes(
        [Probe(name="a", position=0, kind=ValueKind.COMPUTE, settings=settings)],
        tmp_path / "p",
    )

    (read,) = load_probes(tmp_path / "p")

    assert [(n, type(v)) for n, v in read.settings] == [
        (n, type(v)) for n, v in settings
    ]
