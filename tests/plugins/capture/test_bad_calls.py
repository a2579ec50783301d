"""What cannot be tested is refused by one sentence, before anything is exported."""

import pytest
import torch

import harness
from tests.plugins.capture import nets

X = torch.randn(2, 4)


def linear(**about):
    return torch.nn.Linear(4, 4, **about).eval()


CASES = {
    "no module": (3, (X,), "no torch.nn.Module"),
    "no inputs": (linear(), None, "takes a module and its inputs"),
    "no call": (linear(), [], "give at least one call"),
    "a wrong kind of inputs": (linear(), 3, "give a tuple or a dict"),
    "a lacking argument": (
        linear(),
        {"inptu": X},
        "missing a required argument: 'input'",
    ),
    "an argument too many": (linear(), (X, X), "too many positional arguments"),
    "a wrong shape": (linear(), (torch.randn(2, 5),), "cannot be called with input"),
    "training mode": (torch.nn.Linear(4, 4), (X,), "training mode"),
    "no numbers": (linear(device="meta"), (X,), "has no numbers (meta)"),
    "hooks": (nets.hooked(), (X,), "has a hook of forward"),
    "in place": (nets.InPlace().eval(), (X,), "changes its input x in place"),
    "no tensor": (nets.Silent().eval(), (X,), "returns no tensor"),
    "random": (nets.Random().eval(), (X,), "call torch.manual_seed"),
    "state": (nets.Counting().eval(), (X,), "changes its own state"),
    "a lock": (nets.Locked().eval(), (X,), "its lock (lock) cannot be written"),
    "bytes": (torch.nn.Identity().eval(), (X.byte(),), "cast it inside forward"),
    "an object": (torch.nn.Identity().eval(), (object(),), "data classes"),
    "no such name": ("no.such:thing", (X,), "makes no module"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_by_one_sentence_and_leaves_no_run(case, place):
    module, inputs, words = CASES[case]
    with pytest.raises(harness.ParityError) as caught:
        harness.check(module, inputs)

    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any(place.rglob("report.json"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"runtimes": ["onxruntime"]}, "did you mean 'onnxruntime'?"),
        ({"variants": ["fp23"]}, "has no variant 'fp23'"),
        ({"tier": "strct"}, "did you mean 'strict'?"),
        ({"seeds": -1}, "from 0"),
        ({"dynamic_shapes": {"inptu": {0: torch.export.Dim("b")}}}, "names 'inptu'"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_wrong_option_is_named(options, words):
    with pytest.raises(harness.ParityError, match=words.replace("?", r"\?")):
        harness.check(linear(), (X,), **options)


def test_a_module_that_is_never_called_is_named():
    never = harness.capture(net=linear())
    with pytest.raises(harness.ParityError, match="net: it was never called"), never:
        pass


def test_what_is_no_module_is_not_captured():
    wrong = harness.capture(net=3)
    with pytest.raises(harness.ParityError, match=r"no torch\.nn\.Module"), wrong:
        pass


def test_a_call_that_cannot_be_recorded_does_not_stop_the_program():
    net, went_on = torch.nn.Identity().eval(), []
    capture = harness.capture(net=net)
    with pytest.raises(harness.ParityError, match="data classes"), capture:  # noqa: PT012
        net(object())
        went_on.append(True)

    assert went_on


def test_a_folder_with_something_in_it_is_left_alone(place):
    (place / "there").mkdir()
    (place / "there" / "file").write_text("mine")
    net = linear()
    with harness.capture(net=net) as calls:
        net(X)
    with pytest.raises(harness.ParityError, match="a new or an empty folder"):
        calls.save("there")

    assert [path.name for path in place.rglob("*")] == ["there", "file"]
