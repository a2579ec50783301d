"""Invalid tolerances are refused, and the tiers are in order."""

from itertools import pairwise

import pytest
from msgspec.structs import asdict, replace

from harness.core.errors import SpecError
from harness.judge.tolerance import GROUPS, TIER_NAMES, TIERS, Tolerance
from tests.places import ROOT

BOUNDS_PAGE = (ROOT / "docs" / "bounds.md").read_text("utf-8")

BASE = Tolerance(rtol=1e-4, atol=1e-4, floors=16.0, sqnr_db=50.0)
SHARED = Tolerance(rtol=1e-4, atol=1e-4, share=0.999, cap=1e-2)
PICTURE = Tolerance(psnr_db=50.0, ssim=0.99)


NONSENSE = {
    "no-bound": ({}, "must state"),
    "share-alone": ({"share": 1.0}, "must state"),
    "rtol-alone": ({"rtol": 1e-4}, "go together"),
    "atol-alone": ({"atol": 1e-4}, "go together"),
    "rtol-off-the-ladder": ({"rtol": 2e-4, "atol": 0.0}, "one of"),
    "rtol-nan": ({"rtol": float("nan"), "atol": 0.0}, "one of"),
    "atol-negative": ({"rtol": 0.0, "atol": -1.0}, "atol must be"),
    "atol-inf": ({"rtol": 0.0, "atol": float("inf")}, "atol must"),
    "atol-nan": ({"rtol": 0.0, "atol": float("nan")}, "atol must"),
    "floors-negative": ({"floors": -1.0}, "floors must be"),
    "floors-nan": ({"floors": float("nan")}, "floors must be"),
    "sqnr-nan": ({"sqnr_db": float("nan")}, "sqnr_db must be"),
    "sqnr-inf": ({"sqnr_db": float("inf")}, "sqnr_db must be"),
    "psnr-negative": ({"psnr_db": -1.0}, "psnr_db must be"),
    "psnr-nan": ({"psnr_db": float("nan")}, "psnr_db must be"),
    "psnr-inf": ({"psnr_db": float("inf")}, "psnr_db must be"),
    "cosine-distance-above-2": (
        {"cosine_distance": 2.01},
        "cosine_distance must be from 0 to 2, got 2.01",
    ),
    "cosine-distance-nan": ({"cosine_distance": float("nan")}, "from 0 to 2"),
    "ssim-above-1": ({"ssim": 1.01}, "ssim must be from -1 to 1"),
    "ssim-below-minus-1": ({"ssim": -1.01}, "ssim must be from"),
    "ssim-nan": ({"ssim": float("nan")}, "ssim must be from"),
    "share-without-a-recorded-quantile": (
        {"rtol": 0.0, "atol": 1.0, "share": 0.5, "cap": 2.0},
        "share must be one of",
    ),
    "share-without-cap": ({"rtol": 0.0, "atol": 1.0, "share": 0.99}, "and cap"),
    "share-of-what": ({"floors": 1.0, "share": 0.99, "cap": 1.0}, "needs rtol"),
    "cap-without-share": ({"rtol": 0.0, "atol": 1.0, "cap": 2.0}, "share is 1"),
    "cap-below-atol": (
        {"rtol": 0.0, "atol": 1.0, "share": 0.99, "cap": 0.5},
        "at least atol",
    ),
    "cap-nan": (
        {"rtol": 0.0, "atol": 1.0, "share": 0.99, "cap": float("nan")},
        "cap must be finite",
    ),
}


