"""Foreign models, tested by the command as people use it."""

import hashlib
import re
import shutil

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from safetensors.numpy import load_file, save_file

from tests.places import EXPORTED
from tests.plugin import others
from tests.plugin.project import Project

pytestmark = pytest.mark.slow

SHAPES = "[[shapes]]\nbatch = 2\nheight = 8\nwidth = 12\n"
HEAD = f"""\
[source]
checkpoint = "sd"
seed = 0

{SHAPES}
[inputs]
profiles = ["realistic"]
realistic = 1

[backend.onnxruntime]
[backend.mnn]
"""
RENAMED = """\
sample = "latents"
timestep = "t"
encoder_hidden_states = "text"
out_sample = "noise"
"""
BOUNDS = """\
[onnxruntime.given]
outputs = "standard"
layers = "standard"

[mnn.fp32]
outputs = "standard"
layers = "standard"

[mnn.given]
outputs = "relaxed"
layers = "relaxed"
"""

EMPTY_CACHE = """
<ir_version: 9, opset_import: ["" : 17]>
cached (float[1, 0, 4] past, float[1, n, 4] x) => (float[1, m, 4] y)
{
    both = Concat <axis = 1> (past, x)
    y = Relu (both)
}
"""
CACHED = """\
[[shapes]]
n = 3

[inputs]
profiles = ["realistic"]
realistic = 1

[backend.onnxruntime]

[component.cached]
onnx = "cached.onnx"
variants = ["given"]
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files as others would hand them over, beside the checkpoint."""
    folder = tmp_path_factory.mktemp("exported")
    for name in ("sd", "optimum", "txtai"):
        shutil.copytree(EXPORTED / name, folder / name)
    sd = folder / "sd"
    plain = others.notebook(sd, folder / "notebook.onnx")
    others.notebook(sd, folder / "other.onnx", seed=1)
    others.notebook(sd, folder / "whole.onnx", whole=True)
    bare = others.nameless(plain, folder / "nameless.onnx")
    others.rounded(bare, folder / "rounded.onnx")
    others.beside(plain, folder / "beside.onnx")
    others.converted(plain, folder / "half.mnn", "--fp16")
    text = folder / "optimum" / "text_encoder" / "model.onnx"
    others.without_output(text, folder / "short.onnx", "pooler_output")
    return folder


def suite(files, components, head=HEAD, bounds=BOUNDS):
    names = re.findall(r"\[component\.(\w+)\]", components)
    (files / "parity.toml").write_text(f"components = {names}\n{head}{components}")
    (files / "tolerances.toml").write_text(bounds)
    shutil.rmtree(files / "reports", ignore_errors=True)
    return Project(files)


def component(name, file, names="", *, recipe="unet", kind="onnx", more=""):
    text = f'[component.{name}]\nrecipe = "{recipe}"\n{kind} = "{file}"\n{more}'
    return text + (f"[component.{name}.names]\n{names}" if names else "")


@pytest.fixture(scope="module")
def ran(files, store):
    """One run of all the files that can be taken, and its report."""
    told = "".join(
        (
            component("notebook", "notebook.onnx", RENAMED),
            component("beside", "beside.onnx", RENAMED, more='variants = ["given"]\n'),
            component("bare", "nameless.onnx", RENAMED, more='variants = ["given"]\n'),
            component("silent", "rounded.onnx", RENAMED, more='variants = ["given"]\n'),
            component("other", "other.onnx", RENAMED),
            component("whole", "whole.onnx", RENAMED, more='variants = ["given"]\n'),
            component("half", "half.mnn", RENAMED, kind="mnn"),
            component(
                *("short", "short.onnx"),
                recipe="text_encoder",
                more='variants = ["given"]\n',
            ),
            component(
                *("misread", "optimum/text_encoder_misread/model.onnx"),
                recipe="text_encoder",
            ),
        )
    )
    before = digests(files)
    project = suite(files, told)
    ended = project.parity("run", "--store", str(store)).check(1)
    return ended, project.report, before


