"""The meaning of parity.toml, and the refused entries."""

import json
import re
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest

from harness.core.case import PROFILES
from harness.core.errors import SuiteError
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES, ROOT

SUITE = f"""\
components = ["text_encoder", "unet"]
[source]
checkpoint = {json.dumps(str(DIGITS))}
[export]
opset = 18
dynamic_axes = ["batch"]
[[shapes]]
batch = 1
height = 16
width = 16
[[shapes]]
batch = 2
height = 32
width = 16
layers = false
[inputs]
profiles = ["realistic", "boundary"]
realistic = 3
[backend.onnxruntime]
variants = ["fp32", "fp16"]
[backend.mnn]
variants = ["fp32", "int8-weights"]
[variant.mnn.int8-weights]
profiles = ["realistic"]
[component.text_encoder]
attention = "eager"
[limits]
jobs = 1
"""


@pytest.fixture
def load(load):
    return lambda text: load("", text)


def changed(old, new):
    assert SUITE.count(old) == 1, old
    return SUITE.replace(old, new)


def case(suite, name):
    (found,) = [case for case in suite.cases if case.id == name]
    return found


def test_cases_stand_in_file_order(load):
    assert [case.id for case in load(SUITE).cases] == [
        "text_encoder/onnxruntime/fp32",
        "text_encoder/onnxruntime/fp16",
        "text_encoder/mnn/fp32",
        "text_encoder/mnn/int8-weights",
        "unet/onnxruntime/fp32",
        "unet/onnxruntime/fp16",
        "unet/mnn/fp32",
        "unet/mnn/int8-weights",
    ]


def plain(text):
    """A suite that keeps to its own sizes."""
    return text.replace("realistic = 3", "realistic = 3\nmore_sizes = false")


def test_realistic_samples_go_round_the_shapes(load):
    samples = case(load(plain(SUITE)), "unet/mnn/int8-weights").samples
    assert [(sample.id, dict(sample.shapes)["height"]) for sample in samples] == [
        ("realistic-0", 16),
        ("realistic-1", 32),
        ("realistic-2", 16),
    ]
    assert [sample.layers for sample in samples] == [True, False, True]


@pytest.mark.parametrize(
    ("name", "profiles"),
    [
        ("unet/onnxruntime/fp32", {*PROFILES}),
        ("unet/onnxruntime/fp16", {"realistic"}),
        ("unet/mnn/fp32", {*PROFILES}),
    ],
)
def test_without_profiles_a_suite_has_those_that_init_writes(load, name, profiles):
    suite = load(changed('profiles = ["realistic", "boundary"]\n', ""))
    assert {sample.profile for sample in case(suite, name).samples} == profiles


def test_other_profiles_take_the_widest_batch_whose_layers_are_compared(load):
    suite = load(plain(SUITE))
    full = load(plain(changed("layers = false", "layers = true")))
    for loaded, batch in ((suite, 1), (full, 2)):
        *_, boundary = case(loaded, "unet/mnn/fp32").samples
        assert boundary.id == "boundary-0"
        assert dict(boundary.shapes)["batch"] == batch


def test_a_component_is_bound_by_its_own_symbols_only(load):
    suite = load(plain(changed('["batch"]', '["batch", "height"]')))
    text_encoder = case(suite, "text_encoder/mnn/fp32")
    assert {sample.shapes for sample in text_encoder.samples} == {
        (("batch", 1),),
        (("batch", 2),),
    }
    assert text_encoder.export.dynamic == ("batch",)
    assert case(suite, "unet/mnn/fp32").export.dynamic == ("batch", "height")


def test_shapes_that_differ_in_a_foreign_symbol_are_one(load):
    suite = load(plain(changed("batch = 2\n", "batch = 1\n")))
    shapes = {s.shapes for s in case(suite, "text_encoder/mnn/fp32").samples}
    assert shapes == {(("batch", 1),)}


def test_all_components_are_tested_when_none_is_listed(load):
    suite = load(changed('components = ["text_encoder", "unet"]\n', ""))

    assert [component.name for component in suite.components] == [
        "text_encoder",
        "vae_encoder",
        "vae_decoder",
        "unet",
        "controlnet",
        "controlled_unet",
    ]


