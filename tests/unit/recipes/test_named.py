"""`harness.recipes.named`: every part that a checkpoint names must be there."""

import json
import shutil
from pathlib import Path

import pytest

from harness.core.case import Source
from harness.core.errors import SuiteError
from harness.plugins.start.init.write import write_suite
from harness.recipes.named import check_named
from harness.recipes.tokenizer import load_tokenizer
from harness.suite.suite import load_suite
from tests.places import DIGITS, FIXTURES
from tests.unit.encoders import write_encoder, write_tokenizer

SDXL = FIXTURES / "sdxl"
GONE = {
    "unet": "unet (no such folder)",
    "unet/config.json": "unet (no config.json)",
    "text_encoder": "text_encoder (no such folder)",
    "vae/config.json": "vae (no config.json)",
    "scheduler/scheduler_config.json": "scheduler (no scheduler_config.json)",
    "tokenizer": "tokenizer (no such folder)",
    "tokenizer/vocab.json": "tokenizer_config.json and merges.txt, and no vocabulary",
    "tokenizer/merges.txt": "tokenizer (vocab.json and no merges.txt)",
    "controlnet/config.json": "controlnet (no config.json)",
}


@pytest.fixture
def digits(tmp_path):
    """A copy of the checkpoint, and what takes a part of it away."""
    root = tmp_path / "model"
    shutil.copytree(DIGITS, root, ignore=shutil.ignore_patterns("*.toml", "*.png"))
    return root


def take_away(root, part):
    path = root / part
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def change_index(root, **entries):
    path = root / "model_index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize("part", GONE)
def test_init_refuses_a_checkpoint_that_lost_a_part_and_writes_nothing(digits, part):
    take_away(digits, part)
    with pytest.raises(SuiteError) as caught:
        write_suite(digits, digits / "suite")
    assert GONE[part] in str(caught.value)
    assert not (digits / "suite").exists()


@pytest.mark.parametrize("part", GONE)
def test_a_suite_whose_checkpoint_lost_a_part_is_refused(digits, part):
    parity, *_ = write_suite(digits, digits / "suite")
    take_away(digits, part)
    listed = parity.read_text(encoding="utf-8")
    start, end = listed.index("components = ["), listed.index("\n[source]")
    for text in (listed, listed[:start] + listed[end:]):
        parity.write_text(text, encoding="utf-8")
        with pytest.raises(SuiteError, match=part.partition("/")[0]):
            load_suite(parity)


def test_parts_that_a_suite_does_not_read_may_be_missing(digits):
    parity, *_ = write_suite(digits, digits / "suite")
    text = parity.read_text(encoding="utf-8")
    alone = text.partition("[pipeline.")[0].replace('  "text_encoder",\n', "")
    for name in ("unet", "controlnet", "controlled_unet"):
        alone = alone.replace(f'  "{name}",\n', "")
    alone = alone.replace("[component.text_encoder]\n", "[component.vae_decoder]\n")
    parity.write_text(alone, encoding="utf-8")
    take_away(digits, "unet")
    take_away(digits, "tokenizer")

    names = [component.name for component in load_suite(parity).components]
    assert names == ["vae_encoder", "vae_decoder"]


@pytest.mark.parametrize("entry", [[None, None], ["null", "null"], ["None", "None"]])
def test_a_part_that_is_named_as_absent_may_be_missing(digits, entry):
    take_away(digits, "tokenizer")
    change_index(digits, tokenizer=entry)
    check_named(Source(path=digits))


def test_a_part_that_nothing_tests_may_be_missing_and_is_told(digits):
    change_index(digits, safety_checker=["stable_diffusion", "SafetyChecker"])
    said: list[str] = []
    write_suite(digits, digits / "suite", on_notice=said.append)
    assert said == ["not tested: safety_checker; no recipe is for them"]


def test_the_second_text_encoder_is_missed(tmp_path):
    root = tmp_path / "model"
    shutil.copytree(SDXL, root)
    take_away(root, "text_encoder_2")
    with pytest.raises(SuiteError, match=r"text_encoder_2 \(no such folder\)"):
        check_named(Source(path=root))


def test_a_text_model_without_the_tokenizer_that_it_names_is_refused(tmp_path):
    source = write_encoder(tmp_path / "model", "bert")
    check_named(source)
    path = source.path / "config.json"
    config = json.loads(path.read_text()) | {"tokenizer_class": "BertTokenizer"}
    path.write_text(json.dumps(config))
    with pytest.raises(SuiteError, match="lacks its tokenizer"):
        check_named(source)
    write_tokenizer(source.path, ["some words"])

    check_named(source)


def test_a_tokenizer_without_a_vocabulary_is_none(tmp_path):
    # transformers makes one of five tokens of it, which reads every word as unknown.
    config = json.dumps({"tokenizer_class": "BertTokenizer"})
    (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(SuiteError, match=r"tokenizer_config\.json, and no vocabulary"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    "root", sorted(path.parent for path in FIXTURES.rglob("model_index.json"))
)
def test_what_the_fixtures_name_is_there(root):
    check_named(Source(path=Path(root)))
