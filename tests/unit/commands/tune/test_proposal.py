"""Proposals are the tightest tolerances that hold with headroom, from records alone."""

from dataclasses import replace

import pytest
from msgspec import structs

from harness.core.end_to_end import IMAGE
from harness.core.outcome import Outcome
from harness.judge.known_gaps import Gap
from harness.judge.policy import Rule
from harness.judge.tolerance import TIERS, Tolerance
from harness.measure.metrics import METRIC
from harness.plugins.tune.headroom import Headroom
from harness.plugins.tune.proposal import propose, tightest
from harness.plugins.tune.record import draws_of
from tests.unit.commands.tune.test_headroom import picture
from tests.unit.reports import output, row
from tests.unit.tunings import case_of, judge_of, tried, tuning_of

STANDARD = '[mnn.fp32]\noutputs = "standard"\nlayers = "standard"\n'
HEADROOM = Headroom(factor=2.0, decibels=3.0)


def rule(tier, group="layers", **bounds):
    return Rule(tolerance=structs.replace(TIERS[tier][group], **bounds), tier=tier)


def layers(floors):
    return row("v0", floors).comparison


@pytest.mark.parametrize(
    ("floors", "now", "tier", "bound"),
    [
        pytest.param(1.0, rule("standard"), "strict", 2.0, id="a-tier-and-a-bound"),
        pytest.param(3.0, rule("standard"), "strict", 8.0, id="a-tier-and-its-bound"),
        pytest.param(3.9, rule("standard"), "strict", 8.0, id="just-the-tighter-tier"),
        pytest.param(5.0, rule("standard"), "standard", 16.0, id="the-tier-stays"),
        pytest.param(
            21.2, rule("standard", floors=128.0), "standard", 43.0, id="far-too-loose"
        ),
        pytest.param(
            5.5,
            rule("standard", floors=12.0),
            "standard",
            12.0,
            id="a-digit-no-gain",
        ),
        pytest.param(
            0.0, rule("standard"), "strict", 8.0, id="no-error-is-no-bound-of-nothing"
        ),
        pytest.param(
            4.1, Rule(tolerance=Tolerance(floors=100.0), tier=""), "", 8.2, id="no-tier"
        ),
    ],
)
def test_the_tightest_tier_and_bound_that_hold_with_headroom_are_proposed(
    floors, now, tier, bound
):
    found, tolerance, beyond = tightest(layers(floors), "layers", now, HEADROOM)

    assert (found, tolerance.floors, beyond) == (tier, bound, {})


@pytest.mark.parametrize(
    ("floors", "moved", "beyond"),
    [
        pytest.param(15.0, 30.0, {"floors": (16.0, 30.0)}, id="too-little-is-left"),
        pytest.param(10.0, 16.0, {}, id="half-of-the-headroom-is-left"),
    ],
)
def test_a_bound_moves_outwards_only_if_that_is_allowed(floors, moved, beyond):
    extent, now = layers(floors), rule("standard")

    _, kept, said = tightest(extent, "layers", now, HEADROOM)
    _, allowed, _ = tightest(extent, "layers", now, HEADROOM, allow_looser=True)

    assert (kept, said) == (now.tolerance, beyond)
    assert allowed.floors == moved


def test_a_few_draws_tighten_nothing(tmp_path):
    judge = judge_of(tmp_path, STANDARD)
    case = case_of(output(0.001), row("v0", 1.0), draws=19)

    parts = propose(tuning_of(case), judge, HEADROOM)

    assert [part.draws for part in parts] == [19, 19]
    assert not any(part.changes for part in parts)


def test_a_tighter_rtol_than_the_tiers_own_stays():
    now = rule("relaxed", "outputs", rtol=1e-4, atol=1e-2)
    extent = output(1.0).comparison

    _, tolerance, beyond = tightest(extent, "outputs", now, HEADROOM)

    assert tolerance.rtol is not None
    assert tolerance.rtol <= 1e-4
    assert not tolerance.looser_bounds(now.tolerance)
    assert beyond == {}


def test_a_bound_that_the_tier_does_not_state_stays():
    now = rule("standard", "layers", sqnr_db=60.0)

    _, tolerance, _ = tightest(layers(1.0), "layers", now, HEADROOM)

    assert not tolerance.looser_bounds(now.tolerance)


def test_a_cosine_distance_is_tightened_by_the_square_of_the_headroom():
    now = Rule(tolerance=Tolerance(cosine_distance=1.0), tier="")
    extent = layers(1.0)
    needs = extent.cosine_distance * HEADROOM.factor**2

    _, tolerance, beyond = tightest(extent, "layers", now, HEADROOM)

    assert tolerance.cosine_distance is not None
    assert needs <= tolerance.cosine_distance <= 1.1 * needs
    assert beyond == {}