def test_settings_of_a_component_are_its_own(load):
    text = """[component.text_encoder]
exporter = "torchscript"
dynamic_axes = []
penultimate = true
variants = ["fp32"]
shapes = [{ batch = 3 }]
"""
    suite = load(changed("[component.text_encoder]\n", text))
    chosen = case(suite, "text_encoder/mnn/fp32")

    assert chosen.export.exporter == "torchscript"
    assert chosen.export.dynamic == ()
    assert chosen.export.attention == "eager"
    assert chosen.component.options == (("penultimate", True),)
    assert [spec.name for spec in chosen.component.outputs][-1] == (
        "penultimate_hidden_state"
    )
    assert {sample.shapes for sample in chosen.samples} == {(("batch", 3),)}
    assert len([c for c in suite.cases if c.component.name == "text_encoder"]) == 2
    assert case(suite, "unet/mnn/fp32").export.exporter == "dynamo"


def test_an_exporter_of_a_component_may_have_no_optimiser(load):
    text = changed("opset = 18\n", "opset = 18\noptimize = false\n")
    text = text.replace(
        "[limits]", '[component.unet]\nexporter = "torchscript"\n[limits]'
    )
    suite = load(text)

    assert not case(suite, "text_encoder/mnn/fp32").export.optimize
    assert case(suite, "unet/mnn/fp32").export.optimize, "torchscript has none"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        pytest.param(
            'exporter = "optimum"',
            r"parity.toml:\d+: optimum writes files of its own: .*`onnx = ",
            id="optimum",
        ),
        pytest.param(
            'exporter = "torchscript"\noptimize = false',
            r"parity.toml:\d+: torchscript has no optimiser of its own",
            id="torchscript",
        ),
    ],
)
def test_an_exporter_that_cannot_do_it_is_refused_in_a_sentence(load, setting, message):
    table = "[component.text_encoder]\n"
    with pytest.raises(SuiteError, match=message):
        load(changed(table, f"{table}{setting}\n"))


def test_a_variant_of_ones_own_runs_because_it_is_written(load):
    text = '[variant.mnn.int4-hqq]\nfrom = "int4-weights"\nflags = ["--hqq"]\n'
    variant = case(load(SUITE + text), "unet/mnn/int4-hqq").variant
    assert (variant.kind, variant.flags) == ("int4-weights", ("--hqq",))


PLANNED = """\
[variant.mnn.planned]
from = "int8-weights"
flags = ["--compressionParamsFile=plan.json"]
"""


def test_a_flag_that_names_a_file_means_the_file_beside_the_suite(load, tmp_path):
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    variant = case(load(SUITE + PLANNED), "unet/mnn/planned").variant
    path = (tmp_path / "plan.json").resolve()
    assert variant.files == (("--compressionParamsFile=plan.json", path),)
    assert variant.converter_flags == (f"--compressionParamsFile={path}",)


def test_a_flag_that_names_no_file_is_refused_at_its_line(load):
    with pytest.raises(SuiteError, match=r"parity.toml:\d+: there is no file .*plan"):
        load(SUITE + PLANNED)


def test_only_what_is_quantized_statically_is_calibrated_and_with_other_inputs(load):
    text = changed('["fp32", "fp16"]', '["fp32", "int8-static"]')
    suite = load(text.replace("realistic = 3", "realistic = 3\ncalibration = 5"))
    assert {c.id: len(c.calibration) for c in suite.cases if c.calibration} == {
        "text_encoder/onnxruntime/int8-static": 5,
        "unet/onnxruntime/int8-static": 5,
    }
    (one,) = (c for c in suite.cases if c.id == "unet/onnxruntime/int8-static")
    assert {s.seed for s in one.calibration}.isdisjoint(s.seed for s in one.samples)