def digests(folder):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.glob("*.onnx*")) + sorted(folder.glob("*.mnn"))
    }


def outcomes(report):
    return {verdict["id"]: verdict["outcome"] for verdict in report["verdicts"]}


def case(report, name):
    return next(one for one in report["cases"] if one["case"] == name)


def verdict(report, name):
    return next(one for one in report["verdicts"] if one["id"] == name)


@pytest.mark.parametrize(
    "name",
    [
        "notebook/onnxruntime/given",
        "notebook/mnn/fp32",
        "beside/onnxruntime/given",
        "bare/onnxruntime/given",
        "whole/onnxruntime/given",
        "half/mnn/given",
        "short/onnxruntime/given",
    ],
)
def test_a_file_of_the_same_model_agrees(ran, name):
    found = outcomes(ran[1])
    assert (found[f"{name}/layers"], found[f"{name}/outputs"]) == ("within", "within")


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("notebook/onnxruntime/given", "scopes"),
        ("half/mnn/given", "scopes"),
        ("bare/onnxruntime/given", "weights"),
        ("silent/onnxruntime/given", "outputs"),
    ],
)
def test_the_report_says_how_a_file_was_lined_up(ran, name, by):
    assert case(ran[1], name)["foreign"]["by"] == by


def test_weights_alone_line_up_over_two_fifths_of_the_values_and_it_is_said(ran):
    coverage = case(ran[1], "bare/onnxruntime/given")["coverage"]
    assert coverage["aligned"] / coverage["computing"] > 0.4
    assert ran[0].has("lined up by weights, which reach")


def test_outputs_alone_are_no_pass_of_the_layers(ran):
    found = outcomes(ran[1])
    assert found["silent/onnxruntime/given/outputs"] == "within"
    assert found["silent/onnxruntime/given/layers"] == "coverage"
    reason = verdict(ran[1], "silent/onnxruntime/given/layers")["reason"]
    assert "only its outputs can be compared" in reason


# Optimum's transformers did not know the names of the weights of `misread`, and drew it
# at random, with a warning alone.
@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("other", (".conv_in", ".linear_1")),
        ("misread", (".embeddings.token_embedding",)),
    ],
)
def test_another_models_weights_part_where_the_first_is_read(ran, name, places):
    assert outcomes(ran[1])[f"{name}/onnxruntime/given/outputs"] == "weights"
    first = verdict(ran[1], f"{name}/onnxruntime/given/layers")["first_divergence"]
    assert f".{first}".endswith(places)


def test_an_output_that_is_not_there_is_said_and_the_others_compared(ran):
    taken = case(ran[1], "short/onnxruntime/given")["foreign"]
    assert taken["left_out"] == ["pooler_output"]
    assert "the file has no pooler_output" in ran[0].text


def test_files_are_left_as_they_were_and_the_store_has_no_copy(ran, files):
    assert digests(files) == ran[2]
    assert (files / "notebook.onnx").stat().st_nlink > 1, "a second name of the file"
    # onnx reads weights beside a file only where they have one name.
    assert (files / "beside.onnx_data").stat().st_nlink == 1


def test_other_names_are_refused_with_the_lines_to_write(files):
    suite(files, component("unet", "notebook.onnx")).parity("run").check(
        2,
        'timestep = "t"; encoder_hidden_states = "text"',
        'out_sample = "noise"',
        "[component.unet.names]",
    )


def test_a_fixed_batch_refuses_another(files):
    head = HEAD.replace("batch = 2", "batch = 1")
    suite(files, component("unet", "whole.onnx", RENAMED), head=head).parity(
        "run"
    ).check(2, "is to run at batch = 1, and its file fixes that axis")


def test_an_mnn_file_alone_asks_for_mnn(files):
    head = HEAD.replace("[backend.mnn]\n", "")
    suite(files, component("unet", "half.mnn", RENAMED, kind="mnn"), head=head).parity(
        "run"
    ).check(2, "no [backend.mnn] to run it")