def test_each_group_of_each_case_has_its_own_proposal(tmp_path):
    judge = judge_of(
        tmp_path,
        STANDARD + '[unet.mnn.fp32.probes."v1"]\nlayers = "strict"\n',
    )
    case = case_of(row("v0", 1.0), row("v1", 2.0), output(1.0))

    parts = propose(tuning_of(case), judge, HEADROOM)

    assert [(p.group, p.pattern, p.tier) for p in parts] == [
        ("outputs", "", "standard"),
        ("layers", "", "strict"),
        ("layers", "v1", "strict"),
    ]
    assert parts[0].beyond["atol"][0] == 1e-4
    assert [p.draws for p in parts] == [200, 20, 20]


def test_the_same_records_propose_the_same_and_the_outcome_proposes_nothing_more(
    tmp_path,
):
    case = case_of(row("v0", 1.0))
    judge = judge_of(tmp_path, STANDARD)
    (first,) = propose(tuning_of(case), judge, HEADROOM)
    tight = judge_of(
        tmp_path,
        STANDARD + '[unet.mnn.fp32]\nlayers = { tier = "strict", floors = 2.0 }\n',
    )
    (second,) = propose(tuning_of(case), tight, HEADROOM)

    assert first.changes
    assert not second.changes


def test_a_few_modules_that_need_more_do_not_loosen_the_others(tmp_path):
    case = case_of(row("v0", 2.5), row("v1", 90.0), row("v2", 1.0))
    judge = judge_of(tmp_path, STANDARD)

    kept = propose(tuning_of(case), judge, HEADROOM)
    moved = propose(tuning_of(case), judge, HEADROOM, allow_looser=True)

    assert [(p.pattern, p.tolerance.floors) for p in kept] == [("", 16.0)]
    assert [(p.pattern, p.tolerance.floors) for p in moved] == [
        ("", 8.0),
        ("net.v1", 180.0),
    ]


@pytest.mark.parametrize(
    ("stated", "gaps", "remark"),
    [
        pytest.param(
            '"standard"',
            [Gap(case="unet/mnn/*", outcome=Outcome.EXCEEDS, why="fused")],
            "a known gap",
            id="gap",
        ),
        pytest.param(
            "{ rtol = 0.0, atol = 1e-3, share = 0.99, cap = 1.0 }\nwhy = 'x'",
            [],
            "a share is stated, which is not tuned",
            id="share",
        ),
    ],
)
def test_what_cannot_be_tuned_is_left_alone(tmp_path, stated, gaps, remark):
    text = STANDARD.replace('layers = "standard"', f"layers = {stated}")
    judge = judge_of(tmp_path, text, gaps=gaps)
    tuning = tuning_of(case_of(row("v0", 500.0)))

    (part,) = propose(tuning, judge, HEADROOM, allow_looser=True)

    assert not part.changes
    assert part.remark == remark


def test_a_bound_of_the_models_own_error_is_left_alone(tmp_path):
    within = '{ tier = "standard", within = "self-bf16" }'
    text = STANDARD.replace('outputs = "standard"', f"outputs = {within}")
    judge = judge_of(tmp_path, text)
    (part,) = propose(tuning_of(case_of(output(0.1))), judge, HEADROOM)

    assert not part.changes
    assert part.remark == "the model's own error is the bound, which is not tuned"


@pytest.mark.parametrize(
    ("levels", "draws", "tier", "bounds"),
    [
        pytest.param(3.0, 20, "quantized", {"psnr_db": 35.5}, id="tighter-in-its-tier"),
        pytest.param(3.0, 19, "quantized", {}, id="too-few-pictures"),
        pytest.param(1e-3, 20, "strict", {"psnr_db": None}, id="nobody-sees-less"),
        pytest.param(0.0, 20, "strict", {}, id="no-error-is-no-bound-of-nothing"),
    ],
)
def test_the_bounds_of_a_pipelines_pictures_are_tuned(
    tmp_path, levels, draws, tier, bounds
):
    judge = judge_of(tmp_path, '[mnn.fp32]\nimage = "quantized"\n')
    drawn = replace(
        output(0.0), what=IMAGE, probe="picture.0", comparison=picture(levels)
    )
    case = case_of(drawn, draws=draws, case="text2img/mnn/fp32")

    (part,) = propose(tuning_of(case), judge, HEADROOM)

    assert (part.group, part.tier) == ("image", tier)
    assert {name: part.bounds.get(name) for name in bounds} == bounds
    assert part.changes is (draws >= 20)


@pytest.mark.parametrize(
    ("bound", "value", "written"),
    [
        ("floors", 5.4321, 5.5),
        ("floors", 271.0, 280.0),
        ("atol", 1.01e-5, 1.1e-5),
        ("atol", 2e-5, 2e-5),
        ("sqnr_db", 52.49, 52.0),
        ("floors", 0.0, 0.0),
    ],
)
def test_bounds_are_rounded_outwards(bound, value, written):
    assert METRIC[bound].rounded(value) == pytest.approx(written, rel=1e-12)


@pytest.mark.parametrize(("own", "draws"), [("realistic", 200), ("large-mean", 0)])
def test_a_family_without_a_draw_counts(own, draws):
    """A tuning may have been stopped before the second family."""
    case = case_of(output(1.0), others=[tried("suite-1", 0.1, "suite", own)])

    assert draws_of(case, layers=False) == draws
