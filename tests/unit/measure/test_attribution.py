"""Shares of an error that add up, and the rest, which is interaction."""

import json
import math

import pytest

from harness.measure.attribution import Attribution, RoleShare, attribute

ROLES = ("text_encoder", "unet", "vae_decoder")


def added(**power):
    """Pictures to which each role adds so much power, whatever runs the others."""
    return lambda taken: sum(power.get(role, 0.0) for role in taken)


def drawn(draw, roles=ROLES):
    """The attribution, and each set of roles that was drawn for it."""
    draws = []

    def counted(taken):
        draws.append(taken)
        return draw(taken)

    return attribute(roles, draw(frozenset(roles)), counted), draws


def shares(found):
    return {role: part.share for role, part in found.parts.items()}


def test_powers_that_add_up_leave_nothing_to_interaction():
    found, _ = drawn(added(text_encoder=1.0, unet=16.0, vae_decoder=3.0))

    assert shares(found) == {
        "text_encoder": pytest.approx(0.05),
        "unet": pytest.approx(0.8),
        "vae_decoder": pytest.approx(0.15),
    }
    assert found.interaction == 0.0
    assert found.culprit == "unet"
    assert found.rms == math.sqrt(20)
    assert found.parts["unet"] == RoleShare(alone=4.0, without=2.0, share=0.8)


def test_each_role_is_exchanged_in_both_directions_and_the_total_is_not_drawn_again():
    _, draws = drawn(added(unet=1.0))

    assert sorted(map(sorted, draws)) == sorted(
        [
            ["text_encoder"],
            ["unet"],
            ["vae_decoder"],
            ["text_encoder", "unet"],
            ["text_encoder", "vae_decoder"],
            ["unet", "vae_decoder"],
        ]
    )


@pytest.mark.parametrize(
    ("draw", "interaction", "expected"),
    [
        # Neither brings anything alone; with either taken out all of it goes.
        pytest.param(
            lambda taken: 8.0 if {"text_encoder", "unet"} <= taken else 0.0,
            1.0,
            {"text_encoder": 0.5, "unet": 0.5},
            id="an-error-that-takes-two",
        ),
        pytest.param(added(), 0.0, {}, id="no-error"),
        pytest.param(
            lambda taken: math.inf if taken & {"unet", "vae_decoder"} else 0.0,
            0.0,
            {"unet": 0.5, "vae_decoder": 0.5},
            id="a-picture-that-any-of-two-breaks",
        ),
        pytest.param(
            lambda taken: math.inf if {"unet", "vae_decoder"} <= taken else 0.0,
            0.0,
            {"unet": 0.5, "vae_decoder": 0.5},
            id="a-picture-that-only-two-together-break",
        ),
    ],
)
def test_an_error_of_two_roles_is_half_of_each(draw, interaction, expected):
    found, _ = drawn(draw)
    assert found.interaction == interaction
    assert shares(found) == {**dict.fromkeys(ROLES, 0.0), **expected}


def test_errors_that_cancel_are_negative_interaction():
    def draw(taken):
        return (3.0 * ("unet" in taken) - 2.0 * ("vae_decoder" in taken)) ** 2

    found, _ = drawn(draw)

    # 9 and 4 alone, 1 together.
    assert found.interaction == 1 - 13
    assert found.parts["unet"] == RoleShare(alone=3.0, without=2.0, share=3.0)
    assert found.parts["vae_decoder"] == RoleShare(alone=2.0, without=3.0, share=-2.0)
    assert found.culprit == "unet"


def test_shares_of_two_that_act_on_each_other_sum_to_one():
    def draw(taken):
        return (("unet" in taken) + 0.1 * ("vae_decoder" in taken)) ** 2

    found, _ = drawn(draw)

    assert sum(shares(found).values()) == pytest.approx(1.0)
    assert found.interaction == pytest.approx(1 - 1.01 / 1.21)


def test_a_role_alone_brings_all_and_no_picture_without_it_is_drawn():
    found, draws = drawn(added(unet=4.0), roles=("unet",))
    assert found.parts == {"unet": RoleShare(alone=2.0, without=0.0, share=1.0)}
    assert found.interaction == 0.0
    assert draws == [frozenset({"unet"})]


def test_the_role_that_breaks_a_picture_is_named():
    def draw(taken):
        return math.inf if "unet" in taken else 1.0

    found, _ = drawn(draw)

    assert found.culprit == "unet"
    assert found.rms == math.inf
    assert found.parts["unet"] == RoleShare(alone=math.inf, without=1.0, share=1.0)
    assert found.parts["vae_decoder"].share == 0.0
    assert found.interaction == 0.0


@pytest.mark.parametrize("roles", [ROLES, ROLES[::-1]])
def test_a_role_that_breaks_a_picture_alone_is_named_in_any_order(roles):
    """With all together the picture is finite again, and somebody hid a fault."""

    def draw(taken):
        return math.inf if taken == {"unet"} else 1.0

    found, _ = drawn(draw, roles)

    assert found.culprit == "unet"
    assert found.parts["unet"].alone == math.inf
    assert tuple(found.parts) == roles


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(added(text_encoder=1.0, unet=16.0), id="finite"),
        pytest.param(lambda taken: math.inf if "unet" in taken else 1.0, id="infinite"),
    ],
)
def test_what_is_written_is_read(draw):
    found, _ = drawn(draw)
    text = json.dumps(found.to_json())
    assert Attribution.from_json(json.loads(text)) == found
    assert list(Attribution.from_json(json.loads(text)).parts) == list(ROLES)
