"""The pairs of a build beside those of the accepted build."""

from datetime import date

import pytest

from harness.plugins.release.baseline import accept, load_baseline, save_baseline
from harness.plugins.release.diff import RunChange
from harness.plugins.release.pairs import compare_pairs
from harness.plugins.release.thresholds import Change
from tests.plugins.release.changes import found
from tests.unit.reports import output, record
from tests.unit.snapshots import MACHINE, run, verdict

NAN = float("nan")


def pairs(*losses, read=(), limit=1.0, by="bfloat16", first=1):
    made = {
        "by": by,
        "margins": {"psnr": None},
        "prompts": ["three"] * len(losses),
        "seeds": [first + place for place in range(len(losses))],
        "losses": {"psnr": list(losses)},
        "limits": {"psnr": [limit] * len(losses)},
    }
    if read:
        made["margins"]["read"] = None
        made["losses"]["read"] = list(read)
    return made


PICTURE = "pictures/text2img+mnn+fp32/seed-0-difference-x1.png"


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        pytest.param([0.5] * 12, [0.5] * 12, Change.SAME, id="equal"),
        pytest.param([0.5] * 12, [0.54] * 12, Change.SAME, id="a-little-more"),
        pytest.param([0.5] * 12, [0.7] * 12, Change.WORSE, id="more"),
        pytest.param([0.7] * 12, [0.5] * 12, Change.BETTER, id="less"),
        pytest.param([1e-6] * 12, [1e-3] * 12, Change.SAME, id="far-below-its-limit"),
        pytest.param([0.5] * 2, [0.5] * 2, Change.SAME, id="few-and-none-is-worse"),
        pytest.param([0.5] * 2, [0.7] * 2, Change.OPEN, id="too-few-to-tell"),
        pytest.param(
            [0.5] * 20, [0.75, 0.75, 0.5] * 6 + [0.75] * 2, Change.OPEN, id="many"
        ),
        pytest.param([NAN] * 12, [NAN] * 12, Change.SAME, id="not-finite-in-both"),
        pytest.param([0.5] * 12, [NAN] * 12, Change.WORSE, id="not-finite-now"),
        pytest.param([NAN] * 12, [0.5] * 12, Change.BETTER, id="finite-now"),
    ],
)
def test_the_accepted_build_is_the_limit(before, after, change):
    assert compare_pairs(pairs(*before), pairs(*after))[0] is change


def test_a_baseline_keeps_the_pairs_with_which_a_later_build_is_compared(tmp_path):
    def built(loss):
        case = "text2img/mnn/fp32"
        told = {"pairs": pairs(*[loss] * 12) | {"worst": [0], "pictures": [PICTURE]}}
        drawn = record(output(1), case=case, pipeline=told)
        return run(drawn, verdicts=[verdict(f"{case}/pairs")])

    first = built(0.5)
    kept = accept(
        first, name="digits", who="A. Reviewer", why="", when=date(2026, 1, 1)
    )
    path = save_baseline(kept, tmp_path)
    accepted = load_baseline(path).report

    assert found(accepted, first, "pairs").change is Change.SAME
    worse = found(accepted, built(0.7), "pairs")
    assert worse.change is Change.WORSE
    assert "are worse than the accepted build by psnr" in worse.words


def test_an_open_comparison_does_not_ship_and_says_how_many_more_would_decide():
    change, words = compare_pairs(pairs(*[0.5] * 9), pairs(*[0.7, 0.7, 0.5] * 3))

    assert change is Change.OPEN
    assert words.startswith("INCONCLUSIVE after 9 pictures; 6 of 9 pictures are worse")
    assert "more would decide if their share stays" in words
    assert RunChange(case="a", what="pairs", change=change).blocks


@pytest.mark.parametrize(
    ("cpu", "change"), [("A processor", Change.WORSE), ("Another", Change.SAME)]
)
def test_another_processor_may_round_otherwise(cpu, change):
    def built(loss, **machine):
        case = "text2img/mnn/int8-weights"
        told = {"pairs": pairs(*[loss] * 17) | {"worst": [0], "pictures": [PICTURE]}}
        drawn = record(output(1), case=case, pipeline=told)
        checks = [verdict(f"{case}/pairs")]
        return run(drawn, verdicts=checks, environment=MACHINE | machine)

    assert found(built(0.5), built(0.7, cpu=cpu), "pairs").change is change


def test_readings_that_change_are_worse():
    right, wrong = pairs(*[0.5] * 9, read=[0.0] * 9), pairs(*[0.5] * 9, read=[1.0] * 9)

    change, words = compare_pairs(right, wrong)

    assert change is Change.WORSE
    assert "read as another thing" in words


@pytest.mark.parametrize("other", [{"by": "float16"}, {"first": 50}])
def test_other_pairs_or_margins_cannot_be_compared(other):
    change, words = compare_pairs(pairs(*[0.5] * 9), pairs(*[0.5] * 9, **other))

    assert change is Change.INCOMPARABLE
    assert words
