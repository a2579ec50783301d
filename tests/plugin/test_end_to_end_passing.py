"""A pipeline that agrees with PyTorch: the run's message, and its files."""

import json
import re
from functools import partial

import pytest
from PIL import Image

from tests.plugin.drawing import COMPONENT, MNN, ONNXRUNTIME, STEPS

ROLES = ["text_encoder", "unet", "vae_decoder"]


@pytest.fixture
def shown(drawn):
    """`parity show` in the folder of the finished run."""
    return partial(drawn[0].parity, "show", "last")


def probes_of(case, what):
    """Return the names of a record's comparisons, in order."""
    columns = case["probes"]
    pairs = zip(columns["probe"], columns["what"], strict=True)
    return [probe for probe, kind in pairs if kind == what]


def test_agreement_is_0_and_a_line_tells_latents_and_picture(drawn):
    _, ended = drawn
    ended.check(0, "8 passed")
    (line,) = [line for line in ended.text.splitlines() if f"✓ {MNN}" in line]
    assert re.search(r"latents use \d+% of tolerance · picture \d+\.\d dB$", line)


def test_the_summary_counts_it_among_the_cases(drawn):
    project, ended = drawn
    (report,) = project.reports
    told = " 4 of 4 cases agree with PyTorch (weights drawn at random)."
    assert ended.parity[0] == told
    assert any(f"  {MNN}" in line and " of 3  " in line for line in ended.parity)
    page = report.with_suffix(".html")
    shown = page if page.is_file() else report  # it may run without the page's plug-in
    assert f" report      {shown.relative_to(project.path)}" in ended.parity


def refuse(word):
    pytest.fail(f"{word} is not JSON")


def test_the_report_holds_every_step_every_picture_and_who_brought_the_error(drawn):
    json.loads(drawn[0].reports[0].read_text(), parse_constant=refuse)
    case = drawn[0].case(MNN)
    chain = case["pipeline"]

    curves = ("teacher-forced", "free-running")
    steps = [f"{curve}.{step:02}" for step in range(STEPS) for curve in curves]
    assert probes_of(case, "latents") == ["embeddings", *steps]
    assert probes_of(case, "image") == ["picture.0"]
    assert len(chain["timesteps"]) == len(chain["guidance"]) == STEPS
    assert chain["roles"] == dict.fromkeys(ROLES, "mnn/fp32")
    assert list(chain["attribution"]["parts"]) == ROLES


def test_the_picture_lies_in_the_run_folder(drawn):
    project, _ = drawn
    (report,) = project.reports
    for name in (ONNXRUNTIME, MNN):
        (path,) = project.case(name)["pipeline"]["pictures"]

        assert re.fullmatch(
            rf"pictures/{re.escape(name.replace('/', '+'))}/0-difference-x\d+\.png",
            path,
        )
        with Image.open(report.parent / path) as picture:
            picture.load()
            assert (picture.mode, picture.size) == ("RGB", (3 * 16 + 2 * 4, 16))
            assert picture.getcolors(maxcolors=100) is None  # more than that


def test_the_markdown_summary_has_a_table_of_pipelines(drawn):
    (report,) = drawn[0].reports
    text = (report.parent / "summary.md").read_text()
    for one in (MNN, COMPONENT):
        assert f"\n| {one.replace('/', ' | ')} | within | within | " in text
    assert "![" not in text


def test_junit_tells_how_far_the_picture_is_off(drawn):
    told = drawn[0].junit
    assert re.fullmatch(r"picture \d+\.\d dB", told[f"{MNN}/image"]["parity.picture"])
    assert "parity.picture" not in told[f"{MNN}/latents"]


def test_show_of_a_pipeline_prints_curves_attribution_and_where_pictures_lie(shown):
    ended = shown(MNN).check(
        0,
        f"{MNN}: 8 values in order of execution, all within",
        "text_encoder mnn/fp32, unet mnn/fp32, vae_decoder mnn/fp32",
        "guidance amplifies",
        "% interaction",
        f"pictures/{MNN.replace('/', '+')}",
    )

    for curve in ("teacher-forced", "free-running"):
        line = rf"^  {curve} +[▁▂▃▄▅▆▇█]{{3}}  up to "
        assert re.search(line, ended.text, re.MULTILINE)


def test_show_judges_the_run_by_another_tier_without_running(shown, drawn):
    before = drawn[0].reports[0].read_bytes()
    shown("--tier", "exact").check(1, f" ✗ {MNN}   first diverges at text_encoder")
    assert drawn[0].reports[0].read_bytes() == before
    assert len(drawn[0].reports) == 1


def test_show_judges_the_picture_by_a_bound_of_pictures(shown):
    shown("--set", "psnr_db=90").check(0)
    ended = shown("--set", "psnr_db=500").check(
        1, " 2 of 4 cases agree with PyTorch (weights drawn at random)."
    )
    assert re.search(r"PSNR \d+\.\d dB, at least 500.0 asked", ended.text)


def test_show_accepts_a_known_gap_and_calls_one_that_passes_stale(shown, drawn):
    gaps = drawn[0].path / "known_gaps.toml"
    gaps.write_text(
        f'[[gap]]\ncase = "{MNN}/*"\noutcome = "exceeds"\nwhy = "it is noise"\n'
    )
    try:
        shown(MNN, "--tier", "exact").check(0, "image: gap: ", "known gap: it is noise")
        stale = shown(MNN)
    finally:
        gaps.unlink()

    stale.check(
        1, "latents: stale-gap: ", "gap says exceeds, and it passes; remove the gap"
    )
