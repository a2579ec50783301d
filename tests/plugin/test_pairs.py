"""Pictures of many pairs of prompt and seed: the verdict, what ends it, what fails."""

import json
import re
import shutil

import pytest

from harness.core.end_to_end import IMAGE, PAIRS
from harness.engine.finished_run import load_report
from tests.plugin.drawing import pipeline, write_drawing
from tests.plugin.project import MAKING, PARITY, parity_without

pytestmark = pytest.mark.slow

SEEDS = 20
READER = """\
calls = []


def breaks(picture):
    calls.append(picture)
    if len(calls) > 5:
        raise ValueError("no digit")
    return 1


def total(picture):
    return int(picture.sum())
"""
MADE_UP = """\
def largest():
    return lambda expected, actual: abs(expected - actual).max()


def make():
    raise FileNotFoundError("the weights of 'made_up' are not in /weights.")
"""
ENTRY = """\
[parity.metrics]
made_up = made_up:make
largest = made_up:largest
"""


def pairs(name, *lines):
    return pipeline(name, f"seeds = {SEEDS}", "attribution = false", *lines)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A project whose pipelines draw pairs, with an app that is right and others."""
    folder = tmp_path_factory.mktemp("pairs")
    project = write_drawing(folder)
    project.only_onnxruntime()
    scaled = "app = { scaling_factor = 0.3 }"
    text = "".join(
        (
            pipeline("raises", "seeds = 40", 'reader = "reader.py:breaks"'),
            pairs("unweighted", "margin = { made_up = 0.1 }"),
            pairs("right"),
            pairs("scaled", scaled),
            pairs("stated", "margin = { psnr = 60 }", scaled),
            pairs("half", 'margin = "float16"', scaled),
            pairs("added", "margin = { largest = 2 }", scaled),
            pipeline(
                *("misread", "seeds = 40", "attribution = false", scaled),
                *("margin = { psnr = 1 }", 'reader = "reader.py:total"'),
            ),
            pairs("begun", 'added_prompt = "on paper"', scaled).replace(
                "text2img", "img2img"
            ),
        )
    )
    project.add("parity.toml", text)
    (folder / "reader.py").write_text(READER)
    # A package of somebody else's, with a metric, and one whose weights are not there.
    (folder / "made_up.py").write_text(MADE_UP)
    about = folder / "made_up-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: made_up\nVersion: 1\n"
    )
    (about / "entry_points.txt").write_text(ENTRY)
    with pytest.MonkeyPatch.context() as patch:
        # Processes find the package as an installed one, and so do their workers.
        patch.setenv("PYTHONPATH", str(folder))
        ended = project.run(*PARITY, "run", "--e2e")
        patch.syspath_prepend(folder)  # so do commands in this process
        yield project, ended


def of(drawn, name):
    """Return a pipeline's record, and its verdict on the pairs."""
    case = f"{name}/onnxruntime/fp32"
    verdicts = {one["id"]: one for one in drawn[0].report["verdicts"]}
    return drawn[0].case(case), verdicts[f"{case}/{PAIRS}"]


def test_a_right_build_ships_before_every_pair_is_drawn(drawn):
    record, verdict = of(drawn, "right")
    assert verdict["outcome"] == "within", drawn[1].text
    assert verdict["reason"].startswith("SHIP after ")
    assert 17 <= len(record["pipeline"][PAIRS]["seeds"]) < SEEDS


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("scaled", "the model's own bfloat16 by psnr"),
        ("stated", "their limit by psnr"),
        ("half", "the model's own float16 by psnr"),
        ("added", "their limit by largest"),
        ("misread", "are read as another thing, at most 10% may be"),
    ],
)
def test_another_scaling_factor_does_not_ship_after_few_pictures(drawn, name, said):
    record, verdict = of(drawn, name)
    found = record["pipeline"][PAIRS]
    assert verdict["outcome"] == "worse"
    assert "DO NOT SHIP" in verdict["reason"]
    assert said in verdict["reason"]
    assert len(found["seeds"]) <= 10
    assert f"seed {found['seeds'][found['worst'][0]]}" in verdict["reason"]


