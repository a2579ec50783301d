"""A conversion is judged by the file that it leaves, not by messages."""

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch

from harness.core.case import Device, ForeignModel, TensorSpec, Variant
from harness.core.errors import StageError
from harness.core.outcome import Outcome
from harness.core.probes import load_probes
from harness.engine.artifacts import native_converter
from harness.engine.export_files import MODEL as ONNX
from harness.engine.export_files import PROBES
from harness.engine.host import Host
from harness.runtimes.mnn import MODEL, RUNTIME, WEIGHTS
from harness.runtimes.mnn import convert as converting
from tests.unit import nets

# Of the largest output, for weights of the order of a tenth.
ALLOWED = {
    "fp32": 1e-4,
    "fp16-weights": 5e-3,
    "int8-weights": 5e-2,
    "int4-weights": 1.0,
    "fused": 1.0,  # MNN 3.6.1's attention operator computes something else here
    "deploy": 5e-3,
    "int8-static": 2e-1,
}
CALIBRATION = [nets.feeds(nets.BLOCKS)]
OTHER = TensorSpec(name="other", shape=())
NATIVE = f"""#!{sys.executable}
import sys, MNN, _tools
print("the native one")
_tools.mnnconvert(sys.argv)
"""

FLAGS = {kind: built_in.flags for kind, built_in in RUNTIME.variants.items()}


def convert(source, folder, kind="fp32", flags=(), native=None, **changes):
    arguments = {
        "component": nets.BLOCKS,
        "calibration": CALIBRATION if RUNTIME.variants[kind].calibrated else (),
        **changes,
    }
    if "probes" not in arguments:
        arguments["probes"] = load_probes(source.parent / PROBES)
    variant = Variant(name=kind, backend="mnn", kind=kind, flags=tuple(flags))
    return converting.convert(source, variant, folder, native=native, **arguments)


def run(path, feeds):
    from harness.runtimes.mnn import session as mnn

    with mnn.open_session(path, Device(threads=1), ["map", "pooled"]) as session:
        return session.run(feeds)


@pytest.fixture
def source(blocks_files):
    return blocks_files["dynamo"] / ONNX


@pytest.fixture
def out(tmp_path):
    """An empty folder for a conversion."""
    (folder := tmp_path / "out").mkdir()
    return folder


@pytest.fixture
def program(tmp_path):
    """A second converter: the wheel's own, as a program that can be found."""
    path = tmp_path / "bin" / "MNNConvert"
    path.parent.mkdir()
    path.write_text(NATIVE, encoding="utf-8")
    path.chmod(0o755)
    return path


def largest_error(job, folder):
    feeds = nets.feeds(nets.BLOCKS)
    with torch.no_grad():
        expected = nets.Blocks()(*(torch.tensor(v) for v in feeds.values()))[0].numpy()
    made = job(run, folder / MODEL, feeds)["map"]
    return np.abs(made - expected).max() / np.abs(expected).max()


def test_every_variant_is_as_near_and_as_small_as_its_weights(tmp_path, source, job):
    sizes, errors = {}, {}
    for kind, flags in FLAGS.items():
        (folder := tmp_path / kind).mkdir()
        made = job(convert, source, folder, kind)
        sizes[kind] = sum(path.stat().st_size for path in folder.iterdir())
        errors[kind] = largest_error(job, folder)

        assert {path.name for path in folder.iterdir()} == {MODEL, WEIGHTS}
        beside = (folder / WEIGHTS).stat().st_size > 0
        assert beside is not RUNTIME.variants[kind].calibrated
        assert (made["arguments"], made["converter"]) == (list(flags), "wheel")
        assert errors[kind] < ALLOWED[kind], kind

    assert sizes["fp16-weights"] < sizes["fp32"]
    assert errors["fp32"] < errors["fp16-weights"] < errors["int8-weights"]


def test_a_network_that_is_not_quantized_leaves_no_file(tmp_path, source, job):
    lacking = [{"unknown": np.ones((1, 2), np.float32)}]
    error = failed(job, source, tmp_path, "int8-static", calibration=lacking)
    assert "MNN's offline quantization left no file" in str(error)
    assert not (tmp_path / MODEL).exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "n" * 300, "a\0b", ".."])
def test_offline_quantization_refuses_a_name_of_no_file(tmp_path, source, job, name):
    inside = tmp_path / "in" / "here"
    inside.mkdir(parents=True)
    given = [{name: np.ones((1, 2), np.float32)}]
    error = failed(job, source, inside, "int8-static", calibration=given)
    assert "can name none of its own" in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_flag_given_last_wins(tmp_path, source, job):
    made = job(convert, source, tmp_path, "int8-weights", ("--weightQuantBits=4",))
    assert made["arguments"][-2:] == ["--weightQuantBits=8", "--weightQuantBits=4"]
    assert largest_error(job, tmp_path) > ALLOWED["int8-weights"]