def test_a_recipe_may_lie_beside_the_suite(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "a_net_of_mine.py").write_text(
        "from harness.core.case import TensorSpec\n"
        "def signature(source, options):\n"
        "    spec = TensorSpec(name='x', shape=('batch', 4), draw='normal')\n"
        "    return (spec,), (TensorSpec(name='y', shape=('batch', 4)),)\n"
        "build = realistic = signature\n"
    )
    (tmp_path / "parity.toml").write_text(
        'components = ["net"]\n[source]\ncheckpoint = "."\n'
        '[component.net]\nrecipe = "a_net_of_mine"\n'
        '[backend.onnxruntime]\nvariants = ["fp32"]\n[[shapes]]\nbatch = 1\n'
    )

    (component,) = load_suite(tmp_path).components

    assert (component.name, component.recipe) == ("net", "a_net_of_mine")


def test_a_recipe_may_be_used_under_another_name(load):
    text = '[component.other]\nrecipe = "vae_decoder"\n'
    suite = load(changed('"unet"]', '"other"]') + text)
    assert case(suite, "other/mnn/fp32").component.recipe == "vae_decoder"


def test_devices_are_read(load):
    text = '[backend.mnn]\nprecision = "low"\nthreads = 4\nhints = { b = 1, a = 2 }\n'
    device = case(load(changed("[backend.mnn]\n", text)), "unet/mnn/fp32").device
    assert (device.precision, device.threads) == ("low", 4)
    assert device.hints == (("a", 2), ("b", 1))


def test_files_lie_beside_the_suite_unless_named(load, tmp_path):
    assert load(SUITE).tolerances_path == tmp_path / "tolerances.toml"
    (tmp_path / "other.toml").touch()
    named = load(SUITE + '[files]\ntolerances = "other.toml"\n')
    assert named.tolerances_path == tmp_path / "other.toml"
    assert named.gaps_path == tmp_path / "known_gaps.toml"


def test_the_checkpoint_is_looked_up_from_the_file(load, tmp_path):
    (tmp_path / "here").symlink_to(DIGITS)
    suite = load(changed(json.dumps(str(DIGITS)), '"here"'))
    assert suite.source.path == DIGITS
    assert suite.name == tmp_path.name


TEXT = "[component.text_encoder]"
EAGER = 'attention = "eager"'
LISTED = 'components = ["text_encoder", "unet"]'
MNN = "[backend.mnn]"
ORT = "[backend.onnxruntime]"
OWN = "[variant.mnn.int8-weights]"
"""Lines of the suite that are changed below."""


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("[inputs]", "[input]", 16, "did you mean 'inputs'"),
        ("opset = 18", "opsett = 18", 5, "'opset'"),
        ("opset = 18", "opset = 11", 5, "opset 14 or newer"),
        (LISTED, 'components = [\n"text_encoder",\n"unnet"]', 3, "did you mean 'unet'"),
        (TEXT, "[component.text_encodr]", 25, "did you mean 'text_encoder'"),
        (TEXT, "[component.vae_encoder]", 25, "list it in `components`"),
        (EAGER, 'atention = "eager"', 26, "'attention'"),
        (EAGER, "penultimat = true", 26, "did you mean 'penultimate'"),
        (EAGER, 'recipe = "no.such.net"', 26, "no recipe 'no.such.net'"),
        (EAGER, "penultimate = 0.5", 26, "must be text"),
        (EAGER, 'variants = ["fp23"]', 26, "'fp32'"),
        (MNN, "[backend.mmn]", 21, "'mnn'"),
        ('"int8-weights"]', '"int8-weight"]', 22, "'int8-weights'"),
        (OWN, "[variant.mnn.int8-weigths]", 23, "did you mean 'int8-weights'"),
        (OWN, "[variant.mnn.deploy]", 23, "not among the `variants`"),
        (OWN, f'{OWN}\nflags = ["--x"]', 23, "a name of its own"),
        (OWN, '[variant.mnn.mine]\nfrom = "int8"', 24, "'int8-weights'"),
        (
            OWN,
            '[variant.onnxruntime.mine]\nfrom = "fp32"\nflags = ["--keep=a"]',
            25,
            "runs the exported file as it is",
        ),
        ('"boundary"]', '"bondary"]', 17, "'boundary'"),
        ("realistic = 3", "realistic = 1", 11, "set realistic to 2"),
        ("height = 32", "heigth = 32", 13, "'height'"),
        ("height = 32\n", "", 11, "'height', which 'unet'"),
        ("height = 32", "height = 0", 13, "1 or more"),
        ("height = 32", f"height = 1{'0' * 400}", 13, "less than 2,147,483,648"),
        ("batch = 2\nheight = 32", "batch = 1\nheight = 16", 11, "twice"),
        ('["batch"]', '["bach"]', 6, "did you mean 'batch'"),
        (MNN, f'{MNN}\ndevice = "gpu"', 22, "'cpu'"),
        (MNN, f"{MNN}\ntf32 = true", 22, "'tf32'"),
        (MNN, f"{MNN}\ncpu_nodes = 0.1", 22, "'cpu_nodes'"),
        (MNN, f'{MNN}\napi = "modul"', 22, "did you mean 'module'"),
        (ORT, f'{ORT}\napi = "module"', 20, "'api'"),
        (MNN, f'{MNN}\ndevice = "AExecutionProvider"', 22, "'cpu'"),
        (
            ORT,
            ORT + "\nprovider_options = { use_tf32 = 1 }",
            20,
            "needs a `device` other than 'cpu'",
        ),
        (
            ORT,
            ORT + '\ndevice = "qnn"\nprovider_options = { a = [1] }',
            21,
            "provider_options are texts, numbers, true or false, got a list",
        ),
        (json.dumps(str(DIGITS)), '"nowhere"', 3, "no checkpoint at"),
        (json.dumps(str(DIGITS)), '"."', 3, "model_index.json"),
        ("checkpoint =", 'hub = "a/b"\ncheckpoint =', 2, "has both"),
        (f"checkpoint = {json.dumps(str(DIGITS))}", "", 2, "has neither"),
        ("[limits]", '[files]\ntolerances = "no.toml"\n[limits]', 28, "no.toml"),
    ],
)
def test_a_mistake_has_its_line_and_the_right_word(refused, old, new, line, said):
    refused(changed(old, new), line, said)