FIXED = "[[shapes]]\nbatch = 2\nheight = 8\nwidth = 8\nlayers = false\n"


@pytest.fixture
def of_scripts(tmp_path):
    """Write a suite of the file that MNN's script made, all of its axes fixed."""
    shutil.copytree(EXPORTED / "sd", tmp_path / "sd")
    for name in ("unet.mnn", "unet.mnn.weight"):
        shutil.copy(EXPORTED / "mnn_scripts" / name, tmp_path)

    def write(shapes):
        head = HEAD.replace(SHAPES, shapes).replace("realistic = 1", "realistic = 2")
        unet = component("unet", "unet.mnn", kind="mnn")
        return suite(tmp_path, unet, head, '[mnn.given]\noutputs = "relaxed"\n')

    return write


def test_an_mnn_file_of_fixed_sizes_alone_is_tested_at_those_alone(of_scripts, store):
    project = of_scripts(FIXED)

    project.parity("run", "--store", str(store)).check(0)

    assert outcomes(project.report) == {"unet/mnn/given/outputs": "within"}


def test_a_size_that_a_given_file_fixes_is_no_matter_of_forward(of_scripts, store):
    project = of_scripts(FIXED + FIXED.replace("batch = 2", "batch = 3"))

    project.parity("run", "--store", str(store))

    said = verdict(project.report, "unet/mnn/given/outputs")
    assert said["outcome"] == "frozen"
    assert "have them leave the axis open" in said["reason"]
    assert "forward" not in said["reason"]


def test_an_mnn_files_operators_are_blamed_one_by_one(files, store):
    bounds = '[mnn.given]\noutputs = "relaxed"\nlayers = "relaxed"\n'
    half = component("unet", "half.mnn", RENAMED, kind="mnn")
    project = suite(files, half, bounds=bounds)
    told = project.parity(
        *("explain", "unet/mnn/given", "--tier", "strict", "--store", str(store))
    )
    told.check(0, "first diverges from PyTorch at or before time_embedding.linear_1")
    places = "places: time_embedding.linear_2 (Linear), conv_in (Conv2d)"
    assert told.has(places), "each by itself"
    assert told.has("the ONNX file that it was converted from is not given")


def test_a_truncated_mnn_file_is_a_finding(files, store):
    (files / "cut.mnn").write_bytes((files / "half.mnn").read_bytes()[:5000])
    _, _, bounds = BOUNDS.rpartition("\n\n")
    project = suite(files, component("unet", "cut.mnn", kind="mnn"), bounds=bounds)
    told = project.parity("run", "unet", "--store", str(store))
    assert (told.code, outcomes(project.report)["unet/mnn/given/outputs"]) == (
        2,
        "load",
    )
    assert "Traceback" not in told.text


def test_optimums_files_agree_with_pytorch(store, tmp_path):
    shutil.copytree(EXPORTED, tmp_path / "exported")
    project = Project(tmp_path / "exported")
    project.parity("run", "--store", str(store)).check(0)

    assert {one["foreign"]["by"] for one in project.report["cases"]} == {"scopes"}


@pytest.fixture
def txtai(tmp_path):
    """txtai's files, and the model that it exported them from."""
    shutil.copytree(EXPORTED, tmp_path / "exported")
    return Project(tmp_path / "exported" / "txtai_bert")


TASKS = ("default", "pooling", "text-classification")


def test_txtais_files_agree_with_the_model_that_it_exported(txtai, store):
    ended = txtai.parity("run", "onnxruntime", "--store", str(store)).check(0)
    assert outcomes(txtai.report) == {
        f"{task}/onnxruntime/given/{what}": "within"
        for task in TASKS
        for what in ("layers", "outputs")
    }
    assert {one["foreign"]["by"] for one in txtai.report["cases"]} == {"scopes"}
    assert ended.has("which reach 100% of PyTorch's values")


