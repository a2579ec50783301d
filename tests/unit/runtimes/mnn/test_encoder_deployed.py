"""A text encoder in both runtimes: one artifact, any shape, and the errors."""

from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.core.case import (
    Component,
    Device,
    ExportSettings,
    Sample,
    Source,
    TensorSpec,
)
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import load_probes
from harness.recipes import describe, recipe_module
from harness.recipes.inputs import draw
from harness.runtimes.pytorch.export import export_onnx
from harness.runtimes.session import open_session
from tests.unit import nets
from tests.unit.encoders import write_encoder

pytestmark = pytest.mark.slow

TRACED = {"batch": 2, "tokens": 10}
EXPORTERS = {"torchscript": 14, "dynamo": 18}
TASKS = ("default", "question-answering", "text-classification")
GRID = [(b, t) for b in (1, 2, 3) for t in (1, 5, 10, 33)]


def sample(batch, tokens, profile="unit-normal", seed=0):
    shapes = (("batch", batch), ("tokens", tokens))
    return Sample(profile=profile, index=0, shapes=shapes, seed=seed)


def export(part, folder, attention="eager", **changes):
    settings = ExportSettings(
        **{"opset": 14, "exporter": "torchscript", **changes},
        dynamic=("batch", "tokens"),
        attention=attention,
    )
    module = recipe_module(part.recipe).build(part, attention)
    example = tuple(
        torch.tensor(array) for array in draw(part, sample(**TRACED)).values()
    )
    folder.mkdir()
    export_onnx(nets.traced(module, part, settings, example, folder / "store"), folder)
    return folder / "model.onnx"


def converted(part, source, folder):
    folder.mkdir()
    probes = load_probes(source.parent / "probes.json")
    return nets.to_mnn(source, folder, part, probes, flags=("--optimizeLevel=2",))


@contextmanager
def opened(folder, task, exporter, options=None):
    """The module, and sessions of one file in each runtime."""
    source = write_encoder(folder / "bert", "bert")
    part = describe(task, task, source, options or {})
    names = [spec.name for spec in part.outputs]
    graph = export(part, folder / "onnx", exporter=exporter, opset=EXPORTERS[exporter])
    files = {"onnxruntime": graph, "mnn": converted(part, graph, folder / "mnn")}
    module = recipe_module(task).build(part)
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(open_session(name, file, Device(threads=1), names))
            for name, file in files.items()
        ]
        yield part, module, sessions


@pytest.fixture(scope="module", params=EXPORTERS)
def deployed(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with opened(folder, "pooling", request.param, {"pooling": "mean"}) as found:
        yield found


@pytest.fixture(scope="module", params=TASKS)
def task(request, tmp_path_factory):
    # Of torchscript's graph MNN's converter makes right files by luck.
    with opened(tmp_path_factory.mktemp("task"), request.param, "dynamo") as found:
        yield found


def agree(deployed, feeds):
    part, module, sessions = deployed
    with torch.no_grad():
        expected = module(*(torch.tensor(array) for array in feeds.values()))
    expected = expected if isinstance(expected, tuple) else (expected,)
    for session in sessions:
        made = session.run(feeds)
        for spec, value in zip(part.outputs, expected, strict=True):
            np.testing.assert_allclose(made[spec.name], value, atol=2e-5, rtol=1e-4)


def masked_feeds(data, batch, tokens, *, least):
    """Draw ids, segments, and a mask of at least so many tokens of each text."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    bits = st.lists(st.integers(0, 1), min_size=batch * tokens, max_size=batch * tokens)
    mask = np.array(data.draw(bits), dtype=np.int32).reshape(batch, tokens)
    mask[:, :least] = 1
    return {
        "input_ids": rng.integers(0, 300, mask.shape).astype(np.int32),
        "attention_mask": mask,
        "token_type_ids": rng.integers(0, 2, mask.shape).astype(np.int32),
    }


@pytest.mark.parametrize(("batch", "tokens"), GRID)
def test_one_file_serves_a_grid_of_shapes(deployed, batch, tokens):
    agree(deployed, draw(deployed[0], sample(batch, tokens, "large-mean")))


any_shape = given(batch=st.integers(1, 4), tokens=st.integers(1, 40), data=st.data())
twenty_five = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@twenty_five
@any_shape
def test_any_mask_at_any_shape_reads_the_same(deployed, batch, tokens, data):
    # Rows that are masked from end to end are among them: pooled, they are zeros.
    agree(deployed, masked_feeds(data, batch, tokens, least=0))


@twenty_five
@any_shape
def test_every_task_reads_the_same_by_any_mask_of_a_text(task, batch, tokens, data):
    # Of a row without a text PyTorch's sdpa and eager attention answer otherwise.
    agree(task, masked_feeds(data, batch, tokens, least=1))


def test_masked_sdpa_ends_in_a_sentence_with_a_way_out(tmp_path):
    part = describe("default", "default", write_encoder(tmp_path / "bert", "bert"))
    graph = export(part, tmp_path / "onnx", attention="sdpa")
    with pytest.raises(StageError, match="no operator IsNaN") as refused:
        converted(part, graph, tmp_path / "mnn")
    assert refused.value.outcome is Outcome.CONVERT
    assert "layer.0/attention" in str(refused.value), "where it comes from"
    assert 'attention = "eager" in [component.default]' in str(refused.value)


class Frozen(torch.nn.Module):
    """Counts on an axis that is called open."""

    def __init__(self, sizes):
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)
        self.sizes = sizes

    def forward(self, input_ids):
        return self.table(input_ids.long()).view(*self.sizes, 8)


@pytest.mark.parametrize("exporter", EXPORTERS)
@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ((2, -1), "axis 0 of .* at 2, though 'batch' is to stay open"),
        ((-1, 10), "axis 1 of .* at 10, though 'tokens' is to stay open"),
    ],
)
def test_an_axis_that_the_export_froze_is_named(tmp_path, exporter, sizes, said):
    ids = TensorSpec(
        name="input_ids", shape=("batch", "tokens"), dtype="int32", draw="tokens"
    )
    out = TensorSpec(name="states", shape=("batch", "tokens", 8))
    part = Component(
        name="frozen",
        recipe="default",
        source=Source(path=tmp_path),
        inputs=(ids,),
        outputs=(out,),
    )
    settings = ExportSettings(
        exporter=exporter, opset=EXPORTERS[exporter], dynamic=("batch", "tokens")
    )
    example = (torch.zeros(2, 10, dtype=torch.int32),)
    module = Frozen(sizes).eval()
    network = nets.traced(module, part, settings, example, tmp_path / "store")

    with pytest.raises(StageError, match=said) as refused:
        export_onnx(network, tmp_path)

    assert refused.value.outcome is Outcome.EXPORT
    assert "out of dynamic_axes" in str(refused.value)
