"""Places where a runtime runs: the cases that they make, and what is refused."""

from functools import partial

import pytest

from harness.core.errors import SuiteError
from tests.unit.reports import policy_of
from tests.unit.suite.pipelines import UNET

PHONE = """\
[target.phone]
command = ["qemu-aarch64-static", "root/usr/bin/python3.11"]
"""
OTHER = """\
[target.other]
command = ["../envs/old/bin/python"]
"""


@pytest.fixture
def load(load):
    return lambda text: load(text, UNET)


PLACES = {
    "nothing": ("", {"fp32": ("", "high")}),
    "a precision for all": ('precision = "low"', {"fp32": ("", "low")}),
    "precisions": (
        'precision = ["high", "low"]',
        {"fp32": ("", "high"), "fp32@low": ("", "low")},
    ),
    "both": (
        'targets = ["here", "phone"]\nprecision = ["high", "low"]',
        {
            "fp32": ("", "high"),
            "fp32@low": ("", "low"),
            "fp32@phone": ("phone", "high"),
            "fp32@phone-low": ("phone", "low"),
        },
    ),
    "versions": (
        'versions = ["3.5.0", "3.10.0.post1"]',
        {
            "fp32": ("", "high"),
            "fp32@3.5.0": ("3.5.0", "high"),
            "fp32@3.10.0.post1": ("3.10.0.post1", "high"),
        },
    ),
    "a version and precisions": (
        'versions = ["3.5.0"]\nprecision = ["high", "low"]',
        {
            "fp32": ("", "high"),
            "fp32@low": ("", "low"),
            "fp32@3.5.0": ("3.5.0", "high"),
            "fp32@3.5.0-low": ("3.5.0", "low"),
        },
    ),
    "a target and a precision for all": (
        'targets = ["phone"]\nprecision = "low"',
        {"fp32@phone": ("phone", "low")},
    ),
}


@pytest.mark.parametrize("said", PLACES)
def test_each_place_and_precision_is_a_case(load, said):
    text, wanted = PLACES[said]
    suite = load(f"[backend.mnn]\n{text}\n" + (PHONE if "phone" in text else ""))
    devices = {case.id.removeprefix("unet/mnn/"): case.device for case in suite.cases}
    assert {
        how: (one.target.name if one.target else "", one.precision)
        for how, one in devices.items()
    } == wanted


def test_a_converter_and_a_runtime_have_versions_apart(load):
    said = '[backend.mnn]\nversions = ["3.5.0"]\nconverter = "3.4.1"\n'
    here, there = load(said).cases
    assert (here.device.target, there.device.target.version) == (None, "3.5.0")
    assert here.variant.converter == there.variant.converter == "3.4.1"


def test_a_path_starts_at_the_suite_and_a_name_is_looked_up(load, tmp_path):
    said = '[backend.mnn]\ntargets = ["phone", "other"]\n'
    commands = [case.device.target.command for case in load(said + PHONE + OTHER).cases]
    assert commands == [
        ("qemu-aarch64-static", "root/usr/bin/python3.11"),
        (str(tmp_path / "../envs/old/bin/python"),),
    ]


def test_pictures_are_drawn_at_the_first_place_unless_others_are_listed(load):
    pipeline = (
        '[pipeline.text2img]\nprompts = ["a seven in red ink on white paper"]\n'
        "steps = 2\nheight = 64\nwidth = 64\n{}\n"
    )
    said = '[backend.mnn]\ntargets = ["here", "phone"]\n' + PHONE
    usual = load(said + pipeline.format("")).pipeline_cases
    listed = load(
        said
        + pipeline.format(
            'variants = ["fp32@phone"]\nmixed = ["pytorch", "mnn/fp32@phone"]'
        )
    ).pipeline_cases

    assert [case.id for case in usual] == ["text2img/mnn/fp32"]
    assert listed[0].id == "text2img/mnn/fp32@phone"
    assert "text2img/mixed/pytorch-mnn.fp32@phone-pytorch" in [one.id for one in listed]
    assert listed[0].targets == ("phone",)


def test_a_component_may_list_its_places(load):
    said = '[backend.mnn]\ntargets = ["here", "phone"]\n' + PHONE
    suite = load(said + '[component.unet]\nvariants = ["fp32@phone"]\n')
    assert [case.id for case in suite.cases] == ["unet/mnn/fp32@phone"]


