"""`parity repro --post`: a folder for a bug report that has nothing of the user's."""

import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.faults.posted import ALONE
from tests.places import DIGITS, FIXTURES
from tests.plugin.project import called

pytestmark = pytest.mark.slow

CASE = "vae_decoder/mnn/int8-weights"
STRICT = ("--tier", "strict")
HALF = '[onnxruntime.half]\noutputs = "relaxed"\nlayers = "relaxed"\n'
FOUND = {
    "gelu": (
        "text_encoder_2/mnn/deploy",
        f"""\
components = ["text_encoder_2"]
source = {{ checkpoint = "{FIXTURES / "sdxl"}", seed = 0 }}
export = {{ exporter = "torchscript", opset = 14 }}
shapes = [{{ batch = 1 }}]
inputs = {{ profiles = ["realistic"], realistic = 1 }}
backend.mnn.variants = ["deploy"]
component.text_encoder_2.attention = "eager"
""",
        "Erf(",
    ),
    "tanh": (
        "vae_decoder/mnn/fp32",
        f"""\
components = ["vae_decoder"]
source = {{ checkpoint = "{FIXTURES / "flux"}", seed = 0 }}
shapes = [{{ batch = 1, height = 8, width = 12 }}]
inputs.profiles = ["low-variance"]
backend.mnn.variants = ["fp32"]
""",
        "Tanh(",
    ),
    **{
        what: (
            f"{name}/mnn/fp32",
            f"""\
shapes = [{{ batch = 2 }}]
inputs = {{ profiles = ["realistic"], realistic = 1 }}
backend.mnn.variants = ["fp32"]
component.{name}.onnx = "{name}.onnx"
""",
            "Resize(",
        )
        for what, name in (("nearest pixel", "nearest"), ("cubic", "cubic"))
    },
}
"""Divergences of MNN that digits does not show: the case, a suite, and the operator."""

RESIZES = {
    "nearest": {"nearest_mode": "round_prefer_ceil"},
    "cubic": {"coordinate_transformation_mode": "half_pixel"},
}
FEW_BYTES = 16
MOST_LINES = 45
MODULES = (b"quant_conv", b"decoder", b"encoder.", b"token_emb", b"val_", b"conv2d_")


