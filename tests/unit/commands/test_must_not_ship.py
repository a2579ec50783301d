"""A card of a run that must not ship says so where it is read first."""

import pytest

from harness.plugins.card.form import FORMAT, Card, CardCase
from harness.plugins.card.make import _lines, must_not_ship


def card(code, checkpoint="a/b", **cases):
    fields = {**dict.fromkeys(CardCase.__struct_fields__), "files": ()}
    return Card(
        format=FORMAT,
        checkpoint=checkpoint,
        run="now",
        code=code,
        facts=(),
        gaps=(),
        arrays="",
        cases=tuple(
            CardCase(**{**fields, "case": name, "passed": passed, "result": "exceeds"})
            for name, passed in cases.items()
        ),
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, ""),
        (1, "Do not ship: unet/mnn/int8 does not agree with PyTorch."),
        (2, "Cannot say: the run did not compare unet/mnn/int8."),
    ],
)
def test_the_sentence_follows_from_the_exit_code(code, words):
    cases = {"unet/mnn/fp32": True, "unet/mnn/int8": code == 0}
    assert must_not_ship(card(code, **cases)) == words


def test_it_stands_before_the_numbers():
    lines = list(_lines(card(1), "digest"))
    assert lines[2] == "**Do not ship: the run does not agree with PyTorch.**"


def test_a_card_of_files_without_a_checkpoint_names_no_pytorch_and_no_floors():
    cases = {"net/mnn/fp32": False}
    first = "\n".join(list(_lines(card(1, "", **cases), "digest"))[:-2])
    assert "Numerical parity with the reference" in first
    assert "net/mnn/fp32 does not agree with the reference" in first
    assert "0 of 1 ways to run agree" in first
    assert "PyTorch" not in first
    assert "floor" not in first
