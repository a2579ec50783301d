"""Powers that add up, and what is left to interaction."""

import json
import math

import pytest

from harness.measure.attribution import Attribution, Part, attribute

SEATS = ("text_encoder", "unet", "vae_decoder")


def added(**power):
    """Pictures to which each seat adds so much power, whoever sits elsewhere."""
    return lambda taken: sum(power.get(seat, 0.0) for seat in taken)


def drawn(draw, seats=SEATS):
    """The attribution, and every cast that was drawn for it."""
    casts = []

    def counted(taken):
        casts.append(taken)
        return draw(taken)

    return attribute(seats, draw(frozenset(seats)), counted), casts


def shares(found):
    return {seat: part.share for seat, part in found.parts.items()}


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
    assert found.parts["unet"] == Part(alone=4.0, without=2.0, share=0.8)


def test_each_seat_is_exchanged_in_both_directions_and_the_total_is_not_drawn_again():
    _, casts = drawn(added(unet=1.0))

    assert sorted(map(sorted, casts)) == sorted(
        [
            ["text_encoder"],
            ["unet"],
            ["vae_decoder"],
            ["text_encoder", "unet"],
            ["text_encoder", "vae_decoder"],
            ["unet", "vae_decoder"],
        ]
    )


def test_parts_stand_in_the_order_of_the_seats():
    found, _ = drawn(added(unet=1.0), seats=("vae_decoder", "unet", "text_encoder"))

    assert list(found.parts) == ["vae_decoder", "unet", "text_encoder"]


def test_an_error_that_takes_two_is_interaction_and_is_shared():
    def draw(taken):
        return 8.0 if {"text_encoder", "unet"} <= taken else 0.0

    found, _ = drawn(draw)

    # Neither brings anything alone; with either taken out all of it goes.
    assert found.interaction == 1.0
    assert shares(found) == {"text_encoder": 0.5, "unet": 0.5, "vae_decoder": 0.0}


def test_errors_that_cancel_are_negative_interaction():
    def draw(taken):
        return (3.0 * ("unet" in taken) - 2.0 * ("vae_decoder" in taken)) ** 2

    found, _ = drawn(draw)

    # 9 and 4 alone, 1 together.
    assert found.interaction == 1 - 13
    assert found.parts["unet"] == Part(alone=3.0, without=2.0, share=3.0)
    assert found.parts["vae_decoder"] == Part(alone=2.0, without=3.0, share=-2.0)
    assert found.culprit == "unet"


def test_shares_of_two_that_act_on_each_other_sum_to_one():
    def draw(taken):
        return (("unet" in taken) + 0.1 * ("vae_decoder" in taken)) ** 2

    found, _ = drawn(draw)

    assert sum(shares(found).values()) == pytest.approx(1.0)
    assert found.interaction == pytest.approx(1 - 1.01 / 1.21)


def test_a_seat_alone_brings_all_and_no_cast_without_it_is_drawn():
    found, casts = drawn(added(unet=4.0), seats=("unet",))

    assert found.parts == {"unet": Part(alone=2.0, without=0.0, share=1.0)}
    assert found.interaction == 0.0
    assert casts == [frozenset({"unet"})]


def test_without_an_error_nobody_brings_any():
    found, _ = drawn(added())

    assert shares(found) == dict.fromkeys(SEATS, 0.0)
    assert (found.rms, found.interaction) == (0.0, 0.0)


def test_who_breaks_a_picture_is_named():
    def draw(taken):
        return math.inf if "unet" in taken else 1.0

    found, _ = drawn(draw)

    assert found.culprit == "unet"
    assert found.rms == math.inf
    assert found.parts["unet"] == Part(alone=math.inf, without=1.0, share=1.0)
    assert found.parts["vae_decoder"].share == 0.0
    assert found.interaction == 0.0


def test_a_picture_that_any_of_two_breaks_is_half_of_each():
    def draw(taken):
        return math.inf if taken & {"unet", "vae_decoder"} else 0.0

    assert shares(drawn(draw)[0]) == {
        "text_encoder": 0.0,
        "unet": 0.5,
        "vae_decoder": 0.5,
    }


def test_a_picture_that_only_two_together_break_is_half_of_each():
    def draw(taken):
        return math.inf if {"unet", "vae_decoder"} <= taken else 0.0

    assert shares(drawn(draw)[0]) == {
        "text_encoder": 0.0,
        "unet": 0.5,
        "vae_decoder": 0.5,
    }


@pytest.mark.parametrize("seats", [SEATS, SEATS[::-1]])
def test_a_seat_that_breaks_a_picture_alone_is_named_in_any_order(seats):
    """With all together the picture is finite again, and somebody hid a fault."""

    def draw(taken):
        return math.inf if taken == {"unet"} else 1.0

    found, _ = drawn(draw, seats)

    assert found.culprit == "unet"
    assert found.parts["unet"].alone == math.inf


@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(added(text_encoder=1.0, unet=16.0), id="finite"),
        pytest.param(lambda cast: math.inf if "unet" in cast else 1.0, id="infinite"),
    ],
)
def test_what_is_written_is_read(draw):
    found, _ = drawn(draw)
    text = json.dumps(found.to_json())

    assert Attribution.from_json(json.loads(text)) == found
    assert list(Attribution.from_json(json.loads(text)).parts) == list(SEATS)
