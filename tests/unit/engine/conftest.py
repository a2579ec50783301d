"""What several tests of the engine share: a small checkpoint, and parts of keys."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from harness.core.case import (
    Device,
    ExportSettings,
    ForeignModel,
    Sample,
    Source,
    Variant,
)
from harness.engine.deployed import Reading
from harness.plugins.pipelines.case import pipelines_of
from harness.recipes import describe
from harness.suite.suite import load_suite
from tests.places import DIGITS
from tests.unit import nets
from tests.unit.engine.key_parts import ONNX, SHAPES, stored


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint") / "small"
    return Source(path=nets.small_checkpoint(folder), seed=0)


@pytest.fixture(scope="module")
def given(source, tmp_path_factory):
    """All that keys are made from; a test moves one part of it."""
    folder = tmp_path_factory.mktemp("given")
    for name in ("file.mnn", "other.mnn", "picture", "converter"):
        (folder / name).write_text(name)
    unet = describe("unet", "unet", source)
    entry = stored(folder, b"graph")
    foreign = ForeignModel(onnx=ONNX, converted=(("mnn", folder / "file.mnn"),))
    return SimpleNamespace(
        folder=folder,
        component=unet,
        foreign=replace(unet, foreign=foreign),
        sample=Sample(profile="realistic", index=1, shapes=SHAPES),
        settings=ExportSettings(),
        shapes=SHAPES,
        traced=[[2, 4, 8, 12]],
        graph=entry,
        graph_key={"a": 1},
        inputs=entry,
        device=Device(),
        layers=True,
        variant=Variant(name="fp32", backend="mnn", kind="fp32"),
        native=None,
        calibration=(),
        reading=Reading(sample="s", inputs=entry, reference=entry, layers=True),
        pipeline=pipelines_of(load_suite(DIGITS).pipeline_cases)[0].pipeline,
        trials=((("conv_in", 4),),),
        only=(),
        values={"inputs": {"s": "digest"}},
    )