@pytest.mark.parametrize(("bounds", "message"), NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused_at_birth(bounds, message):
    with pytest.raises(SpecError, match=message):
        Tolerance(**bounds)


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        pytest.param(BASE, {"rtol": 1e-3}, "rtol 0.001 for 0.0001", id="rtol"),
        pytest.param(BASE, {"atol": 1e-3}, "atol 0.001 for 0.0001", id="atol"),
        pytest.param(BASE, {"floors": 17.0}, "floors 17 for 16", id="floors"),
        pytest.param(BASE, {"sqnr_db": 49.0}, "sqnr_db 49 for 50", id="less-sqnr"),
        pytest.param(BASE, {"floors": None}, "no floors", id="floors-dropped"),
        pytest.param(BASE, {"sqnr_db": None}, "no sqnr_db", id="sqnr-dropped"),
        pytest.param(
            BASE, {"share": 0.999, "cap": 1.0}, "share 0.999 for 1", id="share"
        ),
        pytest.param(SHARED, {"share": 0.99}, "share 0.99 for 0.999", id="less-share"),
        pytest.param(SHARED, {"cap": 1.0}, "cap 1 for 0.01", id="cap"),
        pytest.param(
            replace(BASE, cosine_distance=1e-4),
            {"cosine_distance": 1e-3},
            "cosine_distance 0.001 for 0.0001",
            id="cosine-distance",
        ),
        pytest.param(PICTURE, {"psnr_db": 49.0}, "psnr_db 49 for 50", id="less-psnr"),
        pytest.param(PICTURE, {"ssim": 0.98}, "ssim 0.98 for 0.99", id="less-ssim"),
        pytest.param(PICTURE, {"psnr_db": None}, "no psnr_db", id="psnr-dropped"),
        pytest.param(PICTURE, {"ssim": None}, "no ssim", id="ssim-dropped"),
    ],
)
def test_a_bound_that_lets_more_through_is_looser_and_said_so(base, change, words):
    changed = replace(base, **change)
    assert changed.looser_bounds(base) == (words,)
    assert changed.is_looser_than(base)
    assert not base.is_looser_than(changed)


def test_dropping_rtol_and_atol_is_looser():
    assert Tolerance(floors=1.0).looser_bounds(BASE) == (
        "no rtol",
        "no atol",
        "no sqnr_db",
    )


def test_dropped_bounds_can_be_passed_over():
    assert Tolerance(floors=1.0).looser_bounds(BASE, stated_only=True) == ()


def test_one_bound_looser_is_looser_though_another_is_tighter():
    assert replace(BASE, rtol=1e-3, atol=0.0).is_looser_than(BASE)


@pytest.mark.parametrize(
    ("tight", "loose"),
    [
        pytest.param(BASE, BASE, id="itself"),
        pytest.param(replace(SHARED, share=1.0, cap=None), SHARED, id="all-elements"),
        pytest.param(BASE, Tolerance(floors=16.0), id="more-bounds"),
        pytest.param(Tolerance(rtol=0.0, atol=0.0), BASE, id="equality"),
    ],
)
def test_what_lets_no_more_through_is_not_looser(tight, loose):
    assert not tight.is_looser_than(loose)


def disorder(names):
    """Say how an order of tiers from tight to loose breaks, or nothing."""
    for tight, loose in pairwise(names):
        for group in GROUPS:
            here, there = TIERS[tight][group], TIERS[loose][group]
            if wrong := here.looser_bounds(there, stated_only=True):
                return f"{group} of {tight}: {wrong}"
            if not there.is_looser_than(here):
                return f"{group} of {loose} is no looser than {tight}"
    return ""


def test_the_tiers_are_strictly_ordered_from_tight_to_loose():
    assert tuple(TIERS) == TIER_NAMES
    assert TIER_NAMES == ("exact", "strict", "standard", "relaxed", "quantized")
    assert disorder(TIER_NAMES) == ""


@pytest.mark.parametrize("tier", TIER_NAMES)
def test_the_page_of_bounds_states_each_tier(tier):
    cells = (
        ", ".join(
            f"{bound} {value:g}"
            for bound, value in asdict(TIERS[tier][group]).items()
            if value is not None and bound != "share"
        )
        for group in GROUPS
    )

    assert " | ".join([f"| `{tier}`", *cells, ""]).rstrip() in BOUNDS_PAGE


def test_a_disorder_among_tiers_would_be_seen():
    swapped = disorder(("exact", "standard", "strict", "relaxed", "quantized"))
    assert swapped.startswith("outputs of standard: ('rtol")
    assert disorder(("exact", "exact")) == "outputs of exact is no looser than exact"


def test_layers_are_held_to_no_absolute_bound_unless_to_equality():
    absolute = [n for n, tier in TIERS.items() if tier["layers"].atol is not None]
    assert absolute == ["exact"]


def test_a_tier_knows_four_groups_and_no_fifth():
    assert all(tuple(tier) == GROUPS for tier in TIERS.values())