def test_the_worst_pairs_are_kept_as_pictures_and_shown(drawn):
    record, _ = of(drawn, "scaled")
    (run,) = drawn[0].path.glob("reports/runs/*")
    page = (run / "report.html").read_text()
    found = record["pipeline"][PAIRS]
    assert found["pictures"]
    for path, index in zip(found["pictures"], found["worst"], strict=True):
        assert (run / path).is_file()
        assert f"seed {found['seeds'][index]} · PSNR " in page


def test_the_worst_pair_is_drawn_again_by_its_prompt_and_seed_alone(drawn, tmp_path):
    """Also where the pipeline adds to each prompt, and draws the first picture."""
    record, _ = of(drawn, "begun")
    found = record["pipeline"][PAIRS]
    worst = found["worst"][0]
    project = drawn[0].branch(tmp_path / "again")
    head, begun, rest = (project.path / "parity.toml").read_text().partition("begun")
    rest = rest.partition("[pipeline")[0].replace(f"seeds = {SEEDS}\n", "")
    prompt = json.dumps(found["prompts"][worst])
    rest = re.sub("prompts = .*", f"prompts = [{prompt}]", rest)
    seed = f"seed = {found['seeds'][worst]}\n"
    (project.path / "parity.toml").write_text(f"{head}{begun}{rest}{seed}")
    shutil.rmtree(project.path / "reports")

    project.run(*PARITY, "run", "begun/*", "--e2e")

    report = load_report(project.path / "reports" / "runs", "last")
    (case,) = report.cases.values()
    (picture,) = (row.comparison for row in case.record.rows if row.what == IMAGE)
    assert picture.rms == pytest.approx(found["losses"]["psnr"][worst], rel=1e-6)


def test_a_card_has_the_verdict_on_pairs(drawn):
    project, _ = drawn
    assert project.parity("card").code == 0
    text = (project.path / "card" / "card.md").read_text()
    assert re.search(r"`right/.*` \| SHIP after \d+ pictures · picture .* dB", text)


@pytest.mark.parametrize("command", ["show", "report", "gate"])
def test_a_base_install_reads_a_run_with_pairs(drawn, command):
    project, _ = drawn
    why = "--why=to compare with", "--who=A. Reviewer"
    assert project.parity("baseline", "accept", *why).code == 0
    ended = parity_without(project, MAKING, command)
    assert ended.code == project.parity(command).code, ended.text
    assert "which is not installed" not in ended.text


def test_a_case_shows_every_claim_with_its_interval_and_what_it_would_have_seen(drawn):
    shown = drawn[0].parity("show", "last", "right/onnxruntime/fp32")

    assert shown.has("pairs, claim by claim"), shown.text
    for metric in ("psnr", "ssim"):
        assert shown.has(
            f"worse than the model's own bfloat16 by {metric}, at most 50%"
        )
        assert shown.has(f"over 4 × the model's own bfloat16 by {metric}, at most 20%")
    assert shown.has("of all pictures; with")
    assert shown.has("it would be seen nine times in ten")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "cannot read the picture of seed"),
        ("unweighted", "cannot be used: the weights of 'made_up'"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence_and_2(drawn, tmp_path, name, said):
    record, verdict = of(drawn, name)
    assert verdict["outcome"] == "run"
    assert said in record["failure"]["message"]
    assert "\n" not in record["failure"]["message"]
    shown = drawn[0].parity("show", "last", f"{name}/onnxruntime/fp32")
    assert shown.has(said), shown.text
    alone = drawn[0].branch(tmp_path / "alone")
    alone.run(*PARITY, "run", f"{name}/*", "--e2e").check(2, said)