REFUSED = {
    "unused": (
        '[backend.mnn]\ntargets = ["here"]\n' + PHONE,
        "nothing runs on the target 'phone'",
    ),
    "misspelt": (
        '[backend.mnn]\ntargets = ["phone", "othr"]\n'
        '[backend.onnxruntime]\ntargets = ["other"]\n' + PHONE + OTHER,
        "unknown 'othr' in 'targets'; did you mean 'other'?",
    ),
    "twice": ('[backend.mnn]\ntargets = ["here", "here"]\n', "stands in 'targets'"),
    "a word of ids": (
        '[backend.mnn]\ntargets = ["my-low"]\n' + PHONE.replace("phone", "my-low"),
        "cannot be called 'my-low'",
    ),
    "no command": ('[backend.mnn]\ntargets = ["p"]\n[target.p]\n', "no 'command'"),
    "an empty command": (
        '[backend.mnn]\ntargets = ["p"]\n[target.p]\ncommand = []\n',
        "'command' is empty",
    ),
    "a runtime that runs only here": (
        '[backend.openvino]\ntargets = ["here"]\n',
        "unknown key 'targets'",
    ),
    "versions of a runtime that runs only here": (
        '[backend.openvino]\nversions = ["2026.4.1"]\n',
        "unknown key 'versions'",
    ),
    "a converter of a runtime that has none": (
        '[backend.onnxruntime]\nconverter = "1.20.1"\n',
        "unknown key 'converter'",
    ),
    "no version": ('[backend.mnn]\nversions = ["newest"]\n', "'newest' is no version"),
    "a range of converters": (
        '[backend.mnn]\nconverter = ">=3.4"\n',
        "'>=3.4' is no version",
    ),
    "a version twice": (
        '[backend.mnn]\nversions = ["3.5.0", "3.5.0"]\n',
        "stands in 'versions'",
    ),
    "a version that is called like a target": (
        '[backend.mnn]\nversions = ["3.5.0"]\ntargets = ["3.5.0"]\n'
        + PHONE.replace("phone", '"3.5.0"', 1),
        "'3.5.0' is also a [target.*]",
    ),
    "an unknown precision": (
        '[backend.mnn]\nprecision = ["high", "lwo"]\n',
        "did you mean 'low'?",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_case_is_refused(load, what):
    text, words = REFUSED[what]
    with pytest.raises(SuiteError) as error:
        load(text)
    assert words in str(error.value)


TOLERANCES = """\
[mnn.fp32]
layers = "strict"
outputs = "strict"

[mnn.fp32."@phone-low"]
layers = "relaxed"
why = "float16"

[unet.mnn.fp32]
layers = "standard"
why = "set here"

[unet.mnn.fp32.probes."*.attn*"]
layers = "quantized"
why = "set here"

[vae.mnn.fp32."@phone-low".probes."*.attn*"]
layers = "quantized"
why = "float16 of attention"
"""


@pytest.fixture
def policy(tmp_path):
    return partial(policy_of, tmp_path)


@pytest.mark.parametrize(
    ("case", "group", "probe", "tier"),
    [
        pytest.param("unet/mnn/fp32", "layers", "", "standard", id="here"),
        pytest.param("unet/mnn/fp32", "layers", "x.attn1", "quantized", id="probe"),
        pytest.param("unet/mnn/fp32@phone", "layers", "", "standard", id="wider"),
        pytest.param("unet/mnn/fp32@phone-low", "layers", "", "relaxed", id="own"),
        pytest.param(
            "unet/mnn/fp32@phone-low", "layers", "x.attn1", "relaxed", id="own-first"
        ),
        pytest.param(
            "unet/mnn/fp32@phone-low", "outputs", "", "strict", id="the-rest-is-wider"
        ),
        pytest.param(
            "vae/mnn/fp32@phone-low", "layers", "x.attn1", "quantized", id="own-probe"
        ),
    ],
)  # fmt: skip
def test_a_table_of_a_target_is_the_narrowest(policy, case, group, probe, tier):
    component, backend, variant = case.split("/")
    found = policy(TOLERANCES).for_probe(
        (component, backend, variant), group=group, probe=probe
    )
    assert found.tier == tier


REFUSED_TABLES = {
    "no reason": (
        '[mnn.fp32]\nlayers = "strict"\n[mnn.fp32."@low"]\nlayers = "relaxed"\n',
        'to [mnn.fp32."@low"]',
    ),
    "as in ids": (
        '[mnn."fp32@low"]\nlayers = "strict"\n',
        'a target has a table of its own; write [mnn.fp32."@low"]',
    ),
    "empty": ('[mnn.fp32."@low"]\n', '[mnn.fp32."@low"] states nothing'),
    "no table": ('[mnn.fp32]\n"@low" = "strict"\n', "'@low' must be a table"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED_TABLES)
def test_a_table_of_a_target_that_cannot_be_is_refused(policy, what):
    text, words = REFUSED_TABLES[what]
    with pytest.raises(SuiteError) as error:
        policy(text)
    assert words in str(error.value)


def test_a_table_of_a_target_that_the_suite_lacks_is_stale(policy):
    text = '[mnn.fp32."@phon-low"]\nlayers = "strict"\n'
    cases = {"mnn": ["fp32", "fp32@phone-low"]}
    ((_, words),) = policy(text).stale(["unet"], cases)
    assert words == ("variant 'fp32@phon-low' for mnn; did you mean 'fp32@phone-low'?")
    assert not policy(TOLERANCES).stale(["unet", "vae"], cases)
