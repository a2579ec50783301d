"""The verdict on a record under a policy, and where the case first diverges."""

import math
from dataclasses import replace
from datetime import date

import pytest
from msgspec import structs

from harness.core.case import Sample
from harness.core.outcome import Outcome
from harness.core.record import ISOLATED, LAYERS, OUTPUTS, coverage_share
from harness.core.record_form import TriedInput
from harness.judge.case import judge_case, skipped
from harness.judge.known_gaps import Gap
from harness.judge.value import floors_of, max_floors
from harness.report.divergence import local_error
from tests.unit.reports import CASE, COVERAGE, chain, output, policy_of, record, row

TODAY = date(2026, 1, 1)
TAKEN = {"by": "names", "left_out": [], "extra": [], "unfed": []}
TOLERANCES = """
[mnn.fp32]
outputs = { tier = "standard", rtol = 1e-4, atol = 1.0, floors = 16.0 }
layers = "standard"
why = "only floors matter here"
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return policy_of(tmp_path_factory.mktemp("policy"), TOLERANCES)


@pytest.fixture
def judged(policy):
    def judge(made, what=LAYERS, gaps=()):
        return judge_case(made, what, policy, gaps, min_coverage=0.9, today=TODAY)

    return judge


def test_the_first_divergence_is_the_earliest_whose_inputs_agree(judged):
    verdict = judged(record(*chain(1, 2, 40, 90, 3, 500)))
    assert verdict.outcome is Outcome.EXCEEDS
    assert verdict.first.row.probe == "v2"
    assert [j.row.probe for j in verdict.inputs] == ["v1"]
    assert verdict.inputs_floors == pytest.approx(2, rel=1e-3)
    assert verdict.worst.row.probe == "v5"


def test_the_worst_rows_of_many_inputs_have_their_inputs_in_each_others_samples(judged):
    one, two, three = chain(1, 2, 40)
    rows = (one, replace(two, sample="s-1"), replace(three, sample="s-2"))
    tried = tuple(
        TriedInput(sample=Sample(profile="realistic", index=at, shapes=()), why="suite")
        for at in range(3)
    )

    verdict = judged(record(*rows, tried=tried))

    assert verdict.first.row.probe == "v2"
    assert [j.row.probe for j in verdict.inputs] == ["v1"]


def other_shape(probe, **about):
    """Return a row whose value has another shape than the reference's."""
    made = row(probe, 0.0, **about)
    other = structs.replace(made.comparison, actual_shape=(2, 1))
    return replace(made, comparison=other)


def test_wrong_numbers_come_before_another_shape(judged):
    rows = (
        other_shape("time", position=0),
        other_shape("embedded", position=1, parents=("time",)),
        row("conv", 1, position=2),
        row("norm", 40, position=3, parents=("conv",)),
        row("after", 60, position=4, parents=("norm",)),
    )
    assert judged(record(*rows)).first.row.probe == "norm"


def test_another_shape_comes_first_where_the_wrong_numbers_follow_from_it(judged):
    rows = (
        row("conv", 1, position=0),
        other_shape("moved", position=1, parents=("conv",)),
        row("norm", 40, position=2, parents=("moved",)),
        row("after", 60, position=3, parents=("norm",)),
    )
    assert judged(record(*rows)).first.row.probe == "moved"


def module(name, floors, **about):
    """Return a row of a module whose inputs were not compared."""
    return replace(row(name, floors, module=name, **about), op="Linear", between=True)


