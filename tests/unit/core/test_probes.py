"""`harness.core.probes`: probes are equal after they are written and read."""

import json

import pytest

from harness.core.errors import StoreError
from harness.core.probes import Kind, Probe, load_probes, save_probes

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
    for position, kind in enumerate(Kind)
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
