"""The page of a run: it opens in Chromium, is written again, and stops no run."""

import shutil

import pytest

from tests.plugin.project import CASES
from tests.unit import browser as chromiums

CASE = "vae_decoder/mnn/fp32"


@pytest.fixture(scope="module")
def page_of_failing(failing):
    project, _ = failing
    (path,) = project.reports
    return path.with_suffix(".html")


def test_the_page_of_a_run_opens_with_its_verdict_and_its_charts(page_of_failing):
    with (
        chromiums.chromium() as browser,
        chromiums.opened(browser, page_of_failing) as seen,
    ):
        page = seen.page
        page.locator("#component-0 > summary").click()
        page.locator("#component-0-depth").scroll_into_view_if_needed()
        page.wait_for_selector("#component-0-depth .scatterlayer .trace")

        assert page.locator("h1").inner_text() == "Do not ship"
        assert page.locator(".verdict p").inner_text() == (
            "2 of 3 cases agree with PyTorch (weights drawn at random)."
        )
        assert page.locator(".reasons a").all_inner_texts() == [CASE]
        assert f"parity explain {CASE}" in page.locator(".failure").inner_text()
        assert page.locator("#component-0-depth .scatterlayer .trace").count() >= 2
        assert page.locator(".matrix td.cell").count() == len(CASES)
        assert seen.complaints == []


def test_the_page_of_a_pipeline_shows_its_pictures_and_its_steps(drawn):
    project, _ = drawn
    (report,) = project.reports
    with (
        chromiums.chromium() as browser,
        chromiums.opened(browser, report.with_suffix(".html")) as seen,
    ):
        page = seen.page
        part = page.locator("#pipeline-0")
        if part.get_attribute("open") is None:
            part.locator("summary").first.click()
        page.locator("#pipeline-0-steps").scroll_into_view_if_needed()
        page.wait_for_selector("#pipeline-0-steps .scatterlayer .trace")
        of_case = part.locator(".of-case").first
        clipped = "part => getComputedStyle(part).clipPath"
        before = of_case.evaluate(clipped)
        part.locator("input[type=range]").first.press("ArrowRight")

        assert 'url("data:image/webp' in of_case.evaluate(
            "part => getComputedStyle(part).backgroundImage"
        )
        assert (before, of_case.evaluate(clipped)) == (
            "inset(0px 0px 0px 50%)",
            "inset(0px 0px 0px 51%)",
        )
        assert seen.complaints == []


def test_a_page_is_written_again_under_another_tier(failing, tmp_path):
    out = tmp_path / "again.html"
    ended = failing[0].parity("report", "--tier", "quantized", "--out", str(out))
    assert (ended.code, ended.text.strip()) == (0, str(out))
    assert "<h1>Agrees; not compared with a release</h1>" in out.read_text()


def test_a_page_goes_beside_its_report(failing, tmp_path):
    project, _ = failing
    shutil.copy(*project.reports, tmp_path)
    assert project.parity("report", str(tmp_path)).code == 0
    assert "<h1>Do not ship</h1>" in (tmp_path / "report.html").read_text()


def test_a_page_that_cannot_be_written_is_a_sentence(failing, tmp_path):
    failing[0].parity("report", "--out", str(tmp_path / "no" / "page.html")).check(
        2, "cannot be written (No such file or directory)"
    )


def test_a_run_whose_page_fails_keeps_its_verdict_and_says_so(project, monkeypatch):
    def broken(*_):
        msg = "no room for a page"
        raise RuntimeError(msg)

    monkeypatch.setattr("harness.plugins.page.page.write_page", broken)

    project.parity("run", CASE).check(
        0,
        "report.html could not be written (RuntimeError: no room for a page)",
        "report.json",
    )