@pytest.mark.parametrize("table", ["shapes", "backend"])
def test_an_empty_matrix_is_refused(load, table):
    lines = SUITE.splitlines()
    first = next(i for i, text in enumerate(lines) if re.match(rf"\[+{table}\b", text))
    kept = lines[:first]
    skipping = True
    for text in lines[first:]:
        if text.startswith("["):
            skipping = bool(re.match(rf"\[+({table}|variant)\b", text))
        kept += [] if skipping else [text]

    with pytest.raises(
        SuiteError, match=r"parity\.toml:1: (no \[\[shapes\]\]|there is no backend)"
    ):
        load("\n".join(kept))


def test_a_component_without_its_folder_is_named(load, tmp_path):
    (tmp_path / "unet").mkdir()
    (tmp_path / "unet" / "config.json").write_text("{}")
    (tmp_path / "model_index.json").write_text("{}")
    text = changed(json.dumps(str(DIGITS)), '"."').replace('"unet"]', '"controlnet"]')
    with pytest.raises(SuiteError, match=r"text_encoder.*missing.*it has unet"):
        load(text)


def test_a_missing_suite_says_how_to_get_one(tmp_path):
    with pytest.raises(SuiteError, match=r"parity\.toml; `parity init` writes one"):
        load_suite(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        ("unet", ["unet/mnn/fp32", "unet/onnxruntime/fp32"]),
        ("UNet/mnn", ["unet/mnn/fp32"]),
        ("controlled_unet/mnn/fp32", ["controlled_unet/mnn/fp32"]),
        ("*unet/mnn/*", ["controlled_unet/mnn/fp32", "unet/mnn/fp32"]),
        ("onnx", ["controlled_unet/onnxruntime/fp32", "unet/onnxruntime/fp32"]),
    ],
)
def test_a_pattern_selects_whole_parts_before_substrings(load, pattern, ids):
    text = (
        SUITE.replace('"text_encoder", "unet"', '"unet", "controlled_unet"')
        .replace('[component.text_encoder]\nattention = "eager"\n', "")
        .replace('[variant.mnn.int8-weights]\nprofiles = ["realistic"]\n', "")
        .replace(', "int8-weights"', "")
        .replace(', "fp16"', "")
    )
    assert sorted(case.id for case in load(text).select([pattern])) == sorted(ids)