def test_only_deploy_lets_gelu_be_approximated():
    assert {kind for kind, flags in FLAGS.items() if not flags} == {"deploy"}
    assert all("--useGeluApproximation=0" in f for k, f in FLAGS.items() if f and k)


def failed(job, *arguments, **keywords) -> StageError:
    with pytest.raises(StageError) as caught:
        job(convert, *arguments, **keywords)
    assert caught.value.outcome is Outcome.CONVERT
    return caught.value


@pytest.mark.parametrize(
    ("change", "side"),
    [
        ({"inputs": nets.BLOCKS.inputs[:1]}, "inputs"),
        ({"outputs": (*nets.BLOCKS.outputs, OTHER)}, "outputs"),
    ],
)
def test_inputs_that_were_not_promised_are_named(tmp_path, source, job, change, side):
    promised = replace(nets.BLOCKS, **change)
    error = failed(job, source, tmp_path, component=promised)
    assert f"the converted file has the {side}" in str(error)


def test_a_source_that_is_no_model_leaves_no_file(tmp_path, source, job, out):
    broken = tmp_path / "broken" / ONNX
    broken.parent.mkdir()
    shutil.copy(source.parent / PROBES, broken.parent)
    broken.write_bytes(source.read_bytes()[:500])
    error = failed(job, broken, out)
    assert str(error).startswith("blocks: ")
    assert error.log


def test_an_operator_mnn_lacks_is_named_with_its_module(tmp_path, source, job, out):
    given = tmp_path / "given"
    shutil.copytree(source.parent, given)
    model = onnx.load(given / ONNX)
    gelu = next(n for n in model.graph.node if n.op_type in {"Gelu", "Erf"})
    gelu.op_type = "IsNaN"
    del gelu.attribute[:]
    onnx.save(model, given / ONNX)
    error = failed(job, given / ONNX, out)

    assert "it has no operator IsNaN" in str(error)
    assert "It comes from ff.1" in str(error)
    assert 'attention = "eager" in [component.blocks]' in str(error)