def run(folder, other="onnxruntime"):
    """Run the script where neither the harness nor the other runtime is there."""
    return subprocess.run(
        [sys.executable, "-I", "-c", ALONE.format(other=other)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def size_of(folder):
    return sum(file.stat().st_size for file in folder.iterdir())


def check_differs(folder, other="onnxruntime"):
    ended = run(folder, other)
    assert ended.returncode == 1, ended.stderr
    assert "times the noise of float32" in ended.stdout


def check_nothing_is_in(post, arrays):
    """Look for the bytes of arrays in every file of a folder."""
    kept = b"".join(file.read_bytes() for file in post.iterdir())
    users = [one.tobytes() for one in arrays]
    assert any(len(one) >= FEW_BYTES for one in users)
    for one in users:
        for at in range(0, len(one) - FEW_BYTES + 1, 4):
            assert one[at : at + FEW_BYTES] not in kept


@pytest.fixture(scope="module")
def both(passing, tmp_path_factory):
    """The folder with the user's own numbers, and the one to post."""
    project = passing[0].branch(tmp_path_factory.mktemp("post") / "project")
    into = project.path / "own", project.path / "post"
    for folder, how in zip(into, ((), ("--post",)), strict=True):
        ended = project.parity(
            "repro", CASE, *STRICT, *how, "--out", str(folder)
        ).check(0)
    return (*into, ended)


def test_the_script_shows_the_divergence_with_the_runtime_alone(both):
    check_differs(both[1])
    assert "harness" not in both[1].joinpath("repro.py").read_text()


def test_the_folder_is_small_and_has_the_text_to_post(both):
    _, post, ended = both
    assert size_of(post) < 50_000
    assert ended.has(f"{post / 'issue.md'} is the text to post")
    text = (post / "issue.md").read_text()
    assert text.startswith("# conv2d in MNN differs from ONNX's evaluator")
    assert "v0 = Conv(x0 [" in text
    assert "times the noise of float32" in text


def test_no_bytes_of_weights_or_inputs_are_in_it(both):
    own, post, _ = both
    model = onnx.load(own / "exported.onnx")
    users = [numpy_helper.to_array(one) for one in model.graph.initializer]
    users += [np.load(own / "expected.npy"), *np.load(own / "inputs.npz").values()]
    check_nothing_is_in(post, [one for one in users if one.dtype.kind == "f"])


def check_no_names_are_in(post):
    for file in post.iterdir():
        text = file.read_bytes()
        for name in (*MODULES, str(post.parent).encode()):
            assert name not in text, file


def test_no_names_of_the_checkpoint_are_in_it(both):
    check_no_names_are_in(both[1])


def test_a_script_has_forty_five_lines_at_most(both):
    assert len((both[1] / "repro.py").read_text().splitlines()) <= MOST_LINES


def test_no_prompt_is_in_it(project, tmp_path):
    """The first operator of a text encoder reads the token ids of a prompt."""
    case = ("text_encoder/mnn/fp16-weights", "--suite", str(DIGITS))
    folders = tmp_path / "own", tmp_path / "post"
    for folder, how in zip(folders, ((), ("--post",)), strict=True):
        project.parity(
            *("repro", *case, *STRICT, "--probe", "embedding", *how),
            *("--out", str(folder)),
        ).check(0)
    own, post = folders
    ids = next(iter(np.load(own / "inputs.npz").values()))

    assert ids.dtype.kind == "i"
    check_nothing_is_in(post, [ids.astype(np.int32), ids.astype(np.int64)])
    check_no_names_are_in(post)


def test_a_variant_that_keeps_values_is_posted_without_names(project, tmp_path):
    project.change("parity.toml", '= ["fp32"]', '= ["fp32", "half"]')
    table = '[variant.onnxruntime.half]\nfrom = "fp16"\nflags = ["--keep=silu,Mul"]\n'
    project.add("parity.toml", table)
    project.add("tolerances.toml", HALF)
    into = tmp_path / "post"

    project.parity(
        *("repro", "vae_decoder/onnxruntime/half", *STRICT),
        *("--probe", "decoder.conv_out", "--post", "--out", str(into)),
    ).check(0)

    assert "silu" not in (into / "issue.md").read_text()
    check_no_names_are_in(into)


def test_a_case_that_agrees_has_nothing_to_post(project, tmp_path):
    into = tmp_path / "none"
    project.parity(
        *("repro", "vae_decoder/onnxruntime/fp32", "--post", "--out", str(into))
    ).check(
        2,
        "vae_decoder/onnxruntime/fp32 agrees in every layer and output (",
        "name a value with --probe, or give a tighter --tier.",
    )

    assert not into.exists()


def test_what_agrees_alone_has_nothing_to_post(project, tmp_path):
    into = tmp_path / "none"
    project.parity(
        *("repro", "vae_decoder/onnxruntime/fp32", "--probe", "decoder.conv_out"),
        *("--post", "--out", str(into)),
    ).check(2, "agree when they run alone, so there is no small model to post")
    assert not into.exists()


@pytest.mark.parametrize(
    ("case", "words", "operator"),
    [
        ("text_encoder/mnn/fused", (), "Softmax("),
        ("vae_decoder/mnn/fp32", ("--set", "floors=20"), "Conv("),
        ("unet/onnxruntime/fp16", STRICT, "Mul("),
        ("unet/mnn/int4-weights", STRICT, "Gemm("),
    ],
    ids=["wrong fusion", "Winograd", "float16", "four bits"],
)
def test_findings_on_digits_need_no_weights(project, tmp_path, case, words, operator):
    into = tmp_path / "post"
    project.parity(
        "repro", case, *words, "--suite", str(DIGITS), "--post", "--out", str(into)
    ).check(0)
    assert size_of(into) < 50_000
    assert operator in (into / "issue.md").read_text()
    check_differs(into, "MNN" if "onnxruntime" in case else "onnxruntime")


@pytest.fixture
def resizes(tmp_path):
    """Write files that resize a picture to twice its size, as other exporters do."""
    kernel = np.random.default_rng(0).standard_normal((4, 4, 1, 1))
    weights = [
        numpy_helper.from_array(kernel.astype(np.float32), "kernel"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
    ]
    image, resized = (
        onnx.helper.make_tensor_value_info(name, 1, ["batch", 4, side, side])
        for name, side in (("image", 10), ("resized", 20))
    )
    for mode, own in RESIZES.items():
        how = {"coordinate_transformation_mode": "asymmetric", **own, "mode": mode}
        read = ["features", "", "scales"]
        nodes = [
            onnx.helper.make_node("Conv", ["image", "kernel"], ["features"]),
            onnx.helper.make_node("Resize", read, ["resized"], **how),
        ]
        graph = onnx.helper.make_graph(nodes, mode, [image], [resized], weights)
        opset = [onnx.helper.make_opsetid("", 17)]
        model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
        onnx.save(model, tmp_path / f"{mode}.onnx")


@pytest.mark.usefixtures("resizes", "store")
@pytest.mark.parametrize("what", FOUND)
def test_findings_about_mnn_need_no_weights_of_anybody(tmp_path, what):
    case, suite, operator = FOUND[what]
    (tmp_path / "parity.toml").write_text(suite)
    variant = case.rpartition("/")[2]
    bounds = 'outputs = "standard"\nlayers = "standard"\n'
    (tmp_path / "tolerances.toml").write_text(f"[mnn.{variant}]\n{bounds}")
    into = tmp_path / "post"

    called(tmp_path, "repro", case, "--post", "--out", str(into)).check(0)

    assert size_of(into) < 50_000
    assert operator in (into / "issue.md").read_text()
    check_differs(into)


@pytest.fixture
def broken_version(store):
    """A version whose environment has no numpy."""
    folder = store / "versions" / f"MNN-3.4.1-{sys.implementation.cache_tag}"
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    yield "3.4.1"
    shutil.rmtree(folder)


def test_versions_that_are_installed_are_in_the_text(project, tmp_path, broken_version):
    into = tmp_path / "post"
    project.parity("repro", CASE, *STRICT, "--post", "--out", str(into)).check(0)
    row = f"| {broken_version} | ModuleNotFoundError: No module named "
    assert row in (into / "issue.md").read_text()