def test_selection_keeps_the_order_and_nothing_selects_all(load):
    suite = load(SUITE)
    assert suite.select([]) == suite.cases
    chosen = suite.select(["unet/mnn/fp32", "text_encoder/mnn/fp32"])
    assert [case.id for case in chosen] == ["text_encoder/mnn/fp32", "unet/mnn/fp32"]


def test_a_pattern_that_matches_nothing_names_the_nearest(load):
    with pytest.raises(SuiteError, match=r"'unet/mnn/fp23'.*unet/mnn/fp32"):
        load(SUITE).select(["unet/mnn/fp23"])


def test_checks_have_ids_and_leave_out_layers_nobody_compares(load):
    every = [check.id for check in load(SUITE).checks()]
    text = changed("width = 16\n[[shapes]]", "width = 16\nlayers = false\n[[shapes]]")
    outputs = [check.id for check in load(text).checks()]

    assert every[:2] == [
        "text_encoder/onnxruntime/fp32/layers",
        "text_encoder/onnxruntime/fp32/outputs",
    ]
    assert len(every) == 16
    assert len(outputs) == 8
    assert all(name.endswith("/outputs") for name in outputs)


def test_loading_imports_neither_numpy_nor_a_framework():
    code = (
        "import sys, pathlib; from harness.suite.suite import load_suite;"
        f"load_suite(pathlib.Path({str(DIGITS)!r}));"
        "heavy = {'numpy', 'torch', 'diffusers', 'huggingface_hub', 'pytest'};"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr


class TestHub:
    """A `hub` id instead of a folder; nothing here reaches the network."""

    @pytest.fixture
    def asked(self, monkeypatch):
        asked = []

        def snapshot_download(
            hub, *, local_files_only, allow_patterns, ignore_patterns
        ):
            del ignore_patterns
            asked.append((hub, local_files_only, "*/*.safetensors" in allow_patterns))
            if hub == "org/cached" or (hub == "org/online" and not local_files_only):
                return str(DIGITS)
            msg = "No connection.\nMany more lines."
            raise OSError(msg)

        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
        return asked

    @pytest.fixture
    def load_hub(self, load):
        return lambda hub, more="": load(
            changed(f"checkpoint = {json.dumps(str(DIGITS))}", f'hub = "{hub}"\n{more}')
        )

    def test_the_cache_is_enough(self, asked, load_hub):
        assert load_hub("org/cached").source.path == DIGITS
        assert asked == [("org/cached", True, True)]

    def test_it_is_downloaded_else(self, asked, load_hub):
        assert load_hub("org/online").source.path == DIGITS
        assert [local for _, local, _ in asked] == [True, False]

    def test_weights_that_are_drawn_are_not_downloaded(self, asked, load_hub):
        assert load_hub("org/cached", "seed = 0").source.seed == 0
        assert asked == [("org/cached", True, False)]

    def test_no_network_is_one_sentence_with_a_way_out(self, asked, load_hub):
        with pytest.raises(SuiteError) as caught:
            load_hub("org/gone")
        assert len(asked) == 2
        message = str(caught.value)
        assert "parity.toml:3: 'org/gone' is not in the Hugging Face cache" in message
        assert "(No connection)" in message
        assert "HF_HUB_OFFLINE" in message
        assert "\n" not in message

    def test_a_misshapen_id_is_refused_before_asking(self, asked, load_hub):
        with pytest.raises(SuiteError, match="organisation/name"):
            load_hub("stable-diffusion")
        assert asked == []


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("digits", 60),
        ("sd15", 10),
        ("sdxl", 14),
        ("full_size/sdxl_base", 8),
        ("full_size/sdxl_unet", 1),
        ("channels", 12),
    ],
)
def test_the_fixtures_load(name, count):
    suite = load_suite(FIXTURES / name)
    assert suite.name == Path(name).name
    ids = [case.id for case in suite.cases]
    assert len(set(ids)) == len(ids) == count
