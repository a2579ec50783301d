"""The suite that `parity init` writes loads, and is never half written."""

import ast
import json
import re
import shutil
import tomllib
from pathlib import Path

import jsonschema
import pytest
import torch
from transformers import AutoConfig, AutoModelForQuestionAnswering

from harness.core.errors import ParityError, SuiteError
from harness.core.runtime import runtimes
from harness.core.settings import Settings
from harness.judge.policy import Policy
from harness.judge.tolerance import first_tiers
from harness.plugins.capture.suites import TEST_FILE
from harness.plugins.start.init.render import first_runtimes
from harness.plugins.start.init.write import write_suite
from harness.recipes import recipe_module
from harness.recipes.inputs import draw
from harness.recipes.text.sample_texts import QUESTIONS
from harness.suite.judge import Judge
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES
from tests.plugin import project
from tests.unit.encoders import tokenizer_of, write_encoder

GELU = "transformer_blocks.0.ff.net.0"


def copy_digits(root):
    """Return a copy of digits' checkpoint that a test may damage."""
    shutil.copytree(DIGITS, root, ignore=shutil.ignore_patterns("*.toml", "*.png"))
    return root


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small checkpoint, linked, so that a relative path to it is short."""
    link = tmp_path_factory.mktemp("digits") / "model"
    link.mkdir()
    for path in DIGITS.iterdir():
        if path.is_dir() or path.name == "model_index.json":
            (link / path.name).symlink_to(path)
    return link


@pytest.fixture(scope="module")
def written(checkpoint):
    """The files of a suite that tests read alone."""
    return write_suite(checkpoint, checkpoint.parent / "parity")


@pytest.fixture(scope="module")
def suite(written):
    return load_suite(written[0])


def suite_of(checkpoint, folder, **about):
    """Write a suite and load it."""
    return load_suite(write_suite(checkpoint, folder, **about)[0])


def rule_of(suite, case, group="layers", probe="x", **about):
    return Policy.load(suite.tolerances_path).for_probe(
        (case.component.name, case.backend, case.variant.name),
        group=group,
        probe=probe,
        **about,
    )


def test_what_it_writes_loads(checkpoint, written, suite):
    assert [path.name for path in written] == [
        "parity.toml",
        "tolerances.toml",
        "parity.schema.json",
        "test_parity.py",
    ]
    assert suite.source.path == checkpoint
    assert suite.source.seed is None
    assert len(suite.components) == 6
    assert 'checkpoint = "../model"' in written[0].read_text()
    assert suite.cases[0].export.attention == "eager"


def test_a_checkpoint_far_away_is_named_in_full(tmp_path):
    parity, *_ = write_suite(DIGITS, tmp_path)

    assert f'checkpoint = "{DIGITS}"' in parity.read_text(encoding="utf-8")


def test_every_case_has_a_tolerance(suite):
    for case in suite.cases:
        for group in ("outputs", "layers"):
            assert rule_of(suite, case, group).tier


def test_every_built_in_variant_has_a_tier_to_begin_with():
    names = {f"{one.name}.{v}" for one in runtimes().values() for v in one.variants}
    takes = {one.name for one in runtimes().values() if one.reads in {"onnx", "mnn"}}
    assert set(first_tiers()) - names == {f"{name}.given" for name in takes}
    assert names < set(first_tiers())


def test_only_what_a_healthy_checkpoint_passes_runs_at_first(written, suite):
    text = written[0].read_text()

    assert {case.variant.kind for case in suite.cases} == {"fp32"}
    for one in first_runtimes():
        for name in [*one.variants][1:]:
            assert re.search(rf'^  # "{name}", +# \S.+', text, re.MULTILINE), name


def test_a_variant_is_one_line_away_with_its_tolerance_ready(checkpoint, tmp_path):
    parity, *_ = write_suite(checkpoint, tmp_path)
    Judge.of(load_suite(tmp_path), Settings())  # nothing in tolerances.toml is stale
    parity.write_text(re.sub(r'^  # "', '  "', parity.read_text(), flags=re.MULTILINE))
    suite = load_suite(tmp_path)
    judge = Judge.of(suite, Settings())

    listed = {f"{case.backend}.{case.variant.name}" for case in suite.cases}
    assert listed == {
        f"{one.name}.{v}" for one in first_runtimes() for v in one.variants
    }
    judge.require((case, what) for case in suite.cases for what in case.whats)


def test_mnn_gets_a_hint_where_something_is_convolved(suite, tmp_path):
    hints = [
        {case.backend: case.device.hints for case in one.cases}
        for one in (suite, suite_of(FIXTURES / "dit", tmp_path))
    ]

    assert hints[0] == {"onnxruntime": (), "mnn": (("winograd_memory_level", 0),)}
    assert hints[1] == {"onnxruntime": (), "mnn": ()}


@pytest.mark.parametrize(
    ("family", "bound"),
    [
        ("digits", [(76.0, None), (17.0, None)]),
        ("sd3", [(302.0, None), (65.0, None)]),
        ("sd15", [(None, 60.0), (None, 60.0)]),
        ("flux", [(16.0, None), (16.0, None)]),
    ],
)
def test_an_encoder_may_be_off_by_what_its_groupnorms_sum(family, bound, tmp_path):
    suite = suite_of(FIXTURES / family, tmp_path)
    cases = [c for c in suite.cases if c.subject == "vae_encoder"]

    assert len(cases) == len(first_runtimes())
    for case in cases:
        rules = [rule_of(suite, case, group=group) for group in ("layers", "outputs")]
        found = [(rule.tolerance.floors, rule.tolerance.sqnr_db) for rule in rules]
        assert found == bound


def test_configurations_alone_get_a_seed_and_large_ones_smaller_layers(tmp_path):
    suite = suite_of(FIXTURES / "sd15", tmp_path)
    samples = next(c for c in suite.cases if c.id == "unet/mnn/fp32").samples

    assert suite.source.seed == 0
    assert suite.export.external_data
    assert dict(samples[0].shapes) == {"batch": 1, "height": 32, "width": 48}
    assert dict(samples[1].shapes) == {"batch": 2, "height": 64, "width": 64}
    assert [samples[0].layers, samples[1].layers] == [True, False]


@pytest.mark.parametrize("family", ["sd3", "flux", "pixart", "dit"])
def test_a_transformer_gets_a_suite_with_every_size(family, tmp_path):
    suite = suite_of(FIXTURES / family, tmp_path)

    assert "transformer" in [component.name for component in suite.components]
    assert "coverage = 0.6" in (tmp_path / "parity.toml").read_text()
    assert suite.source.seed == 0
    for case in suite.cases:
        for sample in case.samples:
            for spec in case.component.inputs:
                assert min(spec.bind(dict(sample.shapes)), default=1) > 0


@pytest.mark.parametrize("family", ["flux", "pixart"])
def test_a_t5_may_hold_the_logarithm_of_zero_where_pytorchs_does(family, tmp_path):
    suite = suite_of(FIXTURES / family, tmp_path)
    case = next(c for c in suite.cases if c.id == "t5_encoder/mnn/fp32")
    of_log, of_all = (
        rule_of(suite, case, probe="log", module=module)
        for module in ("encoder.block.0.layer.0.SelfAttention", "encoder.block.0")
    )

    assert (of_log.allow_nonfinite, of_all.allow_nonfinite) == (True, False)


@pytest.mark.parametrize(
    ("family", "case", "module", "is_wider"),
    [
        ("sd3", "transformer/mnn/fp32", GELU, True),
        ("flux", "transformer/mnn/fp32", GELU, True),
        ("flux", "transformer/onnxruntime/fp32", GELU, False),
        ("flux", "vae_decoder/mnn/fp32", "decoder", True),
        ("flux", "vae_decoder/mnn/fp32", "decoder.layers.0", True),
        ("flux", "vae_decoder/onnxruntime/fp32", "decoder", False),
        ("sd3", "vae_decoder/mnn/fp32", "decoder", False),
    ],
)
def test_an_operator_that_a_runtime_rounds_more_has_a_wider_bound(
    tmp_path, family, case, module, is_wider
):
    suite = suite_of(FIXTURES / family, tmp_path)
    (found,) = (one for one in suite.cases if one.id == case)

    rule = rule_of(suite, found, module=module)
    assert (rule.tolerance.floors != 16.0) is is_wider


@pytest.mark.parametrize(("kind", "floors"), [("gpt2", 128.0), ("llama", 16.0)])
def test_a_decoder_with_a_gelu_of_the_tanh_form_has_a_wider_bound(
    kind, floors, tmp_path
):
    source = write_encoder(tmp_path / "checkpoint", kind)
    suite = suite_of(source.path, tmp_path / "suite")
    (case,) = (one for one in suite.cases if one.id == "default/mnn/fp32")

    assert rule_of(suite, case).tolerance.floors == floors


def test_pixart_goes_through_the_exporter_that_can(tmp_path):
    suite = suite_of(FIXTURES / "pixart", tmp_path)
    exports = {c.component.name: c.export for c in suite.cases}

    assert exports["t5_encoder"].exporter == "dynamo"
    assert exports["transformer"].exporter == "torchscript"
    assert exports["transformer"].dynamic == ()


@pytest.mark.parametrize(
    ("channels", "kinds"),
    [(4, {"text2img", "img2img", "inpaint"}), (9, {"inpaint"}), (5, set())],
)
def test_a_unet_gets_the_pipelines_that_feed_it(channels, kinds, tmp_path):
    root = tmp_path / "model"
    without = shutil.ignore_patterns("controlnet", "*.safetensors", "*.toml")
    shutil.copytree(DIGITS, root, ignore=without)
    config = json.loads((root / "unet" / "config.json").read_text())
    changed = json.dumps({**config, "in_channels": channels})
    (root / "unet" / "config.json").write_text(changed)
    found = suite_of(root, tmp_path).pipeline_cases

    assert {chain.pipeline.kind for chain in found} == kinds


@pytest.mark.parametrize(("kind", "most"), [("bert", 64), ("roberta", 62)])
@torch.no_grad()
def test_texts_are_no_longer_than_the_model_has_positions_for(kind, most, tmp_path):
    write_encoder(tmp_path / kind, kind, max_position_embeddings=64, pad_token_id=1)
    (case, *_) = suite_of(tmp_path / kind, tmp_path).cases
    longest = max(case.samples, key=lambda sample: dict(sample.shapes)["tokens"])
    network = recipe_module(case.component.recipe).build(case.component)

    assert dict(longest.shapes)["tokens"] == most
    feeds = draw(case.component, longest).values()
    network(*(torch.from_numpy(array.copy()) for array in feeds))
    with pytest.raises((IndexError, RuntimeError)):  # one more is one too many
        network(*(torch.full((1, most + 1), 2) for _ in feeds))


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param("notes.txt", 0, id="no-weights"),
        # A seed would hide pickles, which loading refuses.
        pytest.param("pytorch_model.bin", None, id="pickled"),
        pytest.param("weights.pkl", None, id="pickled-under-any-name"),
    ],
)
def test_weights_are_drawn_where_there_are_none(name, seed, tmp_path):
    shutil.copytree(FIXTURES / "text_tasks" / "bert", tmp_path / "bert")
    (tmp_path / "bert" / name).write_bytes(b"")

    assert suite_of(tmp_path / "bert", tmp_path).source.seed == seed


def test_a_model_and_a_tokenizer_that_were_saved_are_a_checkpoint(tmp_path):
    source = write_encoder(tmp_path / "drawn", "bert")
    config = AutoConfig.from_pretrained(source.path)
    model = AutoModelForQuestionAnswering.from_config(config)
    model.save_pretrained(tmp_path / "saved")
    tokenizer = tokenizer_of([text for pair in QUESTIONS for text in pair])
    tokenizer.save_pretrained(tmp_path / "saved")
    suite = suite_of(tmp_path / "saved", tmp_path / "suite")

    assert [part.name for part in suite.components] == ["question-answering"]
    assert suite.source.seed is None, "its weights are the model's own"
    assert (suite.export.exporter, suite.export.opset) == ("dynamo", 18)
    assert suite.export.dynamic == ("batch", "tokens")
    case = suite.cases[0]
    ids = draw(case.component, case.samples[0])["input_ids"]
    assert (ids[:, 0] == tokenizer.cls_token_id).all()


def test_a_text_encoder_alone_is_enough(tmp_path):
    (tmp_path / "text_encoder").symlink_to(DIGITS / "text_encoder")
    (tmp_path / "model_index.json").write_text("{}")

    assert [c.name for c in suite_of(tmp_path, tmp_path).components] == ["text_encoder"]
    assert "height =" not in (tmp_path / "parity.toml").read_text()


def test_the_test_file_is_python_and_ten_lines(written):
    text = written[-1].read_text()

    ast.parse(text)
    assert len([line for line in text.splitlines() if line]) <= 10


def test_an_editor_finds_the_schema_of_what_it_writes(written):
    text = written[0].read_text(encoding="utf-8")

    directive, _, where = text.partition("\n")[0].partition(" ")
    assert directive == "#:schema"
    # As a language server joins it: relative to the suite, wherever that is moved.
    schema = json.loads((written[0].parent / where).read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(tomllib.loads(text))
    spoilt = tomllib.loads(text.replace("[limits]", "[limit]"))
    with pytest.raises(jsonschema.ValidationError, match="'limit'"):
        jsonschema.Draft7Validator(schema).validate(spoilt)


def test_lines_fit_a_screen(written):
    for path in written:
        if path.suffix != ".json":  # nobody edits the schema
            assert max(map(len, path.read_text().splitlines())) <= 88


def test_files_that_are_there_are_named_and_kept(checkpoint, tmp_path):
    (tmp_path / "tolerances.toml").write_text("mine")

    with pytest.raises(SuiteError, match=r"has tolerances.toml already; use --force"):
        write_suite(checkpoint, tmp_path)

    assert (tmp_path / "tolerances.toml").read_text() == "mine"
    assert not (tmp_path / "parity.toml").exists()


def test_force_writes_over_them(checkpoint, tmp_path):
    (tmp_path / "parity.toml").write_text("mine")

    assert suite_of(checkpoint, tmp_path, force=True).cases


def test_nothing_is_left_when_writing_fails(checkpoint, tmp_path, monkeypatch):
    write_text = Path.write_text

    def full(self, text, **options):
        if self.name == "test_parity.py":
            raise OSError(28, "No space left on device")
        return write_text(self, text, **options)

    monkeypatch.setattr(Path, "write_text", full)
    folder = tmp_path / "parity"

    with pytest.raises(ParityError, match=r"cannot be written \(No space left"):
        write_suite(checkpoint, folder)

    assert list(folder.iterdir()) == []


def test_a_folder_in_the_way_is_refused_before_writing(checkpoint, tmp_path):
    (tmp_path / "test_parity.py").mkdir()

    with pytest.raises(SuiteError, match=r"test_parity\.py is a folder"):
        write_suite(checkpoint, tmp_path, force=True)

    assert not (tmp_path / "parity.toml").exists()


@pytest.mark.parametrize("present", [False, True])
def test_what_is_no_checkpoint_is_refused(tmp_path, present):
    if present:
        (tmp_path / "model").mkdir()

    with pytest.raises(SuiteError, match=r"no such folder|no model_index\.json"):
        write_suite(tmp_path / "model", tmp_path)

    assert not (tmp_path / "parity.toml").exists()


def test_a_path_that_toml_must_quote_survives(tmp_path):
    odd = tmp_path / 'a "quoted" ünït \\'
    odd.mkdir()
    (odd / "unet").symlink_to(DIGITS / "unet")
    (odd / "text_encoder").symlink_to(DIGITS / "text_encoder")
    (odd / "model_index.json").write_text(json.dumps({}))

    assert suite_of(odd, tmp_path).source.path == odd


def noticed(checkpoint, folder):
    """Write a suite and return what is said on the way."""
    said: list[str] = []
    write_suite(checkpoint, folder, on_notice=said.append)
    return said


def damaged(path):
    path.write_text("{")


def half_fetched(path):
    (path.parent / "diffusion_pytorch_model.safetensors").unlink()


def renamed(path):
    main = path.parent / "diffusion_pytorch_model.safetensors"
    main.rename(main.with_suffix(".fp16.safetensors"))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (damaged, "cannot be read as JSON"),
        (half_fetched, r"in some of its folders, and none in vae: f"),
        (renamed, r"vae has no .*, but .*fp16.safetensors"),
    ],
)
def test_a_damaged_checkpoint_gets_no_suite(spoil, words, tmp_path):
    root = copy_digits(tmp_path / "model")
    spoil(root / "vae" / "config.json")

    with pytest.raises(SuiteError, match=words):
        write_suite(root, tmp_path / "suite")
    assert not (tmp_path / "suite").exists()


def test_a_seed_is_said_aloud_and_no_seed_is_not(checkpoint, tmp_path):
    (said,) = noticed(FIXTURES / "sd15", tmp_path / "drawn")

    assert said == f"{FIXTURES / 'sd15'} has no weights: they will be drawn from seed 0"
    assert noticed(checkpoint, tmp_path / "stored") == []


def test_a_network_that_no_recipe_knows_is_left_out_and_named(tmp_path):
    root = copy_digits(tmp_path / "model")
    config = json.loads((root / "vae" / "config.json").read_text())
    changed = json.dumps({**config, "_class_name": "AutoencoderOfTomorrow"})
    (root / "vae" / "config.json").write_text(changed)

    said = noticed(root, tmp_path / "suite")

    names = {c.name for c in load_suite(tmp_path / "suite").components}
    assert "unet" in names
    assert not names & {"vae_encoder", "vae_decoder"}
    assert [one.partition(":")[0] for one in said] == [
        "left out vae_encoder",
        "left out vae_decoder",
    ]
    text = (tmp_path / "suite" / "parity.toml").read_text()
    assert '# "vae_decoder" is left out: vae: no recipe knows the class' in text
    assert max(map(len, text.splitlines())) <= 88


def test_without_any_network_that_a_recipe_knows_its_sentence_is_said(tmp_path):
    root = tmp_path / "model"
    (root / "vae").mkdir(parents=True)
    (root / "model_index.json").write_text("{}")
    (root / "vae" / "config.json").write_text('{"_class_name": "Other"}')

    with pytest.raises(SuiteError, match="no recipe knows the class 'Other'"):
        write_suite(root, tmp_path / "suite")


@pytest.mark.parametrize("name", ["nosuchfolder", "org/nosuchmodel"])
def test_a_checkpoint_that_is_not_there_is_not_helped_by_force(
    name, checkpoint, tmp_path, monkeypatch
):
    write_suite(checkpoint, tmp_path)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SuiteError, match=f"no checkpoint at {name}: no such") as error:
        write_suite(Path(name), tmp_path)

    assert "--force" not in str(error.value)


def test_a_name_on_the_hub_is_told_where_it_goes(tmp_path):
    with pytest.raises(SuiteError, match=r'write `hub = "org/name-1\.5"` under'):
        write_suite(Path("org/name-1.5"), tmp_path)


def test_the_projects_of_tests_run_the_file_that_is_written():
    assert project.TEST_FILE == TEST_FILE
