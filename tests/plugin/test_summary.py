"""The summary on the screen: the first divergence, its inputs, the next commands."""

import shlex

from harness.core.text import WIDTH
from tests.plugin.project import PYTEST

CASE = "vae_decoder/mnn/fp32"


def test_the_first_divergence_leads_with_its_operator_error_and_source(failing):
    _, ended = failing
    block = " ".join(" ".join(ended.parity[:12]).split())

    assert ended.parity[0].startswith(f" ✗ {CASE}   first diverges at ")
    assert "(conv2d)" in ended.parity[0]
    assert "allowed 0.000e+00" in block
    assert " floors (× PyTorch's own float32 rounding error) ·" in block
    assert " · all of it is local error" in block
    assert " output off by " in block
    assert "from " in block
    assert "on realistic-0 · worst at [" in block
    assert "vae_decoder.py:" in block or "vae.py:" in block


def test_a_case_that_differs_has_one_block_one_line_and_a_sentence_a_test(failing):
    _, ended = failing
    assert ended.text.count(f"✗ {CASE} ") == 2
    assert ended.text.count("✓ vae_decoder/onnxruntime/fp32 ") == 1
    assert ended.has(f"{CASE}/layers: first diverges at ")
    assert not ended.has("Traceback")
    assert not ended.has("During handling")


def test_it_counts_cases_not_checks(failing, passing):
    _, ended = failing
    assert any(
        line.startswith(" 2 of 3 cases agree with PyTorch (weights drawn at random).")
        for line in ended.parity
    )

    _, ended = passing
    assert (
        ended.parity[0] == " 3 of 3 cases agree with PyTorch (weights drawn at random)."
    )


def test_it_ends_with_the_next_command_and_the_report(failing):
    project, ended = failing
    (report,) = project.reports
    assert ended.parity[-3] == f" all layers  parity show {report.parent.name} {CASE}"
    assert ended.parity[-2] == f" why         parity explain {CASE}"
    page = report.with_suffix(".html").relative_to(project.path)
    assert ended.parity[-1] == f" report      {page}"


def test_a_whole_run_that_agrees_ends_with_the_command_that_keeps_it(passing):
    project, ended = passing
    (report,) = project.reports
    keep = f"parity baseline accept {report.parent.name}"
    assert f" next        {keep}   keeps it for `parity gate`" in ended.parity


def test_a_part_that_agrees_ends_with_the_command_that_runs_every_case(project):
    ended = project.pytest("-k", "fp32")
    assert " next        parity run   runs every case" in ended.parity


def test_it_says_what_ran_and_fits_a_screen_and_a_log_file(failing):
    _, ended = failing
    assert ended.has(" on CPU (2 threads, precision high)")
    assert ended.has("coverage at least ")
    assert [line for line in ended.parity if len(line) > WIDTH] == []
    assert "\x1b" not in ended.text


def test_no_color_means_none_even_on_a_terminal(quick):
    ended = quick.run(
        "script", "-qec", f"NO_COLOR=1 {shlex.join(PYTEST)} -k outputs", "/dev/null"
    ).check(0)
    assert "\x1b[3" not in ended.text