def test_of_another_model_txtais_files_part_at_the_weight_that_differs(txtai, store):
    weights = txtai.path / "model" / "model.safetensors"
    held = load_file(weights)
    held["bert.encoder.layer.1.attention.self.value.weight"] *= 1.001
    save_file(held, weights, metadata={"format": "pt"})

    txtai.parity("run", "onnxruntime", "--store", str(store)).check(1)

    for task in TASKS:
        told = verdict(txtai.report, f"{task}/onnxruntime/given/layers")
        assert told["outcome"] == "exceeds"
        assert told["first_divergence"].endswith("layer.1.attention.self.value")


def test_without_pytorch_the_onnx_file_is_the_reference(store, tmp_path):
    shutil.copytree(EXPORTED, tmp_path / "exported")
    project = Project(tmp_path / "exported" / "txtai_alone")
    (project.path / "known_gaps.toml").unlink()
    ended = project.parity("run", "--store", str(store))
    found = outcomes(project.report)
    assert found["pooling/onnxruntime/given/outputs"] == "within", ended.text
    assert ended.has("without PyTorch there is no float64 run, and no noise floor")
    (asked,) = (
        one
        for case in project.report["cases"]
        if case["case"] == "pooling/onnxruntime/given"
        for one in case["contract"][0]["inputs"]
        if one["name"] == "input_ids"
    )
    assert asked["reference"] > 0
    assert asked["deployed"] == pytest.approx(asked["reference"], rel=1e-4)
    # txtai exports scaled_dot_product_attention: MNN has no IsNaN, and it says so.
    assert found["pooling/mnn/fp32/outputs"] == "convert"
    assert ended.has('attn_implementation="eager"')


def test_a_file_that_fixes_an_axis_at_no_element_is_fed_no_element(store, tmp_path):
    onnx.save(onnx.parser.parse_model(EMPTY_CACHE), tmp_path / "cached.onnx")
    (tmp_path / "parity.toml").write_text(CACHED)
    (tmp_path / "tolerances.toml").write_text(BOUNDS.partition("[mnn.fp32]")[0])
    project = Project(tmp_path)

    project.parity("run", "--store", str(store)).check(0)

    (contract,) = project.case("cached/onnxruntime/given")["contract"]
    assert [one["shape"] for one in contract["inputs"]] == [[1, 0, 4], [1, "n", 4]]


def test_the_suite_that_init_writes_for_a_folder_of_files_runs(store, tmp_path):
    files = tmp_path / "optimum"
    for name in ("text_encoder", "vae_encoder"):
        shutil.copytree(EXPORTED / "optimum" / name, files / name)
    encoder = files / "vae_encoder" / "model.onnx"
    others.converted(encoder, encoder.with_suffix(".mnn"))
    project = Project(files)
    written = project.parity("init", ".")
    ended = project.parity("run", "--store", str(store))

    assert written.code == 0, written.text
    assert ended.code == 0, ended.text
    assert set(outcomes(project.report).values()) == {"within"}
    assert {case["case"] for case in project.report["cases"]} == {
        *("text_encoder/onnxruntime/given", "text_encoder/mnn/fp32"),
        *("vae_encoder/onnxruntime/given", "vae_encoder/mnn/given"),
    }


def test_a_file_of_another_training_fails_where_only_eight_bits_are_run(files, store):
    model = onnx.load(files / "notebook.onnx")
    draw = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype == np.float32 and value.ndim > 1:
            step = 1e-3 * draw.standard_normal(value.shape, dtype=np.float32)
            tensor.CopyFrom(numpy_helper.from_array(value * (1 + step), tensor.name))
    onnx.save(model, files / "stale.onnx")
    told = component("stale", "stale.onnx", RENAMED)
    head = HEAD.replace(
        "[backend.onnxruntime]\n[backend.mnn]",
        '[backend.mnn]\nvariants = ["int8-weights"]',
    )
    bounds = '[mnn.int8-weights]\noutputs = "quantized"\nlayers = "quantized"\n'
    project = suite(files, told, head, bounds)

    ended = project.parity("run", "--store", str(store))

    ended.check(1, "the graph's weights are of another training step")