@pytest.mark.parametrize(
    ("parents", "off", "lead"),
    [
        (("net.q", "net.k"), 1, "between q, k (agree) and net.o"),
        ((), 1, "between the component's inputs and net.o"),
        (("net.q", "net.k"), 900, "at net.q"),
        (("net.0.q", "net.1.k"), 1, "between net.0.q, net.1.k (agree) and net.o"),
        (("net.gone",), 1, "at or before net.o"),
    ],
)
def test_a_module_of_unseen_inputs_is_not_blamed_alone(judged, parents, off, lead):
    rows = (
        *(
            replace(row(name, off, module=name, position=at), op="Linear")
            for at, name in enumerate(parents)
            if name != "net.gone"
        ),
        module("net.o", 500, parents=parents, position=2),
    )
    own = replace(rows[-1], what=ISOLATED)

    sentence = judged(record(*rows, *([own] if off == 1 else []))).sentence

    assert f"first diverges {lead} (Linear)" in sentence


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_what_is_no_number_is_the_largest_error_of_all(judged, order):
    rows = (row("a", 2.0), row("b", math.nan))
    assert max_floors(judged(record(*(rows[at] for at in order))).rows) == math.inf


def test_what_may_be_no_number_is_no_error():
    made = row("masked", math.nan)
    assert floors_of(made, passed=True) == 0.0
    assert floors_of(made, passed=False) == math.inf


def test_a_divergence_is_found_after_one_that_went_away(judged):
    rows = (
        *chain(1, 40),
        row("w", 1, position=2),
        row("x", 30, parents=("w",), position=3),
    )
    assert judged(record(*rows)).first.row.probe == "v1"


def test_a_value_whose_inputs_are_wrong_already_is_no_first_divergence(judged):
    late = row("late", 40, parents=("bad",), position=0)
    bad = row("bad", 50, position=1)
    assert judged(record(late, bad)).first.row.probe == "bad"


def test_of_two_samples_the_larger_error_tells_where(judged):
    rows = (*chain(1, 40, sample="s-0"), *chain(1, 80, sample="s-1"))
    assert judged(record(*rows)).first.row.sample == "s-1"


def test_an_operator_that_is_right_in_the_file_is_not_blamed_for_it(judged):
    own = [replace(each, what=ISOLATED) for each in chain(40, 1)]
    verdict = judged(record(*chain(1, 40), *own))
    assert (verdict.first.row.probe, verdict.origins) == ("v1", ())
    assert local_error(verdict, verdict.first).startswith("it is right alone")


def test_a_record_without_rows_is_empty_and_not_parity(judged):
    verdict = judged(record(output(1)), LAYERS)
    assert verdict.outcome is Outcome.EMPTY
    assert verdict.reason == "no layers were compared"


def test_only_outputs_can_be_judged(judged):
    assert judged(record(output(1)), OUTPUTS).outcome is Outcome.WITHIN


@pytest.mark.parametrize(
    ("counts", "foreign", "share"),
    [
        pytest.param({"aligned": 5, "inside": 3}, None, 0.8, id="of-an-older-version"),
        pytest.param({"aligned": 5, "seen": 9, "reach": 10}, None, 0.9, id="own"),
        pytest.param({"aligned": 5, "seen": 6, "reach": 8}, True, 0.75, id="foreign"),
    ],
)
def test_the_verdict_and_the_foot_say_one_share(judged, counts, foreign, share):
    about = {"foreign": TAKEN} if foreign else {}
    made = record(*chain(1), coverage=COVERAGE | counts, **about)
    assert coverage_share(made) == share
    said = judged(made).reason
    assert (f"{share:.1%} of computing operators" in said) == (share < 0.9)


@pytest.mark.parametrize(
    ("reach", "outcome"), [(0, Outcome.WITHIN), (2, Outcome.EMPTY)]
)
def test_a_network_without_any_computing_operator_is_covered(judged, reach, outcome):
    counts = {"computing": 0, "aligned": 0, "seen": 0, "reach": reach}
    verdict = judged(record(output(1), coverage=COVERAGE | counts))
    assert verdict.outcome is outcome
    assert (verdict.usage == 0.0) == (outcome is Outcome.WITHIN)


