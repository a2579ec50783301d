"""`parity init` on files that others exported."""

import shutil

import numpy as np
import onnx
import pytest

from harness.core.errors import SuiteError
from harness.plugins.start.init.bits import computes_in
from harness.plugins.start.init.write import write_suite
from tests.places import EXPORTED
from tests.unit.commands.init.test_init import rule_of, suite_of


@pytest.fixture
def optimum(tmp_path):
    """A folder as Optimum leaves it: a file a folder, configurations, no weights."""
    root = tmp_path / "onnx"
    for name in ("unet", "vae_decoder"):
        shutil.copytree(EXPORTED / "optimum" / name, root / name)
    (root / "model_index.json").write_text("{}")
    (root / "unet" / "config.json").write_text("{}")
    return root


def test_files_of_others_get_a_suite_of_their_own(optimum, tmp_path):
    suite = suite_of(optimum, tmp_path)

    assert [case.id for case in suite.cases] == [
        f"{name}/{how}"
        for name in ("unet", "vae_decoder")
        for how in ("onnxruntime/given", "mnn/fp32")
    ]
    assert 'onnx = "onnx/unet/model.onnx"' in (tmp_path / "parity.toml").read_text()
    for case in suite.cases:
        assert rule_of(suite, case).tolerance.sqnr_db


def test_files_side_by_side_are_named_by_themselves(tmp_path):
    root = tmp_path / "txtai"
    shutil.copytree(EXPORTED / "txtai", root)
    for end in ("", ".weight"):
        some = EXPORTED / "mnn_scripts" / f"vae_decoder.mnn{end}"
        shutil.copy(some, root / f"pooling.mnn{end}")
    components = suite_of(root, tmp_path).components

    assert [c.name for c in components] == ["default", "pooling", "text-classification"]
    converted = [c.name for c in components if c.foreign and c.foreign.converted]
    assert converted == ["pooling"]


@pytest.mark.parametrize("second", ["unet.onnx", "UNet.onnx"])
def test_files_of_one_name_are_refused(optimum, tmp_path, second):
    """Else one of them would be left out in silence."""
    shutil.copy(optimum / "unet" / "model.onnx", optimum / second)

    with pytest.raises(SuiteError, match="would both be the component 'unet'"):
        write_suite(optimum, tmp_path)


@pytest.mark.parametrize(
    "second", ["VAE/model.onnx", "vae (1)/model.onnx", f"{'v' * 70}/model.onnx"]
)
def test_a_component_has_a_name_that_a_suite_may_have(optimum, tmp_path, second):
    path = optimum / second
    path.parent.mkdir()
    shutil.copy(optimum / "vae_decoder" / "model.onnx", path)

    names = [one.name for one in suite_of(optimum, tmp_path).components]
    assert any(name in {"vae", "vae_1", "v" * 64} for name in names)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("unet.mnn", "put the ONNX file that each was made from"),
        ("model.onnx", r"model\.onnx is no ONNX file"),
    ],
)
def test_a_file_that_cannot_be_tested_alone_is_refused(name, words, tmp_path):
    (tmp_path / name).write_bytes(b"nothing")

    with pytest.raises(SuiteError, match=words):
        write_suite(tmp_path, tmp_path / "parity")


def of_kind(folder, kind):
    """Write an ONNX file of one product, as a tool of that kind leaves it."""
    make, numbers = onnx.helper.make_node, onnx.TensorProto
    half = kind in {"float16", "bfloat16"}
    name = {"float16": "FLOAT16", "bfloat16": "BFLOAT16"}.get(kind, "FLOAT")
    nodes = {
        "float16 weights": [
            make("Cast", ["stored"], ["w"], to=numbers.FLOAT),
            make("MatMul", ["x", "w"], ["y"]),
        ],
        "int8 weights": [
            make("DequantizeLinear", ["stored", "scale"], ["w"]),
            make("MatMul", ["x", "w"], ["y"]),
        ],
        "int8": [
            make("QuantizeLinear", ["x", "scale"], ["q"]),
            make("DequantizeLinear", ["q", "scale"], ["d"]),
            make("MatMul", ["d", "w"], ["y"]),
        ],
        "casts": [
            make("Cast", ["x"], ["h"], to=numbers.FLOAT16),
            make("MatMul", ["h", "stored"], ["m"]),
            make("Cast", ["m"], ["y"], to=numbers.FLOAT),
        ],
    }.get(kind, [make("MatMul", ["x", "w"], ["y"])])
    dtype = np.int8 if kind == "int8 weights" else np.float16
    held = {"stored": np.ones((4, 4), dtype), "scale": np.float32(0.1)}
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in held.items()]
    if kind in {"float32", "float16", "bfloat16", "int8"}:
        what = getattr(numbers, name)
        tensors.append(onnx.helper.make_tensor("w", what, [4, 4], [1.0] * 16))
    ends = [
        onnx.helper.make_tensor_value_info(
            one, getattr(numbers, name if half else "FLOAT"), ["n", 4]
        )
        for one in "xy"
    ]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    made = onnx.helper.make_model(graph, ir_version=9)
    onnx.save(made, folder / "net.onnx")
    return folder / "net.onnx"


@pytest.mark.parametrize(
    ("kind", "computes"),
    [
        ("float32", ""),
        ("float16 weights", ""),
        ("int8 weights", ""),
        ("float16", "float16"),
        ("bfloat16", "float16"),
        ("casts", "float16"),
        ("int8", "int8"),
    ],
)
def test_what_a_file_computes_in_is_read_from_it(kind, computes, tmp_path):
    assert computes_in(of_kind(tmp_path, kind)) == computes


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
def test_the_bound_of_a_file_alone_follows_from_what_it_stores(kind, tmp_path):
    (root := tmp_path / "files").mkdir()
    of_kind(root, kind)
    suite = suite_of(root, tmp_path)
    bounds = {rule_of(suite, case).tolerance.sqnr_db for case in suite.cases}

    assert bounds == {{"float32": 80.0, "float16": 35.0, "int8": 9.0}[kind]}
