"""An explanation says which place or arithmetic is wrong, and what to do."""

from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.case import GIVEN, Target
from harness.plugins.explain.explain import Explanation, Trial
from harness.plugins.explain.screen import explained, explanation_lines
from harness.plugins.explain.setting_changes import changes_of
from harness.plugins.page.page import page_of, rendered
from harness.suite.suite import load_suite
from tests.places import DIGITS
from tests.unit.found import found_in
from tests.unit.reports import chain, output, record

CASE = next(c for c in load_suite(DIGITS).cases if c.id == "vae_decoder/mnn/fp32")
PHONE = Target(name="phone", command=("ssh",))


def explanation(folder, key, **device):
    """One in which the change of a key of the device fixes the case."""
    where = "@phone-low" if "precision" in device else "@phone"
    case = replace(CASE, where=where, device=replace(CASE.device, **device))
    one = record(*chain(0.5, 0.5, 412.0), output(0.5), case=CASE.id)
    run = found_in(folder, [one])
    verdict = run.checks[one.key][0]
    change = next(c for c in changes_of(case, []) if key in c.fields)
    before = Trial(change=None, floors=412.0, size_bytes=1, peak_bytes=1)
    fix = replace(
        before, change=change, floors=3.0, passed=True, agrees=True, fixes=True
    )
    return Explanation(
        case=case,
        record=one,
        verdict=verdict,
        first=verdict.first,
        stage="converter or runtime",
        conversion="",
        before=before,
        excerpt=None,
        trials=(fix,),
        skipped=(),
        took_s=1.0,
    )


@pytest.mark.parametrize(
    ("key", "device", "words"),
    [
        pytest.param(
            "precision",
            {"target": PHONE, "precision": "low"},
            [
                "right in float32 arithmetic, wrong in phone's float16",
                "ship vae_decoder/mnn/fp32@phone in its place",
            ],
            id="float16",
        ),
        pytest.param(
            "target", {"target": PHONE}, ["right here, wrong on phone"], id="place"
        ),
    ],
)
def test_the_screen_and_the_page_say_where_it_is_wrong(tmp_path, key, device, words):
    found = explanation(tmp_path, key, **device)

    said = " ".join(line.text.strip() for line in explanation_lines(found))
    one = explained(found, found.record.suite, "parity explain")
    run = found_in(
        tmp_path, [found.record], exit_code=1, explained={found.record.key: one}
    )
    page = rendered(page_of(run), Path()).replace("&#39;", "'")

    assert all(word in said and word in page for word in words), (said, page)
    assert "[backend" not in said


def test_a_case_without_pytorch_is_explained_in_decibels(tmp_path):
    found = explanation(tmp_path, "hints")
    given = replace(found.case, component=replace(found.case.component, recipe=GIVEN))
    found = replace(found, case=given)
    (fixed,) = (o.text for o in explanation_lines(found) if "fixed by" in o.text)
    assert "SQNR 92.2 → 135.0 dB" in fixed