def test_too_little_compared_is_its_own_outcome(judged):
    few = COVERAGE | {"aligned": 5, "missing": ["a", "b", "c", "d", "e"]}
    verdict = judged(record(*chain(1), coverage=few))
    assert verdict.outcome is Outcome.COVERAGE
    assert "50.0% of computing operators" in verdict.reason
    assert "; missing a, b, c and 2 more; `coverage = 0.5` under" in verdict.reason


def test_a_stage_that_failed_outweighs_rows(judged):
    failure = {"outcome": "crashed", "message": "it died"}
    verdict = judged(record(*chain(1), failure=failure))
    assert (verdict.outcome, verdict.reason) == (Outcome.CRASHED, "it died")


def test_a_known_gap_passes_and_keeps_what_was_found(judged):
    gap = Gap(case="unet/*", outcome=Outcome.EXCEEDS, why="known")
    verdict = judged(record(*chain(1, 40)), gaps=[gap])
    assert (verdict.outcome, verdict.found) == (Outcome.GAP, Outcome.EXCEEDS)


def test_only_a_runtime_that_may_be_missing_is_skipped(judged):
    failure = {"outcome": "unavailable", "message": "not installed"}
    verdict = judged(record(failure=failure))
    assert skipped(verdict, ())
    assert skipped(verdict, ("onnxruntime",))
    assert not skipped(verdict, ("mnn",))
    assert not skipped(judged(record()), ())


def test_a_failure_is_one_sentence_that_says_what_where_and_how_much(judged):
    assert judged(record(*chain(3, 411))).sentence == (
        f"{CASE}/layers: first diverges at net.v1 (conv2d), s-0: "
        "411 floors, allowed 16; inputs to it agree to 3 floors"
    )


def test_a_gap_of_one_sample_hides_no_other_failure_of_another_sample(judged):
    gap = Gap(case="unet/*", outcome=Outcome.NONFINITE, why="it overflows")
    lost, close = output(math.nan), output(2, sample="s-1")
    far = output(99, sample="s-1")
    assert judged(record(lost, close), OUTPUTS, [gap]).outcome is Outcome.GAP
    assert judged(record(lost, far), OUTPUTS, [gap]).outcome is Outcome.STALE_GAP
    # It is what the NaN of its own sample costs.
    rows = (lost, output(99))
    assert judged(record(*rows), OUTPUTS, [gap]).outcome is Outcome.GAP


def test_a_pattern_that_is_another_one_in_another_sample_is_not_said(judged):
    one, two, three = (row("a", 90, sample=f"s-{at}") for at in range(3))
    said = "everything is 1.4 times what it should be"
    alike = replace(two, looks="everything is 1.5 times what it should be")
    apart = replace(three, looks="values are cut off at 3")
    assert judged(record(replace(one, looks=said), alike)).looks == said
    assert judged(record(replace(one, looks=said), apart)).looks == ""


@pytest.mark.parametrize(
    "general",
    [
        "spread like noise, 1.0e-03 of the values: more than float32 rounds",
        "its weight is PyTorch's but for 1.0e-03 of it: weights of fewer bits",
        "each of 20 parts is scaled by its own factor, 0.9 to 1.1",
    ],
)
def test_a_pattern_of_the_layer_is_better_than_a_general_one(judged, general):
    layer = replace(row("a", 90), looks="values are cut off at 3")
    alone = replace(row("a", 90, what=ISOLATED), looks=general)
    assert judged(record(layer, alone)).looks == "values are cut off at 3"


@pytest.mark.parametrize(
    ("foreign", "words"),
    [
        ({**TAKEN, "by": "itself"}, "every value is the reference's, rounded to"),
        (TAKEN, "every value is PyTorch's, rounded to"),
    ],
)
def test_pytorch_is_named_only_where_a_case_has_it(judged, foreign, words):
    off = replace(row("a", 90), looks="every value is PyTorch's, rounded to float16")
    assert judged(record(off, foreign=foreign)).looks == f"{words} float16"