class Attention(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


OLDER = "opset = 18 in [component.small]"
LACKED = {
    "Attention": (Attention(), OLDER, {"dynamo": True}),
    "GroupNormalization": (torch.nn.GroupNorm(2, 4), OLDER, {"dynamo": True}),
    "RMSNormalization": (torch.nn.RMSNorm(4), OLDER, {"dynamo": True}),
    "Mish": (torch.nn.Mish(), 'exporter = "torchscript"', {"dynamo": False}),
}
"""Operator to what exports it, the way around that is named, and that way."""


@pytest.mark.parametrize("operator", LACKED)
# torch's own, of both exporters.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_the_way_around_a_missing_operator_is_right(tmp_path, job, out, operator):
    module, said, around = LACKED[operator]
    shape = (2, 4, 3, 4)
    small = replace(
        nets.BLOCKS,
        name="small",
        inputs=(TensorSpec(name="x", shape=shape),),
        outputs=(TensorSpec(name="y", shape=shape),),
    )

    def exported(name, **how):
        (tmp_path / name).mkdir()
        path = tmp_path / name / ONNX
        names = {"input_names": ["x"], "output_names": ["y"], "verbose": False}
        torch.onnx.export(module.eval(), (torch.ones(shape),), path, **names, **how)
        return path

    there = {"component": small, "probes": ()}
    newest = exported("newest", dynamo=True, opset_version=23)
    error = failed(job, newest, out, **there)
    assert f"it has no operator {operator}." in str(error)
    assert said in str(error)

    job(convert, exported("around", opset_version=18, **around), out, **there)
    assert (out / MODEL).stat().st_size > 0


TRIPLE = 'a = Einsum <equation = "bij,bij,bij->bij"> (x, x, x)'
THREE = "Can't convert Einsum for input size = 3"
IMPLICIT = "Can't convert Einsum for no support Equation:bij,jk"
REFUSED = {
    "three-operands": (
        'y = Einsum <equation = "bij,bij,bij->bij"> (x, x, x)',
        ["has the operator Einsum, and does not take this form of it", THREE],
        ["has no operator"],
    ),
    "implicit": (
        'y = Einsum <equation = "bij,jk"> (x, w)',
        ["has the operator Einsum", IMPLICIT],
        ["has no operator"],
    ),
    "two-forms": (
        f'{TRIPLE} y = Einsum <equation = "bij,jk"> (a, w)',
        [f"{THREE}; {IMPLICIT}"],
        ["has no operator"],
    ),
    "padding": (
        'y = Conv <auto_pad = "NOSUCH"> (x, w)',
        ["has the operator Conv", "Conv auto_pad not support NOSUCH"],
        ["has no operator"],
    ),
    "form-and-lack": (
        f"{TRIPLE} c = IsNaN (a) y = Cast <to = 1> (c)",
        ["it has no operator IsNaN.", "has the operator Einsum", THREE],
        ["|"],
    ),
    "lack": (
        "c = IsNaN (x)\ny = Cast <to = 1> (c)",
        ["it has no operator IsNaN."],
        ["this form"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_mnn_refuses_is_quoted_from_its_converter(tmp_path, job, out, name):
    lines, said, not_said = REFUSED[name]
    graph = f"g (float[b, 6, 8] x) => (float[b, 6, 8] y) <float[8, 8] w = {{{ONES}}}>"
    text = f'<ir_version: 9, opset_import: ["" : 17]> {graph} {{ {lines} }}'
    path = tmp_path / ONNX
    onnx.save(onnx.parser.parse_model(text), path)
    error = str(failed(job, path, out, component=SMALL, probes=()))
    assert [words for words in said if words not in error] == []
    assert [words for words in not_said if words in error] == []


ONES = ", ".join(["1"] * 64)
SMALL = replace(
    nets.BLOCKS,
    name="small",
    inputs=(TensorSpec(name="x", shape=("b", 6, 8)),),
    outputs=(TensorSpec(name="y", shape=("b", 6, 8)),),
)


def test_a_finished_file_is_told_of_no_setting_of_an_export(tmp_path, job, out):
    nodes = "c = IsNaN (x)\ny = Cast <to = 1> (c)"
    graph = "g (float[b, 6, 8] x) => (float[b, 6, 8] y)"
    text = f'<ir_version: 9, opset_import: ["" : 17]> {graph} {{ {nodes} }}'
    path = tmp_path / ONNX
    onnx.save(onnx.parser.parse_model(text), path)
    taken = replace(SMALL, foreign=ForeignModel(onnx=path))

    error = str(failed(job, path, out, component=taken, probes=()))

    assert "[component." not in error
    assert "Whoever exports it avoids it by an export from a model with" in error
    assert 'attn_implementation="eager"' in error


def test_a_converter_on_the_path_is_as_the_wheels(
    source, job, out, program, monkeypatch
):
    monkeypatch.setenv("PATH", str(program.parent))
    found = native_converter(None)
    made = job(convert, source, out, native=found)
    assert found == made["converter"] == str(program)
    assert largest_error(job, out) < ALLOWED["fp32"]
    (other := program.parent / "by-the-wheel").mkdir()
    job(convert, source, other)
    assert (out / WEIGHTS).read_bytes() == (other / WEIGHTS).read_bytes()


CUTS_WEIGHTS = f"""#!{sys.executable}
import subprocess, sys, pathlib
program = "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)"
subprocess.run([sys.executable, "-c", program, *sys.argv[1:]], check=True)
target = sys.argv[sys.argv.index('--MNNModel') + 1]
weights = pathlib.Path(target + '.weight')
weights.write_bytes(weights.read_bytes()[:-1])
"""


def test_a_converter_that_writes_too_few_weights_has_failed(source, job, out, program):
    program.write_text(CUTS_WEIGHTS, encoding="utf-8")
    error = failed(job, source, out, native=str(program))
    assert "wrote too few weights" in str(error)
    assert "and that file has" in str(error)


def test_no_converter_on_the_path_is_no_error(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert native_converter(None) is None


@pytest.mark.parametrize("named", ["/nowhere/MNNConvert", "no-such-program"])
def test_a_named_converter_that_is_not_there_is_an_error(named):
    with pytest.raises(StageError, match="no program that can be run") as caught:
        native_converter(named)
    assert caught.value.outcome is Outcome.UNAVAILABLE


@pytest.mark.parametrize("named", ["~/MNNConvert", "./MNNConvert"])
def test_a_named_converter_may_be_in_the_home_or_here(monkeypatch, tmp_path, named):
    program = tmp_path / "MNNConvert"
    program.touch(mode=0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert program.samefile(native_converter(named))


def test_two_converters_at_once_write_what_one_does(tmp_path, source, monkeypatch):
    # MNN's keeps weights in a file of a fixed name where it is started.
    (started := tmp_path / "started").mkdir()
    monkeypatch.chdir(started)
    folders = [tmp_path / str(index) for index in range(2)]

    def one(folder):
        folder.mkdir()
        with Host("native") as host:
            host.run(convert, source, folder, "fp16-weights", timeout_s=60, label="x")

    with ThreadPoolExecutor(len(folders)) as threads:
        list(threads.map(one, folders))

    weights = [(folder / WEIGHTS).read_bytes() for folder in folders]
    assert all(one == weights[0] for one in weights)
    assert list(started.iterdir()) == []
