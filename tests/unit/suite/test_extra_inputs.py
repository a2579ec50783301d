"""Inputs that a tuning keeps are written beside the suite, and run with it."""

import pytest

from harness.core.case import (
    VARIED,
    Case,
    Device,
    ExportSettings,
    Sample,
    Variant,
)
from harness.core.errors import SuiteError
from harness.core.outcome import Outcome
from harness.judge.known_gaps import Gap
from harness.plugins.tune.worst import kept, pruned_text, worst_inputs_text
from harness.suite.extra_inputs import (
    load_worst_inputs,
    unknown_cases,
    with_worst,
)
from tests.places import DIGITS
from tests.unit import nets
from tests.unit.reports import CASE, output
from tests.unit.tunings import case_of, tried, tuning_of

OTHER = "unet/onnxruntime/fp32"


def written(path, *cases):
    path.write_text(worst_inputs_text(path, tuning_of(*cases), ()))


def test_what_is_kept_reads_back_as_the_sample_it_was(tmp_path):
    knobs = (("x.scale", 0.1), ("x.step", 3))
    found = tried("varied-s0-7", 0.9, profile=VARIED, knobs=knobs)
    written(tmp_path / "w.toml", case_of(output(1.0), draws=3, others=[found]))

    (back,) = load_worst_inputs(tmp_path / "w.toml", [CASE])[CASE]

    assert back == found.sample


def test_an_input_that_was_kept_stays_while_it_is_the_worst(tmp_path):
    path = tmp_path / "w.toml"
    case = case_of(output(1.0), draws=3, others=[tried("kept-0", 0.9, "kept")])

    written(path, case)
    written(path, case)

    (back,) = load_worst_inputs(path, [CASE])[CASE]
    assert back.label == "kept-0"


def test_an_input_no_worse_than_the_suites_own_is_not_kept(tmp_path):
    written(tmp_path / "w.toml", case_of(output(1.0), draws=3, usage=0.2))

    assert (tmp_path / "w.toml").read_text() == ""


def test_a_case_that_is_known_to_fail_keeps_nothing():
    tuning = tuning_of(case_of(output(1.0), draws=3))
    gap = Gap(case="unet/mnn/*", outcome=Outcome.EXCEEDS, why="fused")

    assert kept(tuning, ())
    assert not kept(tuning, [gap])


def test_cases_that_were_not_tuned_again_keep_theirs(tmp_path):
    path = tmp_path / "w.toml"
    written(path, case_of(output(1.0), draws=3))
    written(path, case_of(output(1.0), draws=3, case=OTHER))

    found = load_worst_inputs(path, [CASE, OTHER])

    assert set(found) == {CASE, OTHER}
    assert path.read_text().count("[[input]]") == 1


def test_what_is_written_again_unchanged_is_the_same_text():
    digits = DIGITS / "worst_inputs.toml"

    assert pruned_text(digits, ()) == digits.read_text()


ENTRY = """\
[[input]]
cases = ["unet/mnn/fp32"]
label = "varied-1"
profile = "varied"
index = 0
seed = 3
shapes = { batch = 2 }
knobs = { "x.scale" = 0.5 }
"""


WRONG = {
    "label": ('"varied-1"', '"Varied 1"', "must be lower case"),
    "label-of-two": (ENTRY, ENTRY + ENTRY, "already has an input labelled 'varied-1'"),
}


@pytest.mark.parametrize(("old", "new", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_entry_is_one_sentence_with_its_line(tmp_path, old, new, message):
    path = tmp_path / "worst_inputs.toml"
    path.write_text(ENTRY.replace(old, new))

    with pytest.raises(SuiteError, match=rf"worst_inputs.toml:\d+: .*{message}"):
        load_worst_inputs(path, [CASE])


def test_a_label_that_is_a_sample_of_the_case_is_refused(tmp_path):
    path = tmp_path / "worst_inputs.toml"
    path.write_text(
        ENTRY.replace("varied-1", "realistic-0").replace(CASE, "blocks/mnn/fp32")
    )
    case = Case(
        component=nets.BLOCKS,
        export=ExportSettings(),
        variant=Variant(name="fp32", backend="mnn", kind="fp32"),
        device=Device(),
        samples=(Sample(profile="realistic", index=0, shapes=(("batch", 2),)),),
    )

    with pytest.raises(SuiteError, match="has a sample 'realistic-0' of its own"):
        with_worst([case], path)


def test_a_case_that_left_the_suite_is_passed_over_and_found(tmp_path):
    path = tmp_path / "worst_inputs.toml"
    path.write_text(ENTRY)

    assert load_worst_inputs(path, [OTHER]) == {}
    assert unknown_cases(path, [OTHER]) == {CASE: f"{path}:2"}
    assert unknown_cases(path, [CASE]) == {}


def test_a_tuning_goes_on_from_a_file_that_has_no_input_left(tmp_path):
    (tmp_path / "w.toml").touch()

    written(tmp_path / "w.toml", case_of(output(1.0), draws=3))

    assert "[[input]]" in (tmp_path / "w.toml").read_text()
